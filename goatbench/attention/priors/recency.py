"""Recency: -slope * (i - j), carried exactly by two integer lanes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..log_prior import LogPrior
from ..positions import Positions


def integer_lanes(position: Tensor) -> Tensor:
    """Splits j = 256 * high + low with low in [-128, 127]: [..., K] -> [..., K, 2] (high, low), float64.

    Both parts are integers of at most 256 in magnitude, hence exact in bf16, for |j| <= 65,536. Beyond, kernels need `high_bound`.
    """
    high = torch.floor((position + 128) / 256)
    return torch.stack((high, position - 256 * high), dim=-1)


def high_bound(positions: Positions) -> int | None:
    """The largest magnitude in the high lane of these positions (None: not known), for `LogPrior.integers`."""
    reach = positions.reach
    return None if reach is None else (reach + 128) // 256


def recency_prior(slopes: Tensor, query_positions: Positions, key_positions: Positions) -> LogPrior:
    """-slopes[h] (i - j) along the first axis, as two lanes and their row lanes; slopes [H], one per query head."""
    keys = integer_lanes(key_positions.coords[..., 0]).to(slopes.dtype)[:, None]  # [B|1, 1, K, 2]
    own = keys if query_positions is key_positions else integer_lanes(query_positions.coords[..., 0]).to(slopes.dtype)[:, None]
    lanes = torch.stack((256 * slopes, slopes), dim=-1)[None, :, None, :]  # [1, H, 1, 2]
    return LogPrior(lanes.expand(-1, -1, query_positions.num_tokens, -1), keys, own, integers=((0, high_bound(key_positions)),))


def alibi_slopes(num_heads: int) -> Tensor:
    """[H] slopes 2^(-8 h / H), h = 1..H; for H not a power of two: those of the power below, then every second slope of twice
    that power (Press et al., arXiv 2108.12409, and its released code; the order is not monotone)."""

    def of_power(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]

    power = 2 ** math.floor(math.log2(num_heads))
    slopes = of_power(power)
    if power < num_heads:
        slopes += of_power(2 * power)[0::2][: num_heads - power]
    return torch.tensor(slopes)


def inverse_softplus(y: Tensor) -> Tensor:
    """x with log(1 + e^x) = y, for y > 0."""
    return y + torch.log(-torch.expm1(-y))
