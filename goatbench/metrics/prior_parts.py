"""Rows of causal attention taken apart: a term of the key, one of the offset, and what a row has in common (arXiv 2601.15380, figure 1).

    log p(j | i)  =  row(i) + sink(j) + relative(i - j) + rest          for keys j <= i, by least squares

The same fit for any rows, so that those of two mechanisms, or of a mechanism and the truth, can be compared. L tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PriorParts:
    """All in nats but the probabilities. A ramp or a constant can stand in either term: sink has mean and slope 0 behind key 0, relative
    has mean 0 behind offset 0."""

    sink: NDArray[np.float64]  # [L] by key
    relative: NDArray[np.float64]  # [L] by offset
    centred: NDArray[np.float64]  # [L, L] log p less its mean over the row's keys; NaN above the diagonal
    probabilities: NDArray[np.float64]  # [L, L]


def parts_of(probabilities: NDArray[np.float64]) -> PriorParts:
    """[L, L] rows over the keys 0 .. i, positive there and 0 above the diagonal, L >= 3; they need not sum to 1."""
    length = len(probabilities)
    query, key = np.tril_indices(length)
    logs = np.full((length, length), np.nan)
    logs[query, key] = np.log(np.maximum(probabilities[query, key], np.finfo(np.float64).tiny))
    centred = logs - np.nanmean(logs, axis=1, keepdims=True)
    design = np.zeros((len(query), 3 * length))
    rows = np.arange(len(query))
    design[rows, query], design[rows, length + key], design[rows, 2 * length + query - key] = 1, 1, 1
    _, sink, relative = np.linalg.lstsq(design, centred[query, key], rcond=None)[0].reshape(3, length)
    places = np.arange(length)
    slope = np.polyfit(places[1:], sink[1:], 1)[0]
    sink, relative = sink - slope * places, relative - slope * places
    return PriorParts(sink - sink[1:].mean(), relative - relative[1:].mean(), centred, probabilities)


def total_variation(rows: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., L] half the summed difference between rows [..., L, L] and [L, L]; what a row lacks to 1 counts as given to something else."""
    return (np.abs(rows - true).sum(-1) + np.abs(1 - rows.sum(-1))) / 2
