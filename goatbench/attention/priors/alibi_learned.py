"""ALiBi whose slopes are learned, per layer and query head (a variant that Press et al., arXiv 2108.12409, section 3, mention)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .recency import alibi_slopes, recency_prior


class AlibiLearned(PositionScheme):
    """log_prior[h, i, j] = -exp(log_slope[h]) (i - j), causal, from ALiBi's slopes; lanes, so fused kernels train it."""

    num_lanes = 2

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        if not shape.causal or shape.num_axes != 1:
            raise ValueError("alibi_learned is causal and one-dimensional; for images use alibi_2d or fire_2d")
        self.log_slope = nn.Parameter(torch.empty(shape.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.log_slope.copy_(alibi_slopes(self.shape.num_heads).log())

    def for_layer(self, layer_index: int) -> AlibiLearned:
        return type(self)(self.shape)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        return recency_prior(self.log_slope.exp(), query_positions, key_positions)
