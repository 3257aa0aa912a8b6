"""The rows of attention that a trained model really uses, averaged over sequences: for short ones, as every row is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..attention.kernels.problem import Problem, Wrapped
from ..attention.kernels.reference import dense_logits, weights_and_lse
from .attention_stats import require_softmax

if TYPE_CHECKING:
    from ..models.backbone import Backbone


def mean_attention(net: Backbone, tokens: Tensor) -> Tensor:
    """Mean over the sequences tokens [B, L] of the first layer's attention, [H, L, L] float64.

    Rows sum to 1 less what a sink, or tokens before the sequence, are given. ValueError for rows that no softmax makes.
    """
    require_softmax(net)
    layer = net.attention_layers[0]
    kept = _Keeping(layer.kernel)
    was_training = net.training
    net.eval()
    try:
        layer.kernel = kept
        with torch.inference_mode():
            net.hidden(tokens)
    finally:
        net.train(was_training)
        layer.kernel = kept.kernel
    return kept.rows[:, -tokens.shape[1] :, -tokens.shape[1] :].cpu()


class _Keeping(Wrapped):
    """Keeps the mean of its rows of attention."""

    rows: Tensor

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        self.rows = weights_and_lse(dense_logits(problem, torch.float64), problem.prior.sink)[0].mean(0)  # [H, Q, K]
        return self.kernel(problem)
