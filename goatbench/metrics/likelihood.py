"""Likelihood of tokens: every number comes from sums over scored targets, never from a mean of means.

B windows, K positions, V vocabulary. A target is scored if it lies in 0 .. num_scored - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> TokenLikelihood:
        """Sums follow the model to its device, but never to bfloat16 (a training in bf16-true casts whatever it holds)."""

        def keep_precision(t: Tensor) -> Tensor:
            return t.to(fn(t).device)

        return super()._apply(keep_precision, exclude_state)

    def update(self, logits: Tensor, targets: Tensor) -> None:
        nll, is_scored = token_nll(logits, targets, self.num_scored)
        self.total += nll.double().sum()
        self.count += is_scored.sum()

    def compute(self) -> Tensor:
        return self.total / self.count


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


@dataclass(frozen=True, slots=True)
class LikelihoodResult:
    """Sums over the scored targets of n windows of one length, over all ranks; the properties divide them.

    window_*: [n], ascending by id; position_*: [number of positions that are scored], the first of them with `first_context` tokens
    before the target. masked_*: targets that the batch's mask marks (repeats, the word asked for), None without a mask.
    """

    context: int  # input tokens a window
    first_context: int
    window_ids: np.ndarray  # int64
    window_nll: np.ndarray  # float64 nats
    window_count: np.ndarray  # int64
    window_correct: np.ndarray  # int64, targets with the highest logit of all V tokens
    position_nll: np.ndarray  # float64 nats
    position_count: np.ndarray  # int64
    position_correct: np.ndarray  # int64
    masked_nll_total: float | None
    masked_count: int | None
    unscored_mass_total: float  # softmax mass on tokens that are never targets
    tokens_per_second: float  # input tokens
    tokens_per_second_method: str
    peak_memory_bytes: int  # of the rank that used most
    peak_memory_method: str
    batch_size: int  # windows a forward pass, on one rank; below the loader's if memory did not suffice
    window_last_prediction: np.ndarray | None = None  # int64, the token of the highest logit at the last (masked) target
    window_masked_nll: np.ndarray | None = None  # float64 nats
    window_masked_count: np.ndarray | None = None  # int64
    window_masked_correct: np.ndarray | None = None  # int64

    @property
    def count(self) -> int:
        return int(self.window_count.sum())

    @property
    def nll_nats(self) -> float:
        return float(self.window_nll.sum()) / self.count

    @property
    def nll_stderr(self) -> float | None:
        """Of nll_nats, windows taken as independent; None for a single window."""
        return ratio_stderr(self.window_nll, self.window_count)

    @property
    def position_nll_nats(self) -> np.ndarray:
        """Mean by position, NaN where no window has a scored target."""
        with np.errstate(invalid="ignore"):
            return self.position_nll / self.position_count
