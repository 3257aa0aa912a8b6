"""babilong: what the stories cannot give is said before training."""

from __future__ import annotations

import json

import pytest

from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.registry import tasks

ROW = {"input": "Mary went to the kitchen.", "question": "Where is Mary?", "target": "kitchen"}
REAL = ["data=babilong"]


@pytest.mark.parametrize(
    ("overrides", "row", "says"),
    [
        (REAL, ROW, None),
        (REAL, {**ROW, "target": "cellar"}, "1k.json, row 1: target 'cellar' is no answer of qa1"),
        ([*REAL, "data.questions=[qa2]"], ROW, "has no row of data.questions qa2"),
        (["task.multiples=[1,100000]"], None, "words in sentences .* are needed"),
    ],
)
def test_what_the_stories_cannot_give_is_known_before_training(tmp_path, overrides, row, says):
    if row is not None:
        (tmp_path / "qa1").mkdir()
        (tmp_path / "qa1" / "1k.json").write_text(json.dumps([row]))
        overrides = [*overrides, f"data.path={tmp_path}"]
    task, spec = tasks.get("babilong"), compose(["task=babilong", "scale=smoke", "attention=nope", *overrides]).spec
    data = task.data(spec)
    if says is None:
        task.check(spec, data)
        return
    with pytest.raises(UsageError, match=says):
        task.check(spec, data)


@pytest.mark.parametrize(("questions", "notes"), [("qa1,qa2,qa3,qa4,qa5", []), ("qa5,qa1", ["chance of these questions: accuracy 15.5 %"])])
def test_another_chance_than_the_cards_is_noted(questions, notes):
    wanted = [f"data.questions=[{questions}]", "data.num_test=2", "task.multiples=[1]"]
    task, spec = tasks.get("babilong"), compose(["task=babilong", "scale=smoke", "attention=nope", *wanted]).spec
    found = task.measure(spec, task.model(spec), task.data(spec), None).notes
    assert [note for note in found if "chance" in note] == notes  # (1/7 + 1/6) / 2
