"""What sequence is made of, place by place forgotten: CpG, k-mers, homopolymers. Does generated DNA look like the real one?

Codes are uint8, `codes & 7` is 0..3 for A C G T and 4 for N. All functions take [n] or [rows, n]: neighbours are counted within a row,
never across rows or N, and all rows are pooled.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Codes = NDArray[np.uint8]


def cpg_observed_expected(codes: Codes) -> float:
    """Share of neighbours that are C then G, over share of C times share of G: about 0.25 in human DNA, 1 in independent bases.

    NaN without C, G or neighbours.
    """
    ones, pairs = kmer_counts(codes, 1), kmer_counts(codes, 2)
    c, g, cg = ones[1] / max(ones.sum(), 1), ones[2] / max(ones.sum(), 1), pairs[1 * 4 + 2]
    if not (c and g and pairs.sum()):
        return math.nan
    return float(cg / pairs.sum() / (c * g))


def kmer_counts(codes: Codes, k: int) -> NDArray[np.int64]:
    """[4^k] counts of the k-mers without N, read as base-4 numbers, first base first (k = 3: index 16 a + 4 b + c)."""
    if not 1 <= k <= 12:
        raise ValueError(f"k={k}: a k-mer spectrum has 4^k entries, k is 1 to 12")
    token = codes & 7
    places = codes.shape[-1] - k + 1
    if places < 1:
        return np.zeros(4**k, np.int64)
    index = np.zeros((*codes.shape[:-1], places), np.int32)
    known = np.ones(index.shape, bool)
    for step in range(k):
        here = token[..., step : step + places]
        index = index * 4 + here
        known &= here < 4
    return np.bincount(index[known], minlength=4**k)


def jensen_shannon_bits(a: ArrayLike, b: ArrayLike) -> float:
    """Jensen-Shannon divergence of two spectra (counts or probabilities, any total), in bits: 0 equal, 1 nothing in common.

    Finite counts alone give a value above 0: see `spectrum_divergence`.
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape or not (a.sum() > 0 and b.sum() > 0):
        totals = f"shapes {a.shape} and {b.shape}, totals {a.sum():g} and {b.sum():g}"
        raise ValueError(f"spectra of one length and with counts above 0 are compared, these have {totals}")
    a, b = a / a.sum(), b / b.sum()
    middle = (a + b) / 2
    return max(0.0, _relative_entropy_bits(a, middle) / 2 + _relative_entropy_bits(b, middle) / 2)


def spectrum_divergence(generated: Codes, real: Codes, k: int) -> float:
    """Divergence in bits of generated [n, samples, W] from real [n, W] windows of the same n places, from samples of one size.

    One sample of the even places against the real windows of the odd ones, and the other way round; the mean over both and all samples.
    With real[:, None] as generated it is the floor: what a perfect generator gets on average.
    """
    if generated.ndim != 3 or real.ndim != 2 or len(generated) != len(real) or len(real) < 2:
        raise ValueError(f"[n, samples, W] and [n, W] windows of 2 or more places are compared, not {generated.shape} and {real.shape}")
    halves = slice(0, None, 2), slice(1, None, 2)
    found = []
    for here, there in (halves, halves[::-1]):
        other = kmer_counts(real[there], k)
        found += [jensen_shannon_bits(kmer_counts(generated[here, sample], k), other) for sample in range(generated.shape[1])]
    return float(np.mean(found))


def longest_homopolymer(codes: Codes) -> int:
    """The longest run of one and the same base, in bases; 0 where there is none."""
    token = np.atleast_2d(codes & 7)
    starts = np.ones(token.shape, bool)
    starts[:, 1:] = token[:, 1:] != token[:, :-1]
    where = np.flatnonzero(starts)
    lengths = np.diff(where, append=token.size)
    return int(lengths[token.ravel()[where] < 4].max(initial=0))


def _relative_entropy_bits(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    seen = p > 0
    return float(p[seen] @ np.log2(p[seen] / q[seen]))
