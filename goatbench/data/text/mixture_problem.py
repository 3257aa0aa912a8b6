"""Copy mixture: each token is a copy of the first one, a copy of the one before it, or noise (arXiv 2601.15380, figure 1).

Where a token comes from is drawn by place alone, so the best attention is a prior: the same rows for every sequence. All that is
best possible is known in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .problems import NUM_SYMBOLS, Problem

COPY_FIRST, COPY_PREVIOUS = 0.5, 0.3  # of every token but the first; ours, the paper gives no numbers
NOISE = 1 - COPY_FIRST - COPY_PREVIOUS  # a symbol drawn anew


def build_mixture(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """int64 [n, L + 1]."""
    found = np.empty((len(numbers), length + 1), np.int64)
    found[:, 0] = (numbers[:, 0] * NUM_SYMBOLS).astype(np.int64)
    for t in range(1, length + 1):
        number = numbers[:, t]
        noise = ((number - COPY_FIRST - COPY_PREVIOUS) / NOISE * NUM_SYMBOLS).astype(np.int64)
        copied = np.where(number < COPY_FIRST, found[:, 0], found[:, t - 1])
        found[:, t] = np.where(number < COPY_FIRST + COPY_PREVIOUS, copied, noise)
    return found


def true_rows(length: int) -> np.ndarray:
    """float64 [L, L]: where the token behind i comes from, as probabilities of the keys j <= i. Noise comes from no key: its share is
    spread over all of them alike, as by a row of attention without preference."""
    rows = np.tril(np.ones((length, length))) * NOISE / np.arange(1, length + 1)[:, None]
    rows[:, 0] += COPY_FIRST
    rows[np.arange(length), np.arange(length)] += COPY_PREVIOUS
    return rows


@dataclass(frozen=True, slots=True)
class Best:
    """What the best predictor of sequences of L tokens reaches on average, knowing the first and the latest token."""

    nll_nats: float
    accuracy: float


def best_possible(length: int) -> Best:
    """The latest token equals the first one with a probability that follows a recursion: from 1 on, m' = first + previous m + noise / V."""
    other = NOISE / NUM_SYMBOLS
    equal, nll, accuracy = 1.0, 0.0, 0.0
    for _ in range(length):
        same, differ = [COPY_FIRST + COPY_PREVIOUS + other], [COPY_FIRST + other, COPY_PREVIOUS + other]
        for share, special in ((equal, same), (1 - equal, differ)):
            probabilities = special + [other] * (NUM_SYMBOLS - len(special))
            nll -= share * sum(p * math.log(p) for p in probabilities)
            accuracy += share * max(probabilities)
        equal = COPY_FIRST + COPY_PREVIOUS * equal + other
    return Best(nll / length, accuracy / length)


COPY_MIXTURE = Problem(
    "copy_mixture", build_mixture, NUM_SYMBOLS, answer=None, scored=None, extra=4, min_length=2, vocab_size=NUM_SYMBOLS, has_depth=False
)
