"""Weights that one run trained and another takes."""

from __future__ import annotations

from goatbench.compose import compose
from goatbench.execute import execute
from goatbench.records import environment

SMALL = ["task=needle", "scale=smoke", "attention=nope", "task.multiples=[1]", "training.epochs=1", "data.num_train=64", "data.num_test=2"]


def test_costs_of_a_training_on_another_machine_are_not_this_one_s(tmp_path, monkeypatch):
    run = lambda depth: execute(compose([*SMALL, f"evaluation.depths=[{depth}]", f"runs_dir={tmp_path}"]))
    trained, same = run(0.5), run(0.25)
    monkeypatch.setattr(environment, "cpu_name", lambda: "Another CPU")
    elsewhere = run(0.75)
    cost = lambda record: {c.name: c.value for c in record.costs}.get("train_cpu_seconds")
    assert (trained.training.reused, same.training.reused, elsewhere.training.reused) == (False, True, True)
    assert cost(trained) == cost(same) > 0 and cost(elsewhere) is None and trained.environment["devices"] == 1
    assert any(note.startswith("trained on ") and "left out" in note for note in elsewhere.notes)
    assert not any("left out" in note for note in same.notes)
