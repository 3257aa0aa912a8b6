"""Uniform numbers that depend on what they are for, and on nothing else: Philox4x32-10, over arrays of counters.

Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. A stateful generator would tie an image's
augmentation to the worker, the order or the batch it came in; a numpy Generator an image would cost more than its resizing.
"""

from __future__ import annotations

import numpy as np

ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # table 2 of the paper
_WEYL = 0x9E3779B9, 0xBB67AE85  # golden ratio, sqrt(3) - 1
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

ORDER, AUGMENTATION, WINDOWS, LENGTHS, SEQUENCES, TESTS = range(6)  # streams: what a number is for


def philox4x32(counter: tuple[np.ndarray, ...], key: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Four arrays of 32-bit words (held in uint64) for four arrays of 32-bit counter words and a key of two words."""
    a, b, c, d = (np.asarray(word, np.uint64) for word in counter)
    for turn in range(ROUNDS):
        k0, k1 = (np.uint64((key[i] + turn * _WEYL[i]) & 0xFFFFFFFF) for i in (0, 1))
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c  # 32 x 32 -> 64 bits
        a, b, c, d = (second >> _HALF) ^ b ^ k0, second & _LOW, (first >> _HALF) ^ d ^ k1, first & _LOW
    return a, b, c, d


def uniforms(seed: int, epoch: int, ids: np.ndarray, count: int, stream: int) -> np.ndarray:
    """float64 [n, count] in [0, 1), 32 bits each: row i depends on (seed, epoch, ids[i], stream) only. count is a multiple of 4."""
    assert count % 4 == 0 and 0 <= seed < 2**32 and 0 <= epoch < 2**32
    ids = np.asarray(ids, np.int64).astype(np.uint64)[:, None]
    blocks = np.arange(count // 4, dtype=np.uint64)[None, :]
    shape = (len(ids), count // 4)
    counter = (np.broadcast_to(ids & _LOW, shape), np.broadcast_to(ids >> _HALF, shape), np.broadcast_to(blocks, shape))
    words = philox4x32((*counter, np.full(shape, stream, np.uint64)), (seed, epoch))
    return np.stack(words, -1).reshape(len(ids), count) * 2.0**-32


def permutation(seed: int, epoch: int, size: int) -> np.ndarray:
    """int64 [size]: a random order of range(size), by sorting 64-bit random keys."""
    high, low = uniforms(seed, epoch, np.arange(size), 4, ORDER)[:, :2].T
    return np.lexsort((low, high))
