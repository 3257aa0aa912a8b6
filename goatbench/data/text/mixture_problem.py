"""Copy mixture: at each place the first token is to be told, or the one before the latest, or noise (after arXiv 2601.15380, figure 1).

Which of them is drawn by place alone, so the best attention is a prior: the same rows for every sequence. What is read is random and
tells nothing else. In a plain language model of such copies the token before the next one is the latest, which the residual stream
carries past attention, and the first one is the most frequent: neither would need a prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .problems import NUM_SYMBOLS, Problem

COPY_FIRST, COPY_PREVIOUS = 0.5, 0.3  # ours, the paper gives no numbers
NOISE = 1 - COPY_FIRST - COPY_PREVIOUS  # a symbol drawn anew


def build_mixture(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """int64 [n, 2, L]: random symbols, and what is to be told. At place 0 the first token is also the one before."""
    read = (numbers[:, :length] * NUM_SYMBOLS).astype(np.int64)
    source = numbers[:, length : 2 * length]
    noise = ((source - COPY_FIRST - COPY_PREVIOUS) / NOISE * NUM_SYMBOLS).astype(np.int64)
    copied = np.where(source < COPY_FIRST, read[:, :1], read[:, previous_of(length)])
    return np.stack((read, np.where(source < COPY_FIRST + COPY_PREVIOUS, copied, noise)), axis=1)


def previous_of(length: int) -> np.ndarray:
    """int64 [L]: the place before each."""
    return np.maximum(np.arange(length) - 1, 0)


def true_rows(length: int) -> np.ndarray:
    """float64 [L, L]: where the answer at place i comes from, as probabilities of the keys j <= i. Noise comes from no key: its share is
    spread over all of them alike, as by a row of attention without preference."""
    rows = np.tril(np.ones((length, length))) * NOISE / np.arange(1, length + 1)[:, None]
    rows[:, 0] += COPY_FIRST
    rows[np.arange(length), previous_of(length)] += COPY_PREVIOUS
    return rows


@dataclass(frozen=True, slots=True)
class Best:
    """What the best predictor of L places reaches on average, knowing which tokens are copied."""

    nll_nats: float
    accuracy: float


def best_possible(length: int) -> Best:
    """At places 0 and 1 there is one token to copy; from 2 on there are two, which are equal once in NUM_SYMBOLS."""
    other = NOISE / NUM_SYMBOLS
    same, differ = [COPY_FIRST + COPY_PREVIOUS + other], [COPY_FIRST + other, COPY_PREVIOUS + other]
    nll = accuracy = 0.0
    for place in range(length):
        equal = 1.0 if place < 2 else 1 / NUM_SYMBOLS
        for share, special in ((equal, same), (1 - equal, differ)):
            probabilities = special + [other] * (NUM_SYMBOLS - len(special))
            nll -= share * sum(p * math.log(p) for p in probabilities)
            accuracy += share * max(probabilities)
    return Best(nll / length, accuracy / length)


COPY_MIXTURE = Problem(
    "copy_mixture", build_mixture, NUM_SYMBOLS, answer=None, scored=None, extra=0, min_length=3, vocab_size=NUM_SYMBOLS,
    has_depth=False, numbers_per_token=2,
)  # fmt: skip
