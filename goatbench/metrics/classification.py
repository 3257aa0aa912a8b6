"""Classification metrics of ONE evaluation condition (one resolution): top-1, top-5, negative log-likelihood, calibration.

B batch, C classes. Every state is a sum or a list that torchmetrics gathers over the ranks at `compute`, never inside the step;
a mean of batch means appears nowhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

CALIBRATION_BINS = 15  # Guo et al. 2017 (arXiv 1706.04599); LookHere (arXiv 2405.13985) reports the same
LARGEST_BELOW_ONE = 1 - 2**-24  # float32


class NegativeLogLikelihood(Metric):
    """Mean of -log p(label) in nats, with its standard error.

    update(log_probs [B, C] normalised, labels [B]); sums are kept in float64, so that the order of batches does not matter.
    compute() -> {"mean", "stderr", "count"}: stderr is the sample standard deviation / sqrt(n); NaN below two examples.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("total_squares", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, log_probs: Tensor, labels: Tensor) -> None:
        nll = -log_probs.gather(1, labels[:, None]).squeeze(1).double()
        self.total += nll.sum()
        self.total_squares += nll.square().sum()
        self.count += nll.numel()

    def compute(self) -> dict[str, Tensor]:
        mean = self.total / self.count
        variance = (self.total_squares - self.count * mean.square()).clamp_min(0) / (self.count - 1)
        return {"mean": mean, "stderr": (variance / self.count).sqrt(), "count": self.count}


class ClassificationMetrics(nn.Module):
    """top1, top5, nll_nats and ece of one condition; make a new one for each condition.

    update(logits [B, C] of any float type, labels [B] int64): softmax and all that follows in float32. Logits must be finite: the caller
    checks, because torchmetrics scores NaN as class 0.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        # micro: a plain share of examples (torchmetrics' default is the mean over classes)
        self.top1 = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        self.top5 = MulticlassAccuracy(num_classes, top_k=min(5, num_classes), average="micro", validate_args=False)
        self.nll = NegativeLogLikelihood()
        self.ece = MulticlassCalibrationError(num_classes, n_bins=CALIBRATION_BINS, norm="l1", validate_args=False)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        log_probs = logits.float().log_softmax(dim=-1)
        # torchmetrics' bins are [low, high): a confidence of exactly 1 would open a 16th bin
        probs = log_probs.exp().clamp_max(LARGEST_BELOW_ONE)
        self.top1.update(logits, labels)
        self.top5.update(logits, labels)
        self.nll.update(log_probs, labels)
        self.ece.update(probs, labels)

    def compute(self) -> dict[str, int | float]:
        """n, top1, top5, nll_nats, nll_stderr and ece over all examples of all ranks."""
        nll = self.nll.compute()
        return {
            "n": int(nll["count"]),
            "top1": float(self.top1.compute()),
            "top5": float(self.top5.compute()),
            "nll_nats": float(nll["mean"]),
            "nll_stderr": float(nll["stderr"]),
            "ece": float(self.ece.compute()),
        }


def binomial_stderr(share: float, n: int) -> float:
    """Standard error of a share of n independent examples: sqrt(p (1 - p) / n)."""
    return math.sqrt(share * (1 - share) / n)
