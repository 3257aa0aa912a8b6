"""docs/ci.md and README: the workflow is YAML that does what it says, its commands have these options, its suite is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from goatbench.cli import app
from goatbench.regression.suite import read_suite

ROOT = Path(__file__).resolve().parents[3]
TEXT, README = (ROOT.joinpath(name).read_text(encoding="utf-8") for name in ("docs/ci.md", "README.md"))
WORKFLOW, SUITE = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.S)
COMMANDS = sorted(set(re.findall(r"(?:^|run: |`)(goatbench check[^`\n#]*)", TEXT + README, flags=re.M)))


def options(command: str) -> dict[str, str]:
    words = shlex.split(command)[2:]
    return {word: words[i + 1] if i + 1 < len(words) else "" for i, word in enumerate(words) if word.startswith("--")}


def test_the_workflow_checks_summarises_and_uploads():
    workflow = yaml.safe_load(WORKFLOW)
    assert workflow[True] == ["pull_request"]  # YAML 1.1 reads `on` as a boolean; GitHub does not
    (job,) = workflow["jobs"].values()
    assert job["timeout-minutes"] >= 10 and all(("uses" in step) != ("run" in step) for step in job["steps"])
    check = next(step for step in job["steps"] if step.get("run", "").startswith("goatbench check"))
    files = options(check["run"])
    assert set(files) == {"--markdown", "--junit"}
    after = job["steps"][job["steps"].index(check) + 1 :]
    assert all(step["if"] == "always()" for step in after)  # a failed check is when they are wanted
    (upload,) = [step for step in after if "upload-artifact" in step.get("uses", "")]
    assert upload["with"]["path"] == files["--junit"]
    (summary,) = [step for step in after if "run" in step]
    assert f'cat {files["--markdown"]} >> "$GITHUB_STEP_SUMMARY"' in summary["run"]


def test_readme_has_the_same_workflow_in_short():
    (text,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.S)
    short, whole = yaml.safe_load(text), yaml.safe_load(WORKFLOW)
    (steps,), (all_steps,) = ([job["steps"] for job in one["jobs"].values()] for one in (short, whole))
    assert short[True] == whole[True] and short["jobs"]["check"]["runs-on"] == whole["jobs"]["check"]["runs-on"]
    told = [{key: step[key] for key in ("uses", "with", "if") if key in step} for step in all_steps]
    for step in steps:
        if "uses" in step:
            assert step in told
        else:
            assert any(step["run"] in other.get("run", "") and step.get("if") == other.get("if") for other in all_steps), step


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_have_these_options(command):
    verb = typer.main.get_command(app).commands["check"]
    known = {name for parameter in verb.params for name in parameter.opts}
    assert set(options(command)) <= known


def test_its_suite_is_one(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SUITE)
    assert [job.name for job in read_suite(path).jobs()] == ["lm_length/nope", "lm_length/alibi"]
