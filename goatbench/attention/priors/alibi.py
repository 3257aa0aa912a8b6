"""ALiBi: a linear penalty of the distance. 1D: Press et al., arXiv 2108.12409; 2D: Euclidean, as CROMA (arXiv 2311.00566).

H query heads, K key tokens. 1D is two exact integer lanes with the slope on the query side; 2D is an elementwise bias.
"""

from __future__ import annotations

from torch import Tensor

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .recency import alibi_slopes, recency_prior


class Alibi(PositionScheme):
    """log_prior[h, i, j] = -slope[h] (i - j), causal, fixed slopes per query head; not divided by sqrt(d)."""

    num_lanes = 2

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        if not shape.causal or shape.num_axes != 1:
            raise ValueError("alibi is causal and one-dimensional; for images use alibi_2d")
        if shape.num_prefix:
            raise ValueError("alibi counts the distance to every key, and a token before the sequence has no coordinate")
        self.register_buffer("slopes", alibi_slopes(shape.num_heads), persistent=False)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        return recency_prior(self.slopes, query_positions, key_positions)


class Alibi2D(PositionScheme):
    """log_prior[h, i, j] = -slope[h] |p_i - p_j| (Euclidean, patches), 0 in the rows and columns of prefix tokens.

    The distance is not of low rank, so this is an elementwise bias: a float mask in SDPA, a score_mod in flex.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        if shape.causal or shape.num_axes < 2:
            raise ValueError("alibi_2d is for images; for causal sequences use alibi")
        # Sorted: with the order of the released 1D code the slopes of 3, 6 or 12 heads would not be monotone.
        self.register_buffer("slopes", alibi_slopes(shape.num_heads).sort(descending=True).values, persistent=False)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        dtype = self.slopes.dtype
        query, key = query_positions.coords.to(dtype), key_positions.coords.to(dtype)  # [B|1, Q, 2], [B|1, K, 2]
        query_patch, key_patch = (~query_positions.is_prefix).to(dtype), (~key_positions.is_prefix).to(dtype)
        slopes = self.slopes

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            row = batch * 0 if query.shape[0] == 1 else batch
            row = row[:1] if query.shape[0] == 1 and row.ndim else row
            offset = query[row, i] - key[row, j]
            distance = offset.square().sum(-1).sqrt()
            return -slopes[head] * distance * query_patch[row, i] * key_patch[row, j]

        return LogPrior(biases=(bias,))
