"""The rehearsal of every row on every task: it really runs a pair, once, and tells what ends otherwise than the matrix says."""

from __future__ import annotations

import json

import pytest

from goatbench import rehearsal
from goatbench.errors import RefusedError
from goatbench.matrix import OK, UNDEFINED, Pairs
from goatbench.records.store import iter_records


def test_a_pair_is_trained_and_recorded_once(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "RUNS_DIR", str(tmp_path))
    pairs = Pairs()
    assert rehearsal.outcome(pairs, "rope", "mad_recall") == OK
    (record,) = iter_records(tmp_path, [])
    assert (record.row.attention, record.task.name, record.scale, record.row.variant) == ("rope", "mad_recall", "smoke", {})
    assert record.budget is not None and record.measurements

    def again(composed):
        raise AssertionError("it is done")

    monkeypatch.setattr(rehearsal, "execute", again)
    assert rehearsal.outcome(pairs, "rope", "mad_recall") == OK


class Said(Pairs):
    """Two rows on two tasks: ok, ok with a limit, refused, not defined."""

    def __init__(self) -> None:
        self.rows, self.tasks = ["a", "b"], ["s", "t"]
        self.said = {("a", "s"): OK, ("a", "t"): "ok positions beyond the end", ("b", "s"): "it cannot", ("b", "t"): UNDEFINED}

    def outcome(self, row, task):
        return self.said[row, task]


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ({}, []),
        ({("a", "t"): "failed: it broke"}, ["a on t: failed: it broke (the matrix: ok positions beyond the end)"]),
        ({("b", "s"): OK}, ["b on s: ok (the matrix: it cannot)"]),
    ],
)
def test_what_ends_otherwise_is_told(found, lines, monkeypatch, capsys):
    ran = {("a", "s"): OK, ("a", "t"): OK, ("b", "s"): "it cannot"} | found
    monkeypatch.setattr(rehearsal, "outcome", lambda pairs, row, task: ran.pop((row, task)))
    assert list(rehearsal.differences(Said(), ["a", "b"])) == lines and not ran


@pytest.mark.parametrize("broken", [False, True])
def test_a_record_counts_the_pairs_and_names_what_ends_otherwise(tmp_path, monkeypatch, capsys, broken):
    monkeypatch.setattr(rehearsal, "Pairs", Said)
    ends = {("a", "s"): "failed: it broke" if broken else OK, ("a", "t"): OK, ("b", "s"): "it cannot"}
    monkeypatch.setattr(rehearsal, "outcome", lambda pairs, row, task: ends[row, task])
    out = tmp_path / "rehearsal.json"
    assert rehearsal.main(["--out", str(out)]) == broken
    record = json.loads(out.read_text())
    assert record["matrix"] == {"rows": 2, "tasks": 2, "ok": 2, "refused": 1, "not defined": 1}
    assert record["differences"] == (["a on s: failed: it broke (the matrix: ok)"] if broken else [])
    capsys.readouterr()
    assert rehearsal.main(["--out", str(out)]) == 2 and "the file exists" in capsys.readouterr().err


def test_a_row_that_nobody_has_is_one_line(capsys):
    assert rehearsal.main(["ropee"]) == 2
    assert "did you mean 'rope'?" in capsys.readouterr().err


def test_a_refusal_is_an_outcome(tmp_path, monkeypatch):
    def refuse(composed):
        raise RefusedError("it cannot")

    monkeypatch.setattr(rehearsal, "RUNS_DIR", str(tmp_path))
    monkeypatch.setattr(rehearsal, "execute", refuse)
    assert rehearsal.outcome(Pairs(), "rope", "mad_recall") == "it cannot"
