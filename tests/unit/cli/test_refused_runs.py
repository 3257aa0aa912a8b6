"""A mechanism that a task refuses as it comes is a row with its reason; what the user chose wrong leaves nothing behind."""

from __future__ import annotations

import pytest

from goatbench.compose import compose
from goatbench.errors import RefusedError, UsageError
from goatbench.execute import execute
from goatbench.records.leaderboard import build_boards
from goatbench.records.store import iter_records
from goatbench.registry import tasks

REASON = "MultiToken has no rows of probabilities that one softmax makes: no attention statistics"


@pytest.fixture
def run(tmp_path):
    return lambda *chosen: execute(compose(["task=attention_stats_needle", "scale=smoke", f"runs_dir={tmp_path / 'runs'}", *chosen]))


def test_a_refusal_is_a_row_with_its_reason(run, tmp_path):
    with pytest.raises(RefusedError, match="no attention statistics"):  # the command line exits with 2, as for any mistake
        run("attention=mta", "seed=1")
    (record,) = iter_records(tmp_path / "runs", warnings := [])
    assert warnings == [] and (record.status, record.ending, record.error.message) == ("failed", "refused", REASON)
    assert record.data is None and record.measurements == []
    (board,) = build_boards(tasks.get("attention_stats_needle").card, [], [record])
    (row,) = board.rows
    assert row.name == "mta" and next(cell.text for cell in row.cells.values() if cell.text) == "refused"
    assert f"refused: mta seed 1: {REASON}" in board.notes


@pytest.mark.parametrize("chosen", ["attention.options={a: 1}", "attention.inner_options={heads: 3}"])
def test_a_mistake_in_the_command_leaves_nothing(run, tmp_path, chosen):
    with pytest.raises(UsageError) as caught:
        run("attention=mta", chosen)
    assert not isinstance(caught.value, RefusedError) and not (tmp_path / "runs").exists()
