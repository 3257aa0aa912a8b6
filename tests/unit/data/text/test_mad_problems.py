"""The six MAD tasks: what is to be predicted, worked out again sequence by sequence in plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from goatbench.data.philox import TESTS, uniforms
from goatbench.data.text import mad_problems as mad
from goatbench.data.text.mad_problems import COMPRESS, COPY, FIRST_KEY, FIRST_NOISE, INSERT, NUM_VALUES, PAD

PROBLEMS = (mad.RECALL, mad.FUZZY_RECALL, mad.NOISY_RECALL, mad.SELECTIVE_COPY, mad.COMPRESSION, mad.MEMORISATION)


def sequences(problem, length: int, n: int = 300, seed: int = 0) -> np.ndarray:
    count = (problem.numbers_per_token * length + problem.extra + 3) // 4 * 4
    found = problem.build(uniforms(seed, length, np.arange(n), count, TESTS), length, None)
    assert found.shape == (n, 2, length) and found.dtype == np.int64 and found.min() >= 0 and found.max() < problem.vocab_size
    return found


def whole(read: list[int], targets: list[int]) -> list[int]:
    """The tokens read, and the one behind them, which is always an answer."""
    assert targets[-1] < NUM_VALUES
    return [*read, targets[-1]]


def kind(token: int) -> str:
    if token < NUM_VALUES:
        return "value"
    return "pad" if token == PAD else "noise" if FIRST_NOISE <= token < FIRST_KEY else "key"


def pairs_of(tokens: list[int]) -> list[tuple[tuple[int, ...], list[int]]]:
    """(key, places of its value's tokens): a run of key tokens and the run of value tokens behind it."""
    found: list[tuple[tuple[int, ...], list[int]]] = []
    key: tuple[int, ...] = ()
    for place, token in enumerate(tokens):
        if kind(token) == "key":
            key = (*key, token) if kind(tokens[place - 1]) == "key" else (token,)
        elif kind(token) == "value" and kind(tokens[place - 1]) == "key":
            found.append((key, [place]))
        elif kind(token) == "value":
            found[-1][1].append(place)
    return found


@pytest.mark.parametrize("problem", [mad.RECALL, mad.FUZZY_RECALL, mad.NOISY_RECALL], ids=lambda problem: problem.name)
@pytest.mark.parametrize("length", [16, 63, 64])
def test_exactly_the_values_of_keys_seen_before_are_asked(problem, length):
    sizes = Counter()
    for read, targets in sequences(problem, length).tolist():
        tokens, seen, expected = whole(read, targets), {}, {}
        for key, places in pairs_of(tokens):
            value = [tokens[place] for place in places]
            if key in seen:
                assert seen[key] == value
                expected |= dict(zip(places, value, strict=True))
            seen[key] = value
            assert len(set(key)) == len(key) and len(set(value)) == len(value)
            sizes[len(key), len(value)] += 1
        assert {place + 1: token for place, token in enumerate(targets) if token < NUM_VALUES} == expected
        pads = [place for place, token in enumerate(tokens) if token == PAD]
        assert pads == list(range(len(pads)))  # in front only
    largest = 2 if problem is mad.FUZZY_RECALL else 1
    assert set(sizes) == {(k, v) for k in range(1, largest + 1) for v in range(1, largest + 1)}


def test_keys_and_values_of_recall_are_uniform_and_new_in_every_sequence():
    found = sequences(mad.RECALL, 63, 2000)
    keys, values = found[:, 0, 0::2] - FIRST_KEY, found[:, 0, 1::2]
    assert keys.min() == values.min() == 0 and keys.max() == values.max() == 7
    counts = np.bincount(keys.ravel(), minlength=8)
    assert np.abs(counts - keys.size / 8).max() < 5 * np.sqrt(keys.size / 8)
    first = np.bincount(values[:, 0], minlength=8)  # of the first pair: the later ones repeat
    assert np.abs(first - 250).max() < 5 * np.sqrt(250)
    assert len({tuple(row) for row in found[:, 0].tolist()}) == 2000
    assert sorted(Counter(found[:, 1, -1].tolist())) == list(range(8))  # 8 answers: the card's chance


def test_a_pair_in_five_is_noise():
    found = sequences(mad.NOISY_RECALL, 63, 1000)[:, 0, :-1]
    noise = (found >= FIRST_NOISE) & (found < FIRST_KEY)
    pairs = noise.reshape(1000, -1, 2)
    assert (pairs.all(2) == pairs.any(2)).all() and not pairs[:, 0].any()
    share, n = pairs.any(2)[:, 1:].mean(), 1000 * 30
    assert abs(share - 0.2) < 5 * np.sqrt(0.2 * 0.8 / n)
    assert set(found[noise].tolist()) == set(range(FIRST_NOISE, FIRST_KEY))


@pytest.mark.parametrize(("length", "size"), [(16, 1), (32, 2), (256, 16)])
def test_selective_copies_are_the_symbols_in_order_and_unread(length, size):
    for read, targets in sequences(mad.SELECTIVE_COPY, length).tolist():
        mark = read.index(COPY)
        symbols = [token for token in read[:mark] if token != PAD]
        assert len(symbols) == size and max(symbols) < NUM_VALUES and mark == length - size - 1
        assert read[mark + 1 :] == [PAD] * size and targets == [PAD] * (length - size) + symbols


def test_compression_asks_for_everything_at_its_own_place():
    for read, targets in sequences(mad.COMPRESSION, 9).tolist():
        assert read[-1] == COMPRESS and max(read[:-1]) < NUM_VALUES and targets[:-1] == read[:-1] and targets[-1] >= NUM_VALUES


def test_facts_are_the_same_for_all_seeds_and_three_to_a_value():
    known: dict[int, int] = {}
    for seed in (0, 1):
        for read, targets in sequences(mad.MEMORISATION, 32, 100, seed).tolist():
            assert read[1::2] == [INSERT] * 16 and targets[0::2] == [PAD] * 16
            for key, value in zip(read[0::2], targets[1::2], strict=True):
                assert known.setdefault(key, value) == value < NUM_VALUES
    assert sorted(known) == list(range(FIRST_KEY, FIRST_KEY + 48)) and set(Counter(known.values()).values()) == {3}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_length_from_the_smallest_on_can_be_built(problem):
    for length in range(problem.min_length, problem.min_length + 12):
        found = sequences(problem, length, 40)
        assert (found[:, 1] < NUM_VALUES).any(1).all()  # an answer in every sequence


def test_a_sequence_depends_on_seed_and_index_alone():
    for problem in PROBLEMS:
        count = (problem.numbers_per_token * 32 + problem.extra + 3) // 4 * 4
        some = problem.build(uniforms(3, 0, np.array([7, 2]), count, TESTS), 32, None)
        one = problem.build(uniforms(3, 0, np.array([2]), count, TESTS), 32, None)
        other = problem.build(uniforms(4, 0, np.array([2]), count, TESTS), 32, None)
        assert (some[1] == one[0]).all() and (one != other).any()
