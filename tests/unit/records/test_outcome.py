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


def test_accuracy_stands_beside_its_yardsticks_where_the_record_has_them(card, make_record):
    """30 % of next bases looks like a bug until one sees that always the same base is right in 25 %."""
    renamed = [m.model_copy(update={"name": "accuracy"}) if m.name == "nll_nats" else m for m in card.metrics]
    card = card.model_copy(update={"metrics": tuple(renamed)})
    record = make_record(scores={"raw": {(224, 12): 0.7}}, nll={"raw": {(224, 12): 0.3}})
    own = [m.model_copy(update={"metric": "accuracy"}) if m.metric == "nll_nats" else m for m in record.measurements]
    values = {("uniform", "top1"): 0.5, ("uniform", "accuracy"): 0.25, ("markov-2", "top1"): 0.6, ("markov-2", "accuracy"): None}
    beside = [
        m.model_copy(update={"value": value, "reason": None if value else "no", "conditions": {**m.conditions, "reference": name}})
        for (name, metric), value in values.items() for m in own if m.metric == metric
    ]  # fmt: skip
    lines = outcome_lines(record.model_copy(update={"measurements": [*own, *beside]}), card, Path("runs/x/record.json"))
    shown = [line.split() for line in lines if line.startswith("accuracy")]
    assert len(shown) == 2 and "uniform" not in shown[0] and "uniform" in shown[1] and "0.2" in shown[1][-1]


def test_notes_and_files_are_named_before_the_record(card, make_record):
    record = make_record(notes=["WARNING: too good"], artifacts=["split.tsv", "gc.svg"])
    lines = outcome_lines(record, card, Path("runs/x/record.json"))
    assert lines[-3:] == ["note: WARNING: too good", "files in runs/x: split.tsv, gc.svg", "record: runs/x/record.json"]
