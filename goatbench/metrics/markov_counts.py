"""How often each base follows each context of up to twelve bases: what the Markov models of `markov.py` are made from.

Codes are uint8; `codes & 7` is 0..3 for A C G T and 4 for N. N breaks the history: contexts with N and N itself are not counted.
An order-k context is the integer whose base-4 digits are its k bases, the nearest one last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST_ORDER = 12  # its table has 4^13 int32 = 268 MB
FIT_CHUNK = 2**24  # positions: bincount over 4^13 cells costs 0.5 GB whatever the number of positions

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class MarkovCounts:
    """tables[k] is int32 [4^k, 4]: how often each base followed each order-k context in training, for k = 0..max_order."""

    tables: tuple[NDArray[np.int32], ...]

    @property
    def max_order(self) -> int:
        return len(self.tables) - 1

    @classmethod
    def fit(cls, stretches: Sequence[Codes], max_order: int) -> MarkovCounts:
        """Count every stretch (one-dimensional, unconnected to the others) on the strand given.

        Only the longest order is counted base by base: a shorter order is its sum over the oldest base, plus the bases whose history
        was exactly that short.
        """
        if not 0 <= max_order <= LARGEST_ORDER:
            raise ValueError(f"max_order={max_order}: a Markov order is 0 to {LARGEST_ORDER} (the table has 4^(order+1) cells)")
        longest = np.zeros(4 ** (max_order + 1), np.int32)
        short = [np.zeros(4 ** (order + 1), np.int32) for order in range(max_order)]
        for context, depth, base in _counted(stretches, max_order):
            followed = context * 4 + base
            longest += np.bincount(followed[depth == max_order], minlength=longest.size).astype(np.int32)
            rest = np.flatnonzero(depth < max_order)
            for order in np.unique(depth[rest]):
                here = rest[depth[rest] == order]
                np.add.at(short[order], followed[here] % 4 ** (int(order) + 1), 1)
        tables = [longest]
        for extra in reversed(short):
            tables.append(tables[-1].reshape(4, -1).sum(axis=0, dtype=np.int32) + extra)
        return cls(tuple(table.reshape(-1, 4) for table in reversed(tables)))


def _counted(stretches: Sequence[Codes], max_order: int) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
    """(context, depth, base) of the bases that are not N, many short stretches joined into one large piece."""
    waiting: list[tuple[NDArray, NDArray, NDArray]] = []
    num_waiting = 0
    for stretch in stretches:
        for codes, skip in pieces(stretch, max_order, FIT_CHUNK):
            context, depth = histories(codes, max_order)
            keep = (codes & 7) < 4
            keep[:skip] = False
            waiting.append((context[keep], depth[keep], (codes[keep] & 7).astype(np.int32)))
            num_waiting += len(codes)
            if num_waiting >= FIT_CHUNK:
                yield tuple(np.concatenate(part) for part in zip(*waiting, strict=True))
                waiting, num_waiting = [], 0
    if waiting:
        yield tuple(np.concatenate(part) for part in zip(*waiting, strict=True))


def histories(codes: Codes, max_order: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The context before each base and how much of it exists, along the last axis; both have the shape of `codes`.

    depth: the number of clean bases directly before, at most max_order. Digits of a context beyond its depth are meaningless.
    """
    token = codes & 7
    digit = (token & 3).astype(np.int32)
    context = np.zeros(codes.shape, np.int32)
    for back in range(1, max_order + 1):
        context[..., back:] += digit[..., :-back] << (2 * (back - 1))
    place = np.arange(codes.shape[-1], dtype=np.int32)
    last_n = np.full(codes.shape, -1, np.int32)  # before the base
    last_n[..., 1:] = np.maximum.accumulate(np.where(token > 3, place, np.int32(-1)), axis=-1)[..., :-1]
    return context, np.minimum(place - 1 - last_n, np.int32(max_order))


def pieces(stretch: Codes, overlap: int, size: int) -> Iterator[tuple[Codes, int]]:
    """Cut a stretch into pieces of `size`; each starts with `skip` bases of the one before, so that no history is lost."""
    if stretch.ndim != 1:
        raise ValueError(f"a stretch has one dimension, this array has shape {stretch.shape}")
    for start in range(0, len(stretch), size):
        skip = min(overlap, start)
        yield stretch[start - skip : start + size], skip
