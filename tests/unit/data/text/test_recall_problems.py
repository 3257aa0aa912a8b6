"""Multi-query associative recall: every sequence checked in plain Python, and the law of the slots."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from goatbench.data.philox import TESTS, uniforms
from goatbench.data.text.problems import draw_distinct
from goatbench.data.text.recall_problems import BLANK, MQAR, NUM_VALUES, fitting, mqar


def sequences(problem, length: int, n: int, seed: int = 0) -> np.ndarray:
    count = (problem.numbers_per_token * length + problem.extra + 3) // 4 * 4
    found = problem.build(uniforms(seed, length, np.arange(n), count, TESTS), length, None)
    assert found.shape == (n, 2, length) and found.dtype == np.int64 and found.min() >= 0 and found.max() < problem.vocab_size
    return found


@pytest.mark.parametrize(("count", "length"), [(4, 16), (4, 17), (8, 64), (16, 64), (64, 256)])
def test_every_pair_is_whole_and_asked_for_once(count, length):
    for read, targets in sequences(mqar((count,)), length, 200).tolist():
        keys, values = read[: 2 * count : 2], read[1 : 2 * count : 2]
        assert len(set(keys)) == len(set(values)) == count
        assert all(NUM_VALUES <= key < BLANK for key in keys) and max(values) < NUM_VALUES
        asked = {place: token for place, token in enumerate(read) if place >= 2 * count and token != BLANK}
        assert sorted(asked.values()) == sorted(keys) and all(place % 2 == 0 for place in asked)
        answers = {place: token for place, token in enumerate(targets) if token != BLANK}
        pairs = dict(zip(keys, values, strict=True))
        assert answers == {place: pairs[key] for place, key in asked.items()}  # and the value itself is not read
        assert not set(read[2 * count :]) & set(values)


def test_the_first_pair_is_asked_for_by_the_power_law():
    """Its slot is the first of the draws: slot g of S with probability g^-0.99 / sum, by the published construction."""
    n, count, length = 20_000, 4, 40
    found = sequences(mqar((count,)), length, n)
    slots = ((found[:, 0, 2 * count :] == found[:, 0, :1]).argmax(1)) // 2
    num_slots = (length - 2 * count) // 2
    expected = np.arange(1, num_slots + 1) ** -0.99
    expected = n * expected / expected.sum()
    counts = np.bincount(slots, minlength=num_slots)
    assert len(counts) == num_slots
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_the_second_pair_takes_what_the_first_left():
    """P(second at slot 1) = sum over g > 1 of p_g p_1 / (1 - p_g): drawn without repetition."""
    n, count, length = 20_000, 4, 40
    found = sequences(mqar((count,)), length, n, seed=1)
    slots = ((found[:, 0, 2 * count :] == found[:, 0, 2:3]).argmax(1)) // 2
    p = np.arange(1, 17) ** -0.99
    p /= p.sum()
    expected = n * (p[1:] * p[0] / (1 - p[1:])).sum()
    assert abs((slots == 0).sum() - expected) < 5 * np.sqrt(expected)


def test_training_mixes_the_numbers_that_fit():
    assert fitting((4, 8, 16, 32, 64), 64) == [4, 8, 16] and fitting((4, 8, 16, 32, 64), 255) == [4, 8, 16, 32]
    found = sequences(MQAR, 64, 3000)
    counts = Counter((found[:, 1] != BLANK).sum(1).tolist())
    assert set(counts) == {4, 8, 16} and max(abs(count - 1000) for count in counts.values()) < 5 * np.sqrt(1000 * 2 / 3)


def test_distinct_draws_are_permutations_and_uniform():
    drawn = draw_distinct(np.random.default_rng(0).random((6000, 2)), 4)
    assert (np.sort(drawn, axis=1) == np.arange(4)).all()
    counts = Counter(map(tuple, drawn[:, :2].tolist()))
    assert len(counts) == 12 and max(abs(count - 500) for count in counts.values()) < 5 * np.sqrt(500)
