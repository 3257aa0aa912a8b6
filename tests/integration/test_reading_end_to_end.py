"""lambada and babilong at smoke scale, in this process: records, shared training, real files, limits, mistakes."""

from __future__ import annotations

import json
import math

import pytest

from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.execute import execute
from goatbench.records.leaderboard import build_boards
from goatbench.tasks.babilong import BABILONG

SMALL = ["scale=smoke"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reading")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOATBENCH_CACHE", str(folder / "cache"))
        yield lambda *overrides: execute(compose([*overrides, *SMALL, f"runs_dir={folder / 'runs'}"]))


@pytest.fixture(scope="module")
def told(run):
    return run("task=babilong", "attention=goat")


def cells(record, metric, **conditions):
    """multiple -> measurement, yardsticks apart."""
    wanted = {"reference": None, **conditions}
    chosen = [m for m in record.measurements if m.metric == metric and all(m.conditions.get(k) == v for k, v in wanted.items())]
    return {m.conditions["multiple"]: m for m in chosen}


def test_lambada_shares_the_training_of_lm_length(run):
    assert not run("task=lm_length", "attention=rope", "task.multiples=[1]", "data.num_train=32").training.reused
    record = run("task=lambada", "attention=rope", "task.multiples=[1,4]", "data.num_train=32")
    assert record.status == "ok" and record.training.reused
    for multiple in (1, 4):
        whole, last, nats, ppl = (cells(record, m)[multiple] for m in ("accuracy", "last_token_accuracy", "nll_nats", "perplexity"))
        assert whole.conditions["context"] == 64 * multiple and whole.n == last.n == nats.n == 8
        assert 0 <= whole.value <= last.value <= 1 and whole.stderr > 0
        assert ppl.value == pytest.approx(math.exp(nats.value), rel=1e-12) and nats.value > 5 * 3  # 5 bytes or more, little learned


def test_real_passages_are_never_cut(run, tmp_path):
    path = tmp_path / "l.jsonl"
    texts = ["We saw the ship and sailed the ship", "Yes", "x" * 60 + " a ship"]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    plain = run("task=lambada", "attention=rope", "data.num_train=32")
    record = run("task=lambada", "attention=rope", "data.num_train=32", f"data.lambada={path}")
    assert record.status == "ok" and record.training.reused and cells(record, "accuracy")[1].n == 1
    assert record.notes == [
        "1 of 2 passages are longer than 64 tokens and left out, none is cut",
        "1 texts of the file have no last word and are left out",
    ]
    assert record.data.fingerprint != plain.data.fingerprint and record.protocol["passages"] == "file"
    assert str(tmp_path) not in record.model_dump_json()
    path.write_text("x" * 60 + " a ship")
    with pytest.raises(UsageError, match=r"none of 1 passages fits into 64 tokens .* 67"):
        run("task=lambada", "attention=rope", f"data.lambada={path.rename(tmp_path / 'l.txt')}")


def test_all_kinds_of_stories_at_every_length(told):
    assert told.status == "ok", told.error
    every = cells(told, "accuracy", qa="all")
    assert list(every) == [1, 2, 4, 8, 16] and [m.conditions["length"] for m in every.values()] == [48, 96, 192, 384, 768]
    for multiple, measurement in every.items():
        kinds = [cells(told, "accuracy", qa=f"qa{i}")[multiple] for i in range(1, 6)]
        assert [m.n for m in kinds] == [4] * 5 and measurement.n == 20
        assert measurement.value == pytest.approx(sum(m.value for m in kinds) / 5)
    assert any("not learned" in note for note in told.notes)


def test_yardsticks_of_stories(told):
    chance = cells(told, "accuracy", qa="all", reference="chance")[1].value
    assert chance == pytest.approx((4 / 6 + 1 / 7) / 5)
    assert cells(told, "accuracy", qa="qa5", reference="chance-qa5")[16].value == pytest.approx(1 / 7)
    last = cells(told, "accuracy", qa="all", reference="last-label")
    assert 0 < last[1].value < 1 and last[1].value == last[16].value  # the same facts at every length


def test_what_did_not_learn_is_not_ranked(told):
    (board,) = build_boards(BABILONG.card, [], [told])
    rows = {row.name: row for row in board.rows}
    assert rows["goat"].is_unlearned and rows["goat"].rank == "" and rows["goat[qa=qa1]"].is_unlearned
    assert rows["chance"].cells["1"].text == "16.2" and rows["chance-qa5"].cells["1"].text == "14.3"  # by hand, in percent
    assert all(rows[name].is_reference for name in ("chance", "last-label", "last-label-qa3"))


def test_the_real_data_set_from_a_folder(run, tmp_path):
    for length, count in (("0k", 3), ("1k", 2)):
        path = tmp_path / "data" / "qa1" / f"{length}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "Mary travelled to the office. " + "It was a long day in the town. " * (10 if length == "1k" else 0)
        path.write_text(json.dumps([{"input": text, "question": "Where is Mary? ", "target": "office"}] * count))
    record = run("task=babilong", "attention=rope", "data=babilong", f"data.path={tmp_path}")
    assert record.status == "ok", record.error
    every = cells(record, "accuracy", qa="all")
    assert {multiple: (m.n, m.conditions["length"]) for multiple, m in every.items()} == {"0k": (3, 12), "1k": (2, 102)}
    assert set(cells(record, "accuracy", qa="qa1")) == {"0k", "1k"} and not cells(record, "accuracy", qa="qa2")
    assert "BABILong" in record.data.source and str(tmp_path) not in record.model_dump_json()


@pytest.mark.parametrize("task", ["lambada", "babilong"])
def test_a_table_of_positions_ends_where_it_ends(run, task):
    record = run(f"task={task}", "attention=learned_absolute", "task.multiples=[1,2]")
    assert record.status == "ok", record.error
    measured = [m for m in record.measurements if m.metric == "accuracy" and "reference" not in m.conditions]
    assert {m.conditions["multiple"] for m in measured} == {1, 2}
    assert all((m.value is not None) == (m.conditions["multiple"] == 1) for m in measured)
    assert all("no learned entry" in m.reason for m in measured if m.value is None)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["task=lambada", "data.lambada=nowhere.jsonl"], "nowhere.jsonl"),
        (["task=lambada", "evaluation.num_passages=1000000"], "num_passages=1000000"),
        (["task=babilong", "data=babilong"], "data=babilong needs a folder"),
        (["task=babilong", "data.path=x"], "data=babilong data.path=PATH"),
        (["task=babilong", "model.seq_len=32"], "takes 45 tokens"),
        (["task=babilong", "model=decoder_toy"], "vocab_size 5 above"),
        (["task=babilong", "data.questions=[qa6]"], "qa6"),
        (["task=babilong", "data.questions=[qa1,qa1]"], "twice"),
        (["task=babilong", "data.text=shakespear"], "shakespear"),
        (["task=babilong", "training.batch_size=1000"], "batch_size"),
    ],
)
def test_mistakes_are_one_line(run, overrides, says):
    with pytest.raises(UsageError) as raised:
        run(*overrides)
    assert says in str(raised.value) and "\n" not in str(raised.value)
