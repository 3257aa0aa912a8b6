"""Places as intervals: labels worked by hand, what cannot be tested, and how often an interval is wrong."""

from __future__ import annotations

import random

from goatbench.records import ranking
from goatbench.records.leaderboard import build_boards
from goatbench.records.ranking import rank_rows


def scores(**rows) -> dict[str, dict[int, float]]:
    return {name: dict(enumerate(values)) for name, values in rows.items()}


def board(card, make_record, **rows):
    records = [
        make_record(name, seed, {"raw": {(512, 28): value}}, run=10 * i + seed)
        for i, (name, values) in enumerate(rows.items())
        for seed, value in enumerate(values)
    ]
    (found,) = build_boards(card, records)
    return found


def test_a_row_has_the_places_that_its_own_tests_leave_it(card, make_record):
    """By hand, points: second is 10, 11, 9 below first (t = 17.3, p = 0.0033, of two tests 0.0066); unsteady is 60, 30, 0 below first
    and 50, 19, -9 below second (p = 0.23 and 0.37). Nothing puts unsteady before second, whose mean is better, nor behind it."""
    found = board(card, make_record, first=(0.60, 0.62, 0.61), second=(0.50, 0.51, 0.52), unsteady=(0.0, 0.32, 0.61))
    assert [(row.name, row.rank) for row in found.rows] == [("first", "1-2"), ("second", "2-3"), ("unsteady", "1-3")]
    assert "not distinguishable from first, the best plain row: unsteady (-30.0, p = 0.23)" in found.notes
    assert "different from first: second (-10.0, p = 0.0066)" in found.notes
    assert not any("cannot be tested" in note for note in found.notes)


def test_equal_differences_are_not_tested_and_not_called_alike(card, make_record):
    """Right in every seed beside wrong in every seed: no spread, so no test. between is 50 points from both, 60, 50, 40 by seed: t = 8.66,
    p = 0.013 of two tests, of which one is not possible: 0.026."""
    found = board(card, make_record, right=(1.0, 1.0, 1.0), wrong=(0.0, 0.0, 0.0), between=(0.4, 0.5, 0.6))
    assert [(row.name, row.rank) for row in found.rows] == [("right", "1-2"), ("between", "2"), ("wrong", "2-3")]
    assert "not distinguishable from right, the best plain row: none" in found.notes
    assert "different from right: between (-50.0, p = 0.026)" in found.notes
    (said,) = [note for note in found.notes if "pairs of ranked rows" in note]
    assert said.startswith("1 of 3 pairs of ranked rows cannot be tested (the same difference in every seed,")
    assert "cannot be tested against right (the same difference in every seed): wrong (-100.0)" in found.notes
    assert not any("wrong" in note for note in found.notes if note.startswith(("not distinguishable", "different", "not tested")))


def test_variants_have_no_place_and_do_not_weaken_the_tests_of_the_rows():
    """p = 8.3e-4 for one test of one row, whatever else is looked at."""
    rows = scores(best=(0.60, 0.62, 0.61), far=(0.40, 0.41, 0.42), a=(0.1, 0.5, 0.3), b=(0.2, 0.1, 0.9))
    found = rank_rows(["best", "far"], ["a", "b"], rows)
    assert found.labels == {"best": "1", "far": "2"}
    assert [c.name for c in found.against_best] == ["far", "a", "b"] and round(found.against_best[0].p_adjusted, 5) == 0.00083


def test_rows_of_one_seed_have_no_place_and_are_named():
    found = rank_rows(["one", "best", "far"], [], scores(one=(0.9,), best=(0.60, 0.62, 0.61), far=(0.40, 0.41, 0.42)))
    assert found.labels == {"best": "1", "far": "2"} and (found.num_pairs, found.num_untested) == (1, 0)
    assert [(c.name, c.p_adjusted is None) for c in found.against_best] == [("far", False), ("one", True)]
    assert rank_rows(["one"], [], scores(one=(0.9,))).labels == {}


def test_an_interval_misses_the_place_of_its_row_in_at_most_one_of_twenty():
    """Four rows in truth equal: each may be first as well as last. 5 % of 500 boards are 25, with a standard deviation of 5."""
    draw = random.Random(0)
    names = ["a", "b", "c", "d"]
    missed = 0
    for _ in range(500):
        rows = {name: {seed: draw.gauss(0, 1) for seed in range(3)} for name in names}
        ordered = sorted(names, key=lambda name: -sum(rows[name].values()))
        missed += rank_rows(ordered, [], rows).labels["a"] != "1-4"
    assert 5 < missed < 40


def test_of_very_many_rows_each_is_tested_against_the_best_alone(monkeypatch):
    """Two clear groups of three: all pairs tell 1-3 from 4-6; against the best alone, what is worse is known to be second at best."""
    signs = ((1, -1, 1, -1), (1, 1, -1, -1), (1, -1, -1, 1))  # of equal means, and so are their differences
    made = scores(**{f"row{i}": [0.9 - 0.5 * (i > 2) + (1 + i) * 0.001 * sign for sign in signs[i % 3]] for i in range(6)})
    names = sorted(made, key=lambda name: -sum(made[name].values()))
    assert set(rank_rows(names, [], made).labels.values()) == {"1-3", "4-6"}
    monkeypatch.setattr(ranking, "MAX_ALL_PAIRS", 5)
    found = rank_rows(names, [], made)
    assert [found.labels[name] for name in names] == ["1-3", "1-6", "1-6", "2-6", "2-6", "2-6"]
    assert found.num_pairs == 5 and len(found.against_best) == 5
