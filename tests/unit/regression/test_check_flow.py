"""The verb from options to exit code, with runs that are made up: what it writes, what it refuses, what it measures twice."""

from __future__ import annotations

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from made_up_check import HERE

from goatbench import compose
from goatbench.cli import main
from goatbench.errors import UsageError
from goatbench.regression import measure
from goatbench.regression.check import Asked, check
from goatbench.regression.golden import read_golden
from goatbench.regression.measure import BrokenEnvironmentError, cell_of, measured_of
from goatbench.regression.suite import golden_path, read_suite

SUITE = """
scale: smoke
seeds: [0, 1]
golden_seeds: [0, 1, 2, 3]
tasks:
  needle: {attentions: [nope, goat], metrics: [nll_nats]}
"""


class Runs:
    """Stands for `execute`: NLL by seed times `score`, CPU-seconds by attention, and what it was asked for."""

    def __init__(self):
        self.asked = []
        self.score, self.seconds, self.error = 1.0, {"nope": 1.0, "goat": 1.2}, None

    def __call__(self, composed):
        spec = composed.spec
        assert spec.scale == "smoke" and spec.retrain
        self.asked.append((spec.attention.name, spec.seed))
        if self.error is not None and spec.attention.name == "goat":
            raise self.error
        value = (2.0 + 0.01 * (spec.seed % 3)) * (self.score if spec.attention.name == "goat" else 1.0)
        one = SimpleNamespace(metric="nll_nats", value=value, conditions={"multiple": 1})
        reference = SimpleNamespace(metric="nll_nats", value=9.0, conditions={"multiple": 1, "reference": "uniform"})
        costs = [SimpleNamespace(name=name, value=self.seconds[spec.attention.name]) for name in measure.COSTS]
        return SimpleNamespace(
            status="ok", error=None, measurements=[one, reference], costs=costs, data=SimpleNamespace(fingerprint="d" * 16)
        )


@pytest.fixture(scope="module")
def compose_once():
    """Composing takes most of the time: equal overrides are composed once, wherever their runs lie."""
    composer, known = compose.Composer(), {}

    class Composer:
        def compose(self, overrides):
            key = tuple(line for line in overrides if not line.startswith("runs_dir="))
            if key not in known:
                known[key] = composer.compose(list(key))
            return known[key]

    return Composer


@pytest.fixture
def suite(tmp_path, monkeypatch, compose_once):
    """(path of a suite with golden records, the runs that a check will make)."""
    runs = Runs()
    monkeypatch.setattr(measure, "machine", lambda: HERE)
    monkeypatch.setattr(measure, "execute", runs)
    monkeypatch.setattr(measure, "Composer", compose_once)
    path = tmp_path / "mine.yaml"
    path.write_text(SUITE)
    assert check(Asked(suite=path, update=True, reason="made up")) == 0
    assert len(runs.asked) == 1 + 2 * 4  # the warm-up
    runs.asked.clear()
    return path, runs


def test_the_same_again_is_ok(suite, capsys):
    path, runs = suite
    assert check(Asked(suite=path)) == 0
    assert runs.asked == [("nope", 0), ("nope", 0), ("goat", 0), ("nope", 1), ("goat", 1)]
    out = capsys.readouterr().out
    assert "check mine: ok: 5 comparisons of 2 jobs, 7 numbers" in out and "reference" not in path.with_name("mine.golden.json").read_text()


def test_worse_scores_are_exit_code_1_and_told_in_both_files(suite, tmp_path):
    path, runs = suite
    runs.score = 1.1
    markdown, junit = tmp_path / "check.md", tmp_path / "check.xml"
    assert check(Asked(suite=path, markdown=str(markdown), junit=str(junit))) == 1
    assert "REGRESSION **needle/goat** spread" in markdown.read_text()
    assert ElementTree.parse(junit).getroot().find("testsuite").get("failures") == "2"  # exact and spread of goat


def test_a_slow_job_is_measured_twice_before_it_is_called_slow(suite, capsys):
    path, runs = suite
    runs.seconds["goat"] = 2.4
    assert check(Asked(suite=path)) == 1
    assert len(runs.asked) == 2 * (1 + 2 * 2) and "2.00 times as much (allowed 1.50)" in capsys.readouterr().out


def test_slow_once_is_not_slow(suite, monkeypatch):
    path, _ = suite
    plain = Runs.__call__

    def busy_at_first(self, composed):
        self.seconds["goat"] = 2.4 if len(self.asked) < 5 else 1.2
        return plain(self, composed)

    monkeypatch.setattr(Runs, "__call__", busy_at_first)
    assert check(Asked(suite=path)) == 0


def test_only_one_job_brings_its_baseline(suite):
    path, runs = suite
    assert check(Asked(only=("needle/goat",), suite=path)) == 0
    assert {name for name, _ in runs.asked} == {"nope", "goat"}
    runs.asked.clear()
    assert check(Asked(only=("needle/nope",), suite=path)) == 0
    assert {name for name, _ in runs.asked} == {"nope"}


