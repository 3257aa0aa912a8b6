"""Multi-query associative recall: many keys with values at the start, each key asked for again later (arXiv 2312.04927, Zoology).

    k1 v1 k2 v2 k3 v3 k4 v4  _ k2 _ _ k1 _ _ _ k4 _ _ _ k3 _        read; at each key of the second part its value is to be predicted

Built as the published generator does without random filler: keys and values of vocabularies of their own, each at most once; every
pair is whole and is asked for exactly once; key i is asked for at slot g of the (L - 2 P) / 2 slots behind the P pairs with a weight
g^(0.01 - 1), slots being drawn one after the other without repetition. An answer is not read: the model goes on from a blank.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .problems import Problem, draw_distinct

NUM_VALUES = NUM_KEYS = 64
BLANK = NUM_VALUES + NUM_KEYS
VOCAB_SIZE = 136
PAIRS = (4, 8, 16, 32, 64)  # of a sequence, as many as fit
POWER = 0.01  # the published default: the slots' weights fall as g^(POWER - 1)
TOKENS_A_PAIR = 4  # two of the pair, two of its slot


def fitting(pairs: tuple[int, ...], length: int) -> list[int]:
    """The numbers of pairs that a sequence of `length` tokens has room for."""
    return [count for count in pairs if TOKENS_A_PAIR * count <= length]


def mqar(pairs: tuple[int, ...]) -> Problem:
    """Sequences with any of these numbers of pairs that fit, each as likely."""
    name = "mqar_" + "_".join(str(count) for count in pairs)
    least = TOKENS_A_PAIR * min(pairs)
    return Problem(
        name, build_mqar(pairs), NUM_VALUES, answer=None, scored=None, extra=4, min_length=least, num_scored=NUM_VALUES,
        vocab_size=VOCAB_SIZE, has_depth=False,
    )  # fmt: skip


def build_mqar(pairs: tuple[int, ...]) -> Callable[[np.ndarray, int, np.ndarray | None], np.ndarray]:
    def build(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
        counts = fitting(pairs, length)
        assert counts
        drawn = (numbers[:, -1] * len(counts)).astype(np.int64)
        found = np.empty((len(numbers), 2, length), np.int64)
        for i, count in enumerate(counts):
            found[drawn == i] = place_pairs(numbers[drawn == i], length, count)
        return found

    return build


def place_pairs(numbers: np.ndarray, length: int, count: int) -> np.ndarray:
    """int64 [n, 2, L]: what is read, and the values to be predicted (BLANK elsewhere)."""
    context = 2 * count
    num_slots = (length - context) // 2
    keys = NUM_VALUES + draw_distinct(numbers[:, :count], NUM_KEYS)[:, :count]
    values = draw_distinct(numbers[:, count:context], NUM_VALUES)[:, :count]
    # Successive draws without repetition, by weight, are the first arrivals of independent exponential waiting times.
    weights = np.arange(1, num_slots + 1) ** (POWER - 1)
    arrivals = -np.log1p(-numbers[:, context : context + num_slots]) / weights
    asked = context + 2 * np.argsort(arrivals, axis=1, kind="stable")[:, :count]
    found = np.full((len(numbers), 2, length), BLANK)
    found[:, 0, 0:context:2], found[:, 0, 1:context:2] = keys, values
    np.put_along_axis(found[:, 0], asked, keys, axis=1)
    np.put_along_axis(found[:, 1], asked, values, axis=1)
    return found


MQAR = mqar(PAIRS)
