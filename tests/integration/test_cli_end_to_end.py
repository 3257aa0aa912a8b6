"""The commands of the README at the smallest scale: a sweep, its resumption, a single run, the board, submission."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from goatbench.cli import main

SMALL = ["scale=smoke", "data.num_train=128", "data.num_validation=64", "data.num_test=64"]


def goatbench(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "goatbench", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GOATBENCH_NO_PLUGINS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def records(folder):
    return [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*/record.json"))]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two seeds of one attention, two at a time."""
    folder = tmp_path_factory.mktemp("swept")
    done = goatbench(folder, "run", "-m", "-j", "2", "attention=nope", "seed=0,1", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def test_each_job_has_its_own_record_and_log(swept):
    folder, done = swept
    found = records(folder)
    assert sorted(record["seed"] for record in found) == [0, 1]
    assert {record["status"] for record in found} == {"ok"}
    assert len({record["sweep_id"] for record in found}) == 1 and found[0]["sweep_id"] is not None
    for record in found:
        assert (folder / "runs" / record["run_id"] / "log.txt").stat().st_size > 0
    assert "2 of 2 jobs finished" in done.stdout and "top1" in done.stdout
    assert "[2/2 jobs" in done.stderr


def test_the_same_sweep_again_skips_what_is_finished(swept):
    folder, _ = swept
    again = goatbench(folder, "run", "-m", "attention=nope", "seed=0,1", *SMALL)
    assert again.returncode == 0
    assert again.stdout.startswith("skipped 2 of 2 jobs: finished already")
    assert len([record for record in records(folder) if record["sweep_id"]]) == 2


def test_a_single_run_measures_anew_with_the_same_weights(swept):
    folder, _ = swept
    before = {record["run_id"] for record in records(folder)}
    done = goatbench(folder, "run", "attention=nope", "seed=1", *SMALL)
    assert done.returncode == 0, done.stderr
    (new,) = [record for record in records(folder) if record["run_id"] not in before]
    old = next(record for record in records(folder) if record["run_id"] in before and record["seed"] == 1)
    assert new["training"]["reused"] and new["training"]["from_run"] == old["run_id"]
    assert new["measurements"] == old["measurements"]
    assert new["run_id"] in done.stdout + done.stderr, "the end of a run names its record"


def test_the_board_and_submission(swept):
    folder, _ = swept
    results = folder / "results"
    results.mkdir(exist_ok=True)
    run_id = records(folder)[0]["run_id"]
    placed = goatbench(folder, "submit", run_id, "--results-dir", "results", "--allow-dirty")
    assert placed.returncode == 0, placed.stderr
    path = Path(folder, placed.stdout.split(" (")[0].strip())
    assert path.is_file() and re.search(r"results/vit_res512@v\d+/smoke/nope-[0-9a-f]{8}/", str(path))
    board = goatbench(folder, "leaderboard", "task=vit_res512", "--scale", "smoke", "--results-dir", "results", "--format", "md")
    assert board.returncode == 0 and "nope" in board.stdout and "|---" in board.stdout
    assert "interrupted" not in board.stderr


def test_a_run_is_shown_and_repeated_with_equal_measurements(swept):
    folder, _ = swept
    run = records(folder)[0]
    shown = goatbench(folder, "show", run["run_id"])
    assert shown.returncode == 0 and f"goatbench run task=vit_res512 attention=nope scale=smoke seed={run['seed']}" in shown.stdout
    again = goatbench(folder, "show", run["run_id"], "--repro")
    assert again.returncode == 0, again.stdout + again.stderr
    count = len(run["measurements"])
    assert f"{count} of {count} measurements are equal" in again.stdout
    new = records(folder)[-1]
    assert not new["training"]["reused"] and new["config_hash"] == run["config_hash"]  # trained anew, not read off the checkpoint


# Lines of --help that are not run here: whole runs and their repetition (the tests above), minutes of measuring (tests/unit/bench,
# test_check_end_to_end.py), and folders of one's own.
NOT_HERE = ("run ", "show last --repro", "check", "bench ", "data prepare fasta ", "data check imagenet_folder ")
VERBS = ("run", "list", "show", "plan", "check", "leaderboard", "compare", "report", "submit", "export", "doctor", "data prepare",
         "data check", "bench attention", "bench decoder", "bench genome_loader", "bench gpu", "bench image_loader")  # fmt: skip


def test_every_example_of_help_runs_as_it_stands(swept, monkeypatch, capsys):
    """In a folder with runs: whatever --help prints behind a colon as `goatbench ...`."""
    folder, _ = swept
    (folder / "examples").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        shown = capsys.readouterr()
        return ended.value.code, shown.out + shown.err

    ran = []
    for verb in VERBS:
        help_code, text = call(*verb.split(), "--help")
        lines = re.findall(r"(?<![Uu]sage): goatbench (\S.*?)\s*$", text, re.MULTILINE)
        assert help_code == 0 and lines and all(line.startswith(verb) for line in lines), verb
        for line in [line for line in lines if not line.startswith(NOT_HERE)]:
            published = ["--results-dir", "examples", "--allow-dirty"] if verb == "submit" else []  # never into the package
            code, said = call(*line.split(), *published)
            assert code == 0, f"goatbench {line}: {said}"
            ran.append(line)
    assert len(ran) >= 12, ran


def test_what_the_data_cannot_give_is_refused_and_leaves_no_run(tmp_path):
    done = goatbench(tmp_path, "run", "attention=nope", "scale=smoke", "data.num_train=999999")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("goatbench: ") and "12000" in done.stderr
    assert not list(tmp_path.glob("runs/*/record.json"))