def test_a_refused_job_fails_and_the_others_are_compared(suite, capsys):
    path, runs = suite
    runs.error = UsageError("no kernel can do it")
    assert check(Asked(suite=path)) == 1
    out = capsys.readouterr().out
    assert "seed 0: refused: no kernel can do it" in out and "needle/nope  exact   2 scores equal" in out
    before = golden_path(path).read_bytes()
    assert check(Asked(suite=path, update=True, reason="try")) == 1 and golden_path(path).read_bytes() == before


def test_an_update_keeps_its_reason_and_what_moved(suite, capsys):
    path, runs = suite
    runs.score = 1.1
    assert check(Asked(suite=path, update=True, reason="  heavier  ")) == 0
    entry = read_golden(golden_path(path)).history[-1]
    assert entry.reason == "heavier" and entry.changes == ("needle/goat nll_nats multiple=1: 2.0075 -> 2.20825 (+10 %)",)
    assert entry.changes[0] in capsys.readouterr().out
    assert check(Asked(suite=path)) == 0


def test_a_changed_suite_is_not_compared_with_what_was_another_run(suite, capsys):
    path, _ = suite
    path.write_text(SUITE.replace("metrics: [nll_nats]}", "metrics: [nll_nats], overrides: [training.epochs=2]}"))
    assert check(Asked(suite=path)) == 1
    assert "configuration is not that of the golden record" in capsys.readouterr().out


def test_a_broken_installation_is_exit_code_3(suite, tmp_path, monkeypatch, capsys):
    def broken():
        raise BrokenEnvironmentError("PyTorch cannot be imported: OSError: libtorch.so")

    monkeypatch.setattr(measure, "machine", broken)
    junit = tmp_path / "check.xml"
    assert check(Asked(suite=suite[0], junit=str(junit))) == 3
    assert "goatbench: PyTorch cannot be imported" in capsys.readouterr().err and "libtorch.so" in junit.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--update-golden"], "--update-golden needs --reason"),
        (["--reason", "x"], "--reason belongs to it"),
        (["--update-golden", "--reason", " "], "--update-golden needs --reason"),
        (["--update-golden", "--reason", "x", "--junit", "x.xml"], "--update-golden compares nothing"),
        (["--only", "neddle"], "unknown job 'neddle'; did you mean 'needle'?"),
        (["--only", "needle/gaot"], "did you mean 'needle/goat'?"),
        (["--junit", "/nowhere/at/all/x.xml"], "--junit /nowhere/at/all/x.xml: there is no folder /nowhere/at/all"),
        (["--suite", "/nowhere/at/all.yaml"], "cannot read /nowhere/at/all.yaml"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and says in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2", "is not valid YAML"),
        (SUITE.replace("seeds: [0, 1]\n", "seeds: [0, 9]\n", 1), "golden_seeds leaves out some of seeds"),
        (SUITE.replace("[0, 1, 2, 3]", "[0, 1]"), "golden_seeds"),
        (SUITE + "more: 1\n", "more"),
        ("scale: smoke\nseeds: [0]\ngolden_seeds: [0, 1, 2]\ntasks: {}\n", "tasks"),
    ],
)
def test_a_suite_that_is_none_is_one_line(text, says, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"mine\.yaml is not") as caught:
        read_suite(path)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_cells_are_metrics_with_their_conditions():
    one = SimpleNamespace(metric="top1", conditions={"nominal": 512, "coords": "raw", "depth": 0.5})
    assert cell_of(one) == "top1 coords=raw depth=0.5 nominal=512"


def composed_goat(composer, *more):
    return composer().compose(["task=needle", "attention=goat", "scale=smoke", "retrain=true", *more])


def test_a_failed_run_is_the_jobs_failure(compose_once):
    composed = composed_goat(compose_once)
    error = SimpleNamespace(kind="ValueError", message="no")
    failed = measured_of(composed, {3: SimpleNamespace(status="failed", error=error)})
    assert failed.failure == "seed 3: failed: ValueError: no" and not failed.scores


def test_the_seed_is_no_part_of_what_is_compared(compose_once):
    runs = Runs()
    hashes = {measured_of(one, {0: runs(one)}).identity for one in (composed_goat(compose_once, f"seed={seed}") for seed in (0, 1))}
    other = composed_goat(compose_once, "training.epochs=2")
    assert len(hashes) == 1 and measured_of(other, {0: runs(other)}).identity not in hashes


def test_progress_of_the_runs_themselves_is_not_shown(suite, capsys):
    path, _ = suite
    check(Asked(suite=path))
    assert json.dumps(capsys.readouterr().err).count("run") <= 1  # one line of ours at the end
