"""What the sentences say about boards whose ranks are written down here."""

from __future__ import annotations

import pytest

from goatbench.records.board import Board, Cell, Column, Row
from goatbench.records.statistics import summarise
from goatbench.report.verdict import Level, Verdict, domain_verdict, listed, verdict

COLUMNS = (Column("1", "512 (1)"), Column("16", "8192 (16)↓"), Column("seeds", "seeds"))


def row(name: str, value: float, rank: str = "", seeds: int = 3, **marks) -> Row:
    summary = summarise([value] if seeds == 1 else [value - 0.01, value + 0.01, *[value] * (seeds - 2)])
    return Row(name, {"16": Cell(f"{value:.2f}±0.01", summary)}, rank, **marks)


def board(*rows: Row) -> Board:
    return Board("t@v1 · embedded · bits (bits) ↓", COLUMNS, rows)


def test_several_at_the_top_and_what_is_worse():
    rows = [row("rope", 1.10, "1-3"), row("alibi", 1.20, "1-3"), row("goat", 1.25, "1-4"), row("nope", 1.90, "3-4")]
    found = verdict(board(*rows), "context")
    assert found.sentence == "At context 8192 (16): rope, alibi and goat can each be best (3 seeds, means 1.10 to 1.25); nope cannot."
    assert (found.level, found.first, found.seeds) == (Level.PARTLY, ("rope", "alibi", "goat"), (3, 3))


def test_a_sole_winner():
    found = verdict(board(row("rope", 1.1, "1"), row("goat", 1.2, "2-3", seeds=4), row("nope", 1.3, "2-3")), "context")
    assert found.sentence == "At context 8192 (16): rope is best (1.10, 3 to 4 seeds); goat and nope are worse."
    assert found.level is Level.CLEAR


def test_a_sole_row_at_the_top_that_may_lie_lower_is_no_winner():
    """Each of the others has a better row for sure; rope's own tests do not tell it from goat."""
    found = verdict(board(row("rope", 1.1, "1-2"), row("goat", 1.2, "2-3"), row("nope", 1.3, "2-3")), "context")
    assert found.sentence == "At context 8192 (16): only rope can be best (1.10, 3 seeds); goat and nope cannot."
    assert found.level is Level.PARTLY


def test_places_that_do_not_follow_the_means():
    """goat's mean is better than nope's, but only goat's difference from rope is sure."""
    found = verdict(board(row("rope", 1.1, "1-2"), row("goat", 1.2, "2-3"), row("nope", 1.3, "1-3")), "context")
    assert found.sentence.endswith("rope and nope can each be best (3 seeds, means 1.10 to 1.30); goat cannot.")


def test_nothing_told_apart_is_open():
    assert verdict(board(row("rope", 1.1, "1-2"), row("goat", 1.2, "1-2")), "context").level is Level.OPEN
    one_is_not_last = board(row("rope", 1.1, "1-2"), row("goat", 1.2, "1-3"), row("nope", 1.3, "1-3"))
    assert verdict(one_is_not_last, "context").level is Level.PARTLY


def test_what_ranks_cannot_say_is_added():
    found = verdict(
        board(
            row("markov", 0.9, is_plain=False, is_reference=True),
            row("goat[x=1]", 1.0, is_plain=False),
            row("rope", 1.1, "1"),
            row("goat", 1.2, "2"),
            row("fire", 1.3, seeds=1),
            row("nope", 1.4, is_control=True),
            row("fox", 1.5, is_unlearned=True),
        ),
        "context",
    )
    assert found.sentence == (
        "At context 8192 (16): rope is best (1.10, 3 seeds); goat is worse. The best mean, 1.00, is that of goat[x=1], a variant: "
        "not ranked. Yardsticks without attention ahead of all: markov 0.90. Did not learn the task: fox. One seed, not ranked: fire."
    )


def test_one_seed_each_ranks_nothing():
    found = verdict(board(row("rope", 1.1, seeds=1), row("goat", 1.2, seeds=1)), "context")
    assert found.level is Level.UNRANKED
    assert found.sentence == "No row has two seeds, so nothing is ranked. First on one seed: rope (1.10)."


def test_other_reasons_why_nothing_is_ranked():
    none_learned = verdict(board(row("rope", 1.1, is_unlearned=True), row("goat", 1.2, is_unlearned=True)), "context")
    assert none_learned.sentence.startswith("No row with two seeds has learned the task, so nothing is ranked.")
    described = Board("t@v1 · embedded · entropy (nats) ↕", (Column("1", "512 (1)↕"),), (row("rope", 1.1), row("goat", 1.2)))
    assert verdict(described, "context").sentence.startswith("Neither end of this metric is better, so nothing is ranked.")


def ranked(first: str, rest: str = "", level: Level = Level.PARTLY) -> Verdict:
    return Verdict(level, "", tuple(first.split()), tuple(f"{first} {rest}".split()), (3, 3))


def test_a_domain_is_decided_by_all_its_ranked_tasks():
    pick, level, text = domain_verdict(
        {"a": ranked("rope alibi goat", "nope"), "b": ranked("alibi goat", "rope"), "c": Verdict(Level.UNRANKED, "")}
    )
    assert pick == "Candidates: alibi and goat" and level is Level.PARTLY
    assert text.startswith("Each can be best in all 2 ranked tasks. Best mean: alibi, on 1 of 2. Partly sure: no task has")


def test_a_sole_winner_of_all_tasks_is_a_pick():
    pick, level, text = domain_verdict({"a": ranked("rope", "goat", Level.CLEAR)})
    assert (pick, level) == ("Pick rope", Level.CLEAR)
    assert text == "The only attention that can be best in the one ranked task. Sure as far as the seeds go (3 seeds a row)."


def test_different_winners_are_no_pick():
    pick, level, text = domain_verdict({"a": ranked("rope", "goat", Level.CLEAR), "b": ranked("goat", "rope", Level.CLEAR)})
    assert pick == "No single pick: it depends on the task" and level is Level.PARTLY
    assert text.startswith("No attention can be best in all 2 ranked tasks; rope and goat: in 1.")
    assert "2 of 2 ranked tasks have a sole winner" in text


def test_an_attention_that_misses_a_task_is_no_pick():
    pick, _, _ = domain_verdict({"a": ranked("rope goat"), "b": ranked("rope", "alibi")})
    assert pick == "Pick rope"


def test_no_ranks_are_no_pick():
    assert domain_verdict({})[:2] == ("No pick yet", Level.UNRANKED)


@pytest.mark.parametrize(
    ("names", "text"),
    [("a", "a"), ("ab", "a and b"), ("abcdefghi", "a, b, c, d, e, f, g, h and i"), ("abcdefghij", "a, b, c, d, e, f, g, h and 2 more")],
)
def test_lists_are_short(names, text):
    assert listed(list(names)) == text
