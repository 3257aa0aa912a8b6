"""The table across tasks: ranks, gains and who has none, worked by hand."""

from __future__ import annotations

import pytest

from goatbench.errors import UsageError
from goatbench.records.board import to_text
from goatbench.records.overall import overall_boards

FIRST = {"goat": (0.6, 0.62), "rope": (0.5, 0.5), "alibi": (0.4, 0.42), "nope": (0.9, 0.9)}  # top1: higher is better; nope is a control
SECOND = {"goat": (2.2, 2.2), "rope": (2.0, 2.0), "alibi": (1.0, 1.0), "fox": (0.1, 0.1)}  # nll: lower is better


@pytest.fixture
def cards(card):
    second = {"name": "toy_nll", "domain": "text", "primary_metric": "nll_nats"}
    return [card, card.model_copy(update=second), card.model_copy(update={"name": "toy_tuning"})]


@pytest.fixture
def records(make_record):
    made = [
        make_record(name, seed, {"raw": {(512, 28): value}}, run=10 * i + seed)
        for i, (name, values) in enumerate(FIRST.items())
        for seed, value in enumerate(values)
    ]
    second, tuning = ({"name": name, "version": 2, "card_hash": "0123456789abcdef"} for name in ("toy_nll", "toy_tuning"))
    for i, (name, values) in enumerate(SECOND.items()):
        for seed, value in enumerate(values):
            made.append(make_record(name, seed, {}, nll={"raw": {(512, 28): value}}, run=100 + 10 * i + seed, task=second))
    return [*made, make_record("rope", 0, {"raw": {(512, 28): 0.1}}, run=200, task=tuning)]


def test_mean_rank_and_gain_of_rows_that_have_every_task(cards, records):
    """Ranks goat 1 and 3, rope 2 and 2, alibi 3 and 1: all 2. Gains over rope: goat .11 / .61 and -.2 / 2.2, mean .0447;
    alibi -.09 / .5 and +1 / 2, mean .16. fox misses a task; nope is a control of both."""
    (board,) = overall_boards(cards, records, [], "embedded")
    cells = {row.name: row.cells for row in board.rows}
    assert {name: found["rank"].number for name, found in cells.items() if "rank" in found} == {"alibi": 2.0, "goat": 2.0, "rope": 2.0}
    assert cells["goat"]["gain"].number == pytest.approx((0.11 / 0.61 - 0.2 / 2.2) / 2)
    assert cells["alibi"]["gain"].number == pytest.approx(0.16)
    assert cells["rope"]["gain"].number == 0.0 and next(row for row in board.rows if row.name == "rope").is_baseline
    assert "rank" not in cells["fox"] and cells["fox"]["tasks"].text == "1/2" and "nope" not in cells
    assert board.title == "overall · all domains · embedded · 2 tasks"  # tuning is left out


def test_a_terminal_shows_no_column_of_ranks_that_no_row_has(cards, records):
    (board,) = overall_boards(cards, records, [], "embedded")
    heads = to_text(board, width=100).splitlines()[1]
    assert heads.startswith("row ") and "mean rank" in heads


def test_the_bootstrap_spans_what_the_seeds_can_give(cards, records):
    """Only goat's and alibi's first task vary: goat .6 to .62 over .5 gives gains .1 / .6 to .12 / .62."""
    (board,) = overall_boards(cards, records, [], "embedded")
    goat = next(row for row in board.rows if row.name == "goat")
    ends = (0.1 / 0.6 - 0.2 / 2.2) / 2, (0.12 / 0.62 - 0.2 / 2.2) / 2
    assert goat.cells["gain"].interval_method == "95 % percentile bootstrap over seeds"
    assert goat.cells["gain"].interval == pytest.approx(ends) and goat.cells["rank"].interval == (2.0, 2.0)
    assert overall_boards(cards, records, [], "embedded") == [board]  # the same draws each time


def test_another_baseline_and_one_that_is_missing(cards, records):
    (board,) = overall_boards(cards, records, [], "embedded", against="goat")
    rope = next(row for row in board.rows if row.name == "rope")
    assert rope.cells["gain"].number == pytest.approx(((0.5 - 0.61) / 0.61 + 0.2 / 2.2) / 2)
    (board,) = overall_boards(cards, records, [], "embedded", against="fox")
    assert "gain" not in {column.key for column in board.columns} and "no gain: the baseline has no result in toy_ladder" in board.notes
    with pytest.raises(UsageError, match="no task has this row"):
        overall_boards(cards, records, [], "embedded", against="gaot")


def test_a_domain_with_two_tasks_has_a_board_of_its_own(cards, records, make_record):
    third = cards[1].model_copy(update={"name": "toy_third"})
    task = {"name": "toy_third", "version": 2, "card_hash": "0123456789abcdef"}
    seeds = {"rope": (0, 1), "fox": (2, 3), "goat": (0,)}
    more = [
        make_record(name, seed, {}, nll={"raw": {(512, 28): 1.0}}, run=300 + 10 * i + seed, task=task)
        for i, name in enumerate(seeds)
        for seed in seeds[name]
    ]
    (text,) = overall_boards([*cards, third], [*records, *more], [], "embedded")  # only rope has all three: no board of all domains
    assert text.title == "overall · text · embedded · 2 tasks"
    cells = {row.name: row.cells for row in text.rows}
    assert {name for name, found in cells.items() if "rank" in found} == {"rope", "fox"}
    assert cells["goat"]["tasks"].text == "1/2"  # one seed in the third task is ranked nowhere
    assert cells["rope"]["rank"].interval is None  # no common seed in the third task: nothing to draw from


def test_what_is_no_performance_of_anything_trained_is_left_out(cards, records):
    (board,) = overall_boards([cards[0], cards[1].model_copy(update={"is_overall": False})], records, [], "embedded")
    assert board.title == "overall · vision · embedded · 1 task"


def test_nothing_to_show_is_an_error(cards, records):
    with pytest.raises(UsageError, match="no task has ranked results at scale paper"):
        overall_boards(cards, records, [], "paper")


def test_one_row_alone_has_no_rank_and_a_baseline_near_zero_no_power(cards, records, make_record):
    few = [record for record in records if record.row.attention in ("goat", "alibi") or record.task.name != "toy_nll"]
    few = [record for record in few if record.row.attention != "alibi" or record.task.name == "toy_nll"]
    (board,) = overall_boards(cards, few, [], "embedded", against="goat")
    assert not any("rank" in row.cells or "gain" in row.cells for row in board.rows)
    assert "only goat has a result in every task, and a rank takes two: nothing is aggregated" in board.notes
    faint = [record for record in records if (record.row.attention, record.task.name) != ("rope", "toy_ladder")]
    faint += [make_record("rope", seed, {"raw": {(512, 28): 0.001}}, run=300 + seed) for seed in (0, 1)]
    (board,) = overall_boards(cards, faint, [], "embedded")
    assert all(abs(row.cells["gain"].number) <= 1 for row in board.rows if "gain" in row.cells)
