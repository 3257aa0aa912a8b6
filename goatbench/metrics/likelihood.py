"""Likelihood of tokens: every number comes from sums over scored targets, never from a mean of means.

B windows, K positions, V vocabulary. A target is scored if it lies in 0 .. num_scored - 1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from .token_nll import token_nll as token_nll


class TokenLikelihood(Metric):
    """Mean negative log-likelihood of scored targets, in nats, over all updates and all ranks.

    update(logits [B, K, V], targets [B, K]); sums in float64. compute() -> float64 scalar, NaN without a scored target.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self, num_scored: int) -> None:
        super().__init__()
        self.num_scored = num_scored
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        nll, is_scored = token_nll(logits, targets, self.num_scored)
        self.total += nll.double().sum()
        self.count += is_scored.sum()

    def compute(self) -> Tensor:
        return self.total / self.count


def bits(nats: float) -> float:
    return nats / math.log(2)


def ratio_stderr(totals: np.ndarray, counts: np.ndarray, groups: np.ndarray | None = None) -> float | None:
    """Standard error of sum(totals) / sum(counts) when groups are drawn independently (linearised ratio estimator, Cochran 1977,
    ch. 2.11). totals, counts: [n], one row a window; groups: [n] label of each window's group (a stretch of a chromosome), None: each
    window its own. None for fewer than two groups.
    """
    if groups is not None:
        _, index = np.unique(groups, return_inverse=True)
        totals, counts = np.bincount(index, totals), np.bincount(index, counts)
    n = len(totals)
    if n < 2 or counts.sum() == 0:
        return None
    residuals = totals - totals.sum() / counts.sum() * counts
    return float(np.sqrt(n / (n - 1) * np.square(residuals).sum()) / counts.sum())


def paired_difference(
    first: np.ndarray, second: np.ndarray, counts: np.ndarray, groups: np.ndarray | None = None
) -> tuple[float, float | None]:
    """(first - second) in nats per target and its standard error, from the summed nll [n] of the same windows under two models."""
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    return float(difference.sum() / counts.sum()), ratio_stderr(difference, np.asarray(counts, np.float64), groups)
