"""Null sinks: a logit per query head with value 0 that joins the softmax denominator only, learned or fixed at 0."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme


class SinkScalar(PositionScheme):
    """p(j | i) = exp(l_ij) / (exp(s_h) + sum_j exp(l_ij)), s learned per head from 0 (where it is softmax-off-by-one).

    Carries no position: in a bidirectional model a control, as nope is. Source: openai/gpt-oss model card, arXiv 2508.10925.
    """

    coordinate_modes = ("none",)

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        self.sink = nn.Parameter(torch.empty(shape.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.sink)

    def for_layer(self, layer_index: int) -> SinkScalar:
        return type(self)(self.shape)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        return LogPrior(sink=self.sink)


class SoftmaxOffByOne(PositionScheme):
    """p(j | i) = exp(l_ij) / (1 + sum_j exp(l_ij)): a sink whose logit stays 0, so that a head can attend to (almost) nothing.

    Carries no position. Source: the zero sink of StreamingLLM (arXiv 2309.17453, section 4.2), proposed by E. Miller, "Attention is
    off by one" (2023).
    """

    coordinate_modes = ("none",)

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        self.register_buffer("sink", torch.zeros(shape.num_heads), persistent=False)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        return LogPrior(sink=self.sink)
