"""BAM: a generalised Gaussian prior of the distance, with scalable softmax (Bianchessi et al., arXiv 2505.22842).

H query heads, Q query tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .pairs import along_line, take
from .recency import alibi_slopes

EPS = 1e-5  # beside the distance, as released
LARGEST = math.log(1e4)  # a penalty of 10,000 nats is none to attend through, and stays finite in every dtype


class Bam(PositionScheme):
    """log_prior[h, i, j] = -exp(s) (|i - j| + eps)^beta, times the temperature; beta starts at 1 and s at the logarithm of ALiBi's
    slopes, so that training starts from ALiBi. beta has no sign: below 0 a head looks away from what is near.

    ssmax:  scalable softmax (Nakanishi, arXiv 2501.19399): all logits, the prior among them, are multiplied by t ln(n), with n the
            number of tokens up to the query and t learned per head from 1.
    shared: one set of numbers for all layers, as in the released code; false: one a layer, as the paper counts them.

    The centre of the Gaussian is fixed to distance 0, as in the paper. Computed as exp(s + beta ln(..)) with a bounded exponent.
    """

    def __init__(self, shape: ModelShape, ssmax: bool = True, shared: bool = True) -> None:
        super().__init__(shape)
        if not shape.causal or shape.num_axes != 1:
            raise ValueError("bam is causal and one-dimensional; for images use alibi_2d")
        self.shared, self.is_relative = shared, not ssmax
        self.beta = nn.Parameter(torch.empty(shape.num_heads))
        self.log_slope = nn.Parameter(torch.empty(shape.num_heads))
        self.gain = nn.Parameter(torch.empty(shape.num_heads)) if ssmax else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.beta)
        with torch.no_grad():
            self.log_slope.copy_(alibi_slopes(self.shape.num_heads).log())
        if self.gain is not None:
            nn.init.ones_(self.gain)

    def for_layer(self, layer_index: int) -> Bam:
        return self if self.shared else type(self)(self.shape, self.gain is not None, shared=False)

    def temperature(self, query_positions: Positions) -> Tensor | None:
        if self.gain is None:
            return None
        visible = (along_line(query_positions, self.gain.dtype) + 1).clamp_min(1)  # left padding has negative places
        return self.gain[None, :, None] * visible.log()[:, None]

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        beta, log_slope = self.beta, self.log_slope
        query, key = along_line(query_positions, beta.dtype), along_line(key_positions, beta.dtype)
        temperature = self.temperature(query_positions)

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            distance = (take(query, batch, i) - take(key, batch, j)).abs() + EPS
            penalty = (log_slope[head] + beta[head] * distance.log()).clamp_max(LARGEST).exp()
            return -penalty if temperature is None else -penalty * take(temperature, batch, head, i)

        return LogPrior(biases=(bias,))
