"""The table at the end of a run: every metric, yardsticks beside the headline metric only, files and notes."""

from __future__ import annotations

from pathlib import Path

from goatbench.outcome import outcome_lines


def test_yardsticks_stand_beside_the_headline_metric_only(card, make_record):
    cells = {(224, 12): 0.7, (512, 28): 0.4}
    record = make_record(scores={"raw": cells}, nll={"raw": cells})
    beside = [m.model_copy(update={"value": 0.5, "conditions": {**m.conditions, "reference": "markov-2"}}) for m in record.measurements]
    record = record.model_copy(update={"measurements": [*record.measurements, *beside]})
    lines = outcome_lines(record, card, Path("runs/x/record.json"))
    shown = [line.split() for line in lines]
    assert shown[0][-4:] == ["12", "(224)", "28", "(512)"]
    assert [line[:2] for line in shown if line[0] == "top1"] == [["top1", "%"], ["top1", "%"]]
    assert [line[-2:] for line in shown if "markov-2" in line] == [["50.0", "50.0"]]
    assert sum(line[0] == "nll_nats" for line in shown) == 1


def test_notes_and_files_are_named_before_the_record(card, make_record):
    record = make_record(notes=["WARNING: too good"], artifacts=["split.tsv", "gc.svg"])
    lines = outcome_lines(record, card, Path("runs/x/record.json"))
    assert lines[-3:] == ["note: WARNING: too good", "files in runs/x: split.tsv, gc.svg", "record: runs/x/record.json"]
