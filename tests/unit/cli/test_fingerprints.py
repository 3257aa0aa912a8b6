"""Task versions: what a task rests on is known file by file, and a change without a version, or a version without a change of the file,
is one line."""

from __future__ import annotations

import copy

import pytest

from goatbench import fingerprints
from goatbench.fingerprints import closure, code_hash, compute, hashes_of, outdated, read, unexplained


@pytest.fixture(scope="module")
def now():
    return compute()


def test_no_task_changed_without_a_version(now):
    written = read()
    found = [*unexplained(written, now), *outdated(written, now)]
    assert not found, "\n" + "\n".join(found)


def changed(now, path):
    """The fingerprints of a tree in which this file has another hash."""
    other = copy.deepcopy(now)
    other["files"][path] = "0" * 16
    return other


OTHER_VIT = {"vit_resolution", "vit_tuning", "attention_stats_vision"}


@pytest.mark.parametrize(
    ("path", "moves"),
    [
        ("tasks/genome_nll.py", {"genome_nll", "genome_tuning"}),
        ("configs/task/vit_res384.yaml", {"vit_res384"}),
        ("data/embedded/fashion_mnist.xz", {f"vit_res{n}" for n in (224, 288, 320, 384, 448, 512)} | OTHER_VIT),
    ],
)
def test_a_changed_file_names_the_tasks_that_rest_on_it(now, path, moves):
    found = unexplained(now, changed(now, path))
    assert {line.split(":")[0].removeprefix("task ") for line in found} >= moves
    assert all(path in line and "\n" not in line for line in found)
    others = {line.split(":")[0].removeprefix("task ") for line in found} - moves
    assert not others - {"attention_stats", "attention_stats_genome"}, others


def test_the_line_says_what_to_do(now):
    (line,) = unexplained(now, changed(now, "configs/task/vit_res384.yaml"))
    assert line == (
        "task vit_res384: its code changed but its version did not (configs/task/vit_res384.yaml): bump the version in "
        "tasks/vit_resolution.py and run `python -m goatbench.fingerprints` or, if the change cannot move a score, "
        "run `python -m goatbench.fingerprints --accept REASON`"
    )


def test_a_bumped_version_explains_a_change_and_asks_for_its_fingerprint(now):
    other = changed(now, "configs/task/vit_res384.yaml")
    other["tasks"]["vit_res384"]["version"] += 1
    assert unexplained(now, other) == []
    assert outdated(now, other) == ["task vit_res384: version 2 has no fingerprint yet: run `python -m goatbench.fingerprints`"]
    assert "versions only grow" in unexplained(other, now)[0]


def test_new_and_gone_tasks(now):
    fewer = copy.deepcopy(now)
    del fewer["tasks"]["needle"]
    assert "has no fingerprint yet" in outdated(fewer, now)[0] and "it is gone" in outdated(now, fewer)[0]
    card = copy.deepcopy(now)
    card["tasks"]["needle"]["card"] = "0" * 16
    assert "(card)" in unexplained(now, card)[0]


def test_each_task_rests_on_its_own_parts():
    genome, vision, stories = hashes_of("genome_nll"), hashes_of("vit_res512"), hashes_of("babilong")
    assert {"tasks/genome_nll.py", "tasks/causal.py", "metrics/markov.py", "data/genome/windows.py", "data/genome/source.py"} <= set(genome)
    assert {"training/evaluate_lm.py", "training/optim.py", "data/genome/embedded/genome.packed", "configs/data/fasta.yaml"} <= set(genome)
    assert {"training/evaluate.py", "metrics/classification.py", "configs/evaluation/deit3.yaml"} <= set(vision)
    assert {"data/stories/facts.py", "data/text/embedded/sotu.xz"} <= set(stories)
    for files in (genome, vision, stories):
        assert not [path for path in files if path.startswith(("attention/", "models/", "records/")) or path == "training/memory.py"]
    assert "data/genome/windows.py" not in vision and "configs/trainer/cpu.yaml" not in genome and "data/fashion_mnist.py" not in genome


def test_imports_inside_functions_count_and_those_for_type_checkers_do_not():
    assert "goatbench.training.evaluate_lm" in closure("goatbench.tasks.causal")  # inside a function only
    assert "goatbench.tasks.causal" in closure("goatbench.tasks.genome_nll")  # from .causal import
    assert "goatbench.data.genome.module" not in closure("goatbench.metrics.markov")


SOURCE = '''
"""What it computes."""
def f(x, y=1):
    """Doc."""
    return f"{x!r:>4}" + "a" * y  # why
'''


@pytest.mark.parametrize(
    "same",
    [
        SOURCE.replace("Doc.", "Another text."),
        SOURCE.replace("  # why", ""),
        SOURCE.replace("x, y=1", "x,\n    y = 1,\n"),
        SOURCE.replace('"a"', "'a'"),
        "# A comment.\n" + SOURCE.replace('"""What it computes."""', ""),
    ],
)
def test_prose_and_formatting_do_not_count(same):
    assert code_hash(same) == code_hash(SOURCE)


@pytest.mark.parametrize("other", [SOURCE.replace("y=1", "y=2"), SOURCE.replace('"a"', '"b"'), SOURCE.replace(">4", ">5")])
def test_whatever_else_counts(other):
    assert code_hash(other) != code_hash(SOURCE)
    assert code_hash("x = None") != code_hash("x = []") != code_hash("x = 0") != code_hash("x = False")


def test_a_change_needs_a_version_or_a_reason(now, tmp_path, monkeypatch, capsys):
    path = tmp_path / "fingerprints.json"
    monkeypatch.setattr(fingerprints, "FILE", path)
    monkeypatch.setattr(fingerprints, "compute", lambda: now)
    assert fingerprints.main([]) == 0 and read() == now | {"accepted": []}
    fingerprints.write(changed(now, "configs/task/vit_res384.yaml"), [])
    before = path.read_bytes()
    assert fingerprints.main([]) == 1 and "task vit_res384" in capsys.readouterr().out and path.read_bytes() == before
    assert fingerprints.main(["--accept", "a comment became a value"]) == 0
    assert read() == now | {"accepted": ["a comment became a value"]}
    with pytest.raises(SystemExit):
        fingerprints.main(["--accept", " "])
