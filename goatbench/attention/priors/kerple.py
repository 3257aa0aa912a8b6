"""KERPLE: kernels of the distance with two learned numbers per head, shared by all layers (Chi et al., arXiv 2205.09921).

H query heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .pairs import along_line, take

SMALLEST = 0.01  # the released code keeps every parameter at or above it


class Kerple(PositionScheme):
    """Base class: `scale` and `exponent` per head, and log_prior[h, i, j] = -kernel(|i - j|)."""

    scale_range: tuple[float, float]
    exponent_range: tuple[float, float]
    largest_exponent: float = float("inf")

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        if shape.num_axes != 1:
            raise ValueError("kerple_log and kerple_power are one-dimensional; for images use alibi_2d or fire_2d")
        self.scale = nn.Parameter(torch.empty(shape.num_heads))
        self.exponent = nn.Parameter(torch.empty(shape.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.scale, *self.scale_range)
        nn.init.uniform_(self.exponent, *self.exponent_range)

    def penalty(self, distance: Tensor, scale: Tensor, exponent: Tensor) -> Tensor:
        """The kernel, elementwise and not negative."""
        raise NotImplementedError

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        dtype, penalty = self.scale.dtype, self.penalty
        query, key = along_line(query_positions, dtype), along_line(key_positions, dtype)
        scale = _Bounded.apply(self.scale, SMALLEST, float("inf"))
        exponent = _Bounded.apply(self.exponent, SMALLEST, self.largest_exponent)

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            distance = (take(query, batch, i) - take(key, batch, j)).abs()
            return -penalty(distance, scale[head], exponent[head])

        return LogPrior(biases=(bias,))


class KerpleLog(Kerple):
    """log_prior[h, i, j] = -scale ln(1 + exponent |i - j|); scale from U(0, 2), exponent (the paper's r2) from U(0, 1)."""

    scale_range, exponent_range = (0.0, 2.0), (0.0, 1.0)

    def penalty(self, distance: Tensor, scale: Tensor, exponent: Tensor) -> Tensor:
        return scale * torch.log1p(exponent * distance)


class KerplePower(Kerple):
    """log_prior[h, i, j] = -scale |i - j|^exponent; scale from U(0, 1), exponent from U(0, 2) and at most 2."""

    scale_range, exponent_range = (0.0, 1.0), (0.0, 2.0)
    largest_exponent = 2.0

    def penalty(self, distance: Tensor, scale: Tensor, exponent: Tensor) -> Tensor:
        return scale * distance**exponent


class _Bounded(torch.autograd.Function):
    """x clamped to [low, high], with the gradients that would move it back inside: the released code clamps the parameter in place
    at every step, where it rests on the bound until a gradient takes it away again."""

    @staticmethod
    def forward(ctx, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        inward = ((x >= ctx.low) | (grad < 0)) & ((x <= ctx.high) | (grad > 0))
        return grad * inward, None, None
