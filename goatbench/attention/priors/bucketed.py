"""T5's relative bias: one learned number per head and bucket of distances (Raffel et al., arXiv 1910.10683).

H query heads, K key tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .pairs import along_line, take


class T5(PositionScheme):
    """log_prior[h, i, j] = table[bucket(j - i), h], one table for all layers, drawn from N(0, 1 / embed_dim) as in the released code.

    num_buckets: of which the first half hold one distance each, the others are spaced by its logarithm up to max_distance, and the
    last holds all beyond. Causal models have buckets of the past only; others give half of them to the future. Added after 1/sqrt(D),
    which T5 itself leaves out: that factor is the same for all mechanisms here.
    """

    def __init__(self, shape: ModelShape, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(shape)
        if shape.num_axes != 1:
            raise ValueError("t5 is one-dimensional; for images use rpb")
        one_side = num_buckets if shape.causal else num_buckets // 2
        if one_side < 2 or num_buckets % 2 or max_distance <= one_side // 2:
            raise ValueError(
                f"t5: num_buckets = {num_buckets}, max_distance = {max_distance}: an even number of at least 4 buckets (causal: 2), and "
                "a max_distance above the distances that have a bucket of their own"
            )
        self.num_buckets, self.one_side, self.max_distance = num_buckets, one_side, max_distance
        self.register_buffer("bucket_of", distance_buckets(one_side, max_distance), persistent=False)
        self.table = nn.Parameter(torch.empty(num_buckets, shape.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=self.shape.embed_dim**-0.5)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        table, buckets, causal, one_side, last = self.table, self.bucket_of, self.shape.causal, self.one_side, self.max_distance
        query, key = along_line(query_positions, torch.float64), along_line(key_positions, torch.float64)

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            ahead = take(key, batch, j) - take(query, batch, i)
            distance = (-ahead).clamp_min(0) if causal else ahead.abs()
            bucket = buckets[distance.clamp_max(last).long()]
            return table[bucket if causal else bucket + one_side * (ahead > 0), head]

        return LogPrior(biases=(bias,))


def distance_buckets(num_buckets: int, max_distance: int) -> Tensor:
    """[max_distance + 1] int64: the bucket of every distance up to max_distance, in exact integer arithmetic.

    With e = num_buckets // 2: d itself below e, else e + floor(log(d / e) / log(max_distance / e) * (num_buckets - e)), at most the last.
    """
    exact = num_buckets // 2
    spaced = num_buckets - exact

    def bucket(distance: int) -> int:
        if distance < exact:
            return distance
        steps = 0  # the largest k with (d / e)^spaced >= (max_distance / e)^k: a float logarithm may fall on either side of it
        while steps + 1 < spaced and distance**spaced >= max_distance ** (steps + 1) * exact ** (spaced - steps - 1):
            steps += 1
        return exact + steps

    return torch.tensor([bucket(d) for d in range(max_distance + 1)])
