"""`goatbench check` with real runs: one job against the golden records that are shipped, one against a score that nobody reached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from goatbench.regression.suite import SMOKE, golden_path


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "goatbench", "check", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GOATBENCH_NO_PLUGINS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False, env=env)


def test_one_job_agrees_with_its_golden_record(tmp_path):
    done = check(tmp_path, "--only", "needle/nope", "--markdown", "check.md", "--junit", "check.xml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check smoke: ok: 2 comparisons of 1 jobs" in done.stdout and "checking: 3/3 runs" in done.stderr
    cases = ElementTree.parse(tmp_path / "check.xml").getroot().findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["needle/nope exact", "needle/nope spread"]
    assert "| needle/nope |" in (tmp_path / "check.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"check.md", "check.xml"}  # its runs are gone


@pytest.mark.slow
def test_the_whole_suite_agrees(tmp_path):
    done = check(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_golden_score_that_is_10_percent_better_fails(tmp_path):
    """As after a change that costs 10 %: what is stored is what was, on a machine that this one is not."""
    shutil.copy(SMOKE, tmp_path / "mine.yaml")
    golden = json.loads(golden_path(SMOKE).read_text())
    job = golden["jobs"]["needle/nope"]
    (scores,) = job["scores"].values()
    better = {cell: {seed: value / 1.1 for seed, value in by_seed.items()} for cell, by_seed in scores.items()}
    job["scores"] = {"torch 1.0, DEFAULT, Nobody": better}
    (tmp_path / "mine.golden.json").write_text(json.dumps(golden))
    done = check(tmp_path, "--suite", "mine.yaml", "--only", "needle/nope")
    assert done.returncode == 1 and "worse than the seeds allow" in done.stdout and "notice" in done.stdout
