"""GC tracks of DNA and how well one track follows another.

Codes are uint8, `codes & 7` is 0..3 for A C G T and 4 for N. A track holds one GC percentage (0..100) a window, NaN where the window is a
gap; differences are in GC points. Comparisons use the places where both tracks have a value, and are NaN where they are not defined.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_KNOWN = 0.5  # share of a window that must be ACGT for its GC to mean something

Track = NDArray[np.float64]


def gc_percent(windows: NDArray[np.uint8]) -> Track:
    """100 (G + C) / (A + C + G + T) over the last axis: [..., W] -> [...]; NaN where fewer than half of the W bases are known."""
    token = windows & 7
    known = (token < 4).sum(axis=-1)
    gc = ((token == 1) | (token == 2)).sum(axis=-1)
    return np.where(known >= LEAST_KNOWN * windows.shape[-1], 100 * gc / np.maximum(known, 1), np.nan)


def gc_track(codes: NDArray[np.uint8], window: int) -> Track:
    """[ceil(n / window)] GC percent of consecutive windows of a stretch [n]; what the last one lacks counts as unknown."""
    if codes.ndim != 1 or window < 1:
        raise ValueError(f"a track needs codes [n] and a window of at least 1 base, not shape {codes.shape} and window {window}")
    missing = -len(codes) % window
    return gc_percent(np.concatenate([codes, np.full(missing, 4, np.uint8)]).reshape(-1, window))


def compare(predicted: ArrayLike, true: ArrayLike) -> dict[str, int | float]:
    """All comparisons of two tracks of one shape: n pairs, pearson, spearman, mae, bias and wasserstein (points)."""
    predicted, true = _both(predicted, true)
    return {
        "n": len(true),
        "pearson": pearson(predicted, true),
        "spearman": spearman(predicted, true),
        "mae": mean_absolute_error(predicted, true),
        "bias": bias(predicted, true),
        "wasserstein": wasserstein(predicted, true),
    }


def pearson(a: ArrayLike, b: ArrayLike) -> float:
    """Linear correlation, -1..1; NaN below two pairs or where a track is constant."""
    a, b = _both(a, b)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:  # a mean of equal numbers may differ from them by rounding
        return math.nan
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1, 1))


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson correlation of the ranks; equal values share the mean of their ranks."""
    a, b = _both(a, b)
    return pearson(ranks(a), ranks(b))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """[n] ranks from 1; equal values share the mean of their ranks."""
    _, place, count = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def mean_absolute_error(predicted: ArrayLike, true: ArrayLike) -> float:
    """Mean of |predicted - true| in GC points."""
    predicted, true = _both(predicted, true)
    return float(np.abs(predicted - true).mean()) if len(true) else math.nan


def bias(predicted: ArrayLike, true: ArrayLike) -> float:
    """Mean of predicted - true in GC points: above 0 where GC is overestimated."""
    predicted, true = _both(predicted, true)
    return float((predicted - true).mean()) if len(true) else math.nan


def wasserstein(a: ArrayLike, b: ArrayLike) -> float:
    """Wasserstein-1 distance of two distributions of GC, in points: the area between their distribution functions.

    Windows need not be aligned nor equal in number: it compares how often a GC occurs, not where.
    """
    a, b = (np.sort(values[~np.isnan(values)]) for values in (np.ravel(np.asarray(a, float)), np.ravel(np.asarray(b, float))))
    if not (len(a) and len(b)):
        return math.nan
    edges = np.sort(np.concatenate([a, b]))
    below_a = np.searchsorted(a, edges[:-1], side="right") / len(a)
    below_b = np.searchsorted(b, edges[:-1], side="right") / len(b)
    return float(np.abs(below_a - below_b) @ np.diff(edges))


def autocorrelation(track: ArrayLike, max_lag: int) -> NDArray[np.float64]:
    """[max_lag] Pearson correlation of a track with itself 1..max_lag windows later; pairs of all rows of [..., n] are pooled."""
    track = np.asarray(track, float)
    return np.array([pearson(track[..., :-lag], track[..., lag:]) for lag in range(1, max_lag + 1)])


def _both(a: ArrayLike, b: ArrayLike) -> tuple[Track, Track]:
    """The pairs in which neither value is NaN, flat."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape:
        raise ValueError(f"two tracks of one shape are compared window by window, these have {a.shape} and {b.shape}")
    known = ~(np.isnan(a) | np.isnan(b))
    return a[known], b[known]
