"""GOAT: a learned log-prior as a truncated Fourier series of the offset plus a key-only term, carried as lanes.

Source: Litman & Guo, "You Need Better Attention Priors", arXiv 2601.15380, equations restated in our symbols:

    log_prior[h, i, j] = sum over axes a and frequencies w of  even[h,a,w] cos(w (x_i - x_j)) + odd[h,a,w] sin(w (x_i - x_j))
                         + gain[h] u0(j) + bump[h] [j is BOS or prefix]              the key-only (sink) term
                         - slope[h] (i - j)                                          causal models only

B batch, H query heads, Q query tokens, K key tokens, A axes, F frequencies an axis, R lanes.

    key lanes    [ cos(w x_j) .., sin(w x_j) .., high(j), low(j), u0(j), special(j) ]       features, without a head axis
    query lanes  [ even cos + odd sin .., even sin - odd cos .., 256 slope, slope, gain, bump ]

All per-head parameters sit on the query side: the position j = 256 high + low is exact in bf16 (see `LogPrior.integers`), where a lane
holding slope * j is a staircase, and the slope's gradient is summed inside the kernel, before it is rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .recency import alibi_slopes, high_bound, integer_lanes, inverse_softplus


class Goat(PositionScheme):
    """GOAT in one, two or more axes; the parts can be switched off one by one.

    num_frequencies:  F, per axis; every axis has the same list.
    min_period, max_period: periods in tokens or patches, geometric in between. max_period None: 4 times the largest train
                      extent. 1D default: 2 pi .. 2 pi * 1e4 (the paper's base 10,000).
    spectral, sink, slope: parts of the prior. `slope` acts in causal models only.
    sink_frequencies, sink_hidden: features and hidden units of the shared sink network u0.
    """

    is_relative = False  # the key-only term looks at absolute positions

    def __init__(
        self,
        shape: ModelShape,
        num_frequencies: int,
        min_period: float,
        max_period: float | None = None,
        spectral: bool = True,
        sink: bool = True,
        slope: bool = True,
        sink_frequencies: int = 2,
        sink_hidden: int = 4,
    ) -> None:
        super().__init__(shape)
        if num_frequencies < 1 or min_period <= 0:
            raise ValueError(f"num_frequencies = {num_frequencies}, min_period = {min_period}: both must be positive")
        self.options = {
            "num_frequencies": num_frequencies, "min_period": min_period, "max_period": max_period, "spectral": spectral,
            "sink": sink, "slope": slope, "sink_frequencies": sink_frequencies, "sink_hidden": sink_hidden,
        }  # fmt: skip
        self.spectral, self.has_sink, self.has_slope = spectral, sink, slope and shape.causal
        if self.has_slope and shape.num_axes == 1 and shape.num_prefix:
            raise ValueError("a recency slope counts from every key, and a token before the sequence has no coordinate: set slope=false")
        self.has_bump = sink and (shape.causal or shape.num_prefix > 0)
        num_heads, num_axes = shape.num_heads, shape.num_axes
        self.num_lanes = 2 * num_axes * num_frequencies * spectral + 2 * self.has_slope + sink + self.has_bump
        if spectral:
            longest = max_period or 4.0 * max(shape.train_extent)
            self.register_buffer("frequencies", geometric_frequencies(num_frequencies, min_period, longest), persistent=False)
            self.even = nn.Parameter(torch.empty(num_heads, num_axes * num_frequencies))
            self.odd = nn.Parameter(torch.empty(num_heads, num_axes * num_frequencies))
        if self.has_slope:
            self.slope_raw = nn.Parameter(torch.empty(num_heads))
        if sink:
            self.sink_net = SinkNetwork(shape, sink_frequencies, sink_hidden)
            self.gain = nn.Parameter(torch.empty(num_heads))
        if self.has_bump:
            self.bump = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nearly uniform in the spectral part, ALiBi's slopes (Press et al., arXiv 2108.12409) in the recency part."""
        if self.spectral:
            nn.init.normal_(self.even, std=0.01)
            nn.init.zeros_(self.odd)
        if self.has_slope:
            with torch.no_grad():
                self.slope_raw.copy_(inverse_softplus(alibi_slopes(self.shape.num_heads)))
        if self.has_sink:
            self.sink_net.reset_parameters()
            nn.init.ones_(self.gain)
        if self.has_bump:
            nn.init.zeros_(self.bump)

    def for_layer(self, layer_index: int) -> Goat:
        return type(self)(self.shape, **self.options)

    @property
    def slopes(self) -> Tensor:
        """[H] nats per token, positive."""
        return F.softplus(self.slope_raw)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        if not self.num_lanes:
            return LogPrior()
        keys = self._features(key_positions)
        queries = keys if query_positions is key_positions else self._features(query_positions)
        k_lanes = [] if keys.before is None else [keys.before]  # each [B|1, 1, K, r]
        if self.has_sink:
            k_lanes.append(self.sink_net(key_positions)[:, None, :, None])
        if self.has_bump:
            k_lanes.append(keys.special)
        lanes = LogPrior(self._query_lanes(queries, query_positions.num_tokens), _join(k_lanes), queries.row_lanes)
        if not self.has_slope:
            return lanes
        high = self.num_lanes - 2 - self.has_sink - self.has_bump
        return replace(lanes, integers=((high, high_bound(key_positions)),))

    def _query_lanes(self, features: _Features, num_queries: int) -> Tensor:
        """[B|1, H, Q, R]: (even, even, constant lanes) * (cos, sin, 1) + (odd, odd, 0) * (sin, -cos, 0): two passes over all lanes."""
        per_head: list[Tensor] = []  # constant along the queries: [H] each
        if self.has_slope:
            slopes = self.slopes
            per_head += [256 * slopes, slopes]
        if self.has_sink:
            per_head.append(self.gain)
        if self.has_bump:
            per_head.append(self.bump)
        constant = [torch.stack(per_head, dim=-1)] if per_head else []  # [H, r]
        if not self.spectral:
            return constant[0][None, :, None].expand(-1, -1, num_queries, -1)
        even = torch.cat((self.even, self.even, *constant), dim=-1)[:, None]  # [H, 1, R]
        odd = F.pad(torch.cat((self.odd, self.odd), dim=-1), (0, len(per_head)))[:, None]
        return torch.addcmul(even * features.even_waves, odd, features.odd_waves)

    def _features(self, positions: Positions) -> _Features:
        """Everything in the lanes that holds no parameter; all layers of a model share it."""
        dtype = next(self.parameters()).dtype
        return positions.remember((Goat, self.shape, *self.options.values(), dtype), lambda: self._make_features(positions, dtype))

    def _make_features(self, positions: Positions, dtype: torch.dtype) -> _Features:
        even_waves = odd_waves = row_lanes = special = None
        before: list[Tensor] = []
        if self.spectral:
            cos, sin = self._waves(positions)
            before += [cos, sin]  # with a head axis where heads have waves of their own
            num_constant = self.num_lanes - 2 * cos.shape[-1]
            even_waves = F.pad(torch.cat((cos, sin), dim=-1), (0, num_constant), value=1.0).to(dtype)
            odd_waves = F.pad(torch.cat((sin, -cos), dim=-1), (0, num_constant)).to(dtype)
        if self.has_slope:
            recency = integer_lanes(positions.coords[..., 0])[:, None]  # [B|1, 1, K, 2]
            first = sum(t.shape[-1] for t in before)
            row_lanes = F.pad(recency, (first, self.num_lanes - first - 2)).to(dtype)
            before.append(recency)
        if self.has_bump:
            special = (positions.is_prefix if self.shape.num_prefix else positions.order == 0)[:, None, :, None].to(dtype)
        return _Features(even_waves, odd_waves, _join(before).to(dtype) if before else None, special, row_lanes)

    def _waves(self, positions: Positions) -> tuple[Tensor, Tensor]:
        """cos and sin of the phases, [B|1, 1|H, K, A*F] float64; zero on prefix tokens."""
        phase = self._phases(positions)
        cos, sin = phase.cos(), phase.sin()
        if self.shape.num_prefix:
            patch = ~positions.is_prefix[:, None, :, None]
            cos, sin = cos * patch, sin * patch
        return cos, sin

    def _phases(self, positions: Positions) -> Tensor:
        """[B|1, 1|H, K, A*F]; float64, as in float32 they alone are off by 1.6e-3 at 64k tokens."""
        return (positions.coords[..., None] * self.frequencies.to(torch.float64)).flatten(-2)[:, None]


@dataclass(frozen=True, slots=True)
class _Features:
    """What lanes are made of (None: that part is switched off)."""

    even_waves: Tensor | None  # [B|1, 1|H, K, R] of queries: cos, sin, 1 in the lanes that are constant along queries
    odd_waves: Tensor | None  # [B|1, 1|H, K, R] of queries: sin, -cos, 0
    before: Tensor | None  # [B|1, 1|H, K, *] of keys: cos, sin, high, low, the lanes before u0
    special: Tensor | None  # [B|1, 1, K, 1] of keys: the lane behind u0
    row_lanes: Tensor | None  # [B|1, 1, K, R]: high and low at a query's own place


class GoatSpectral(Goat):
    """Ablation: the Fourier series alone, no key-only term and no slope."""

    is_relative = True

    def __init__(self, shape: ModelShape, **options: object) -> None:
        super().__init__(shape, **{**options, "sink": False, "slope": False})


class GoatSink(Goat):
    """Ablation: the key-only term alone (in causal models the sink without the slope)."""

    def __init__(self, shape: ModelShape, **options: object) -> None:
        super().__init__(shape, **{**options, "spectral": False, "slope": False})


class GoatNoSlope(Goat):
    """Ablation: everything but the recency slope, which the paper's code has and its text does not show."""

    def __init__(self, shape: ModelShape, **options: object) -> None:
        super().__init__(shape, **{**options, "slope": False})


class SinkNetwork(nn.Module):
    """u0(j): a small network of bounded features of the key's coordinates, [B|1, K]; zero on prefix tokens.

    1D: cos and sin of the position at `num_frequencies` periods up to 4 train lengths, t / (t + T) and log(1 + t) / log(1 + T)
    with T the train length. 2D: cos and sin per axis at periods 2 T and 4 T ... of the train extent T of that axis, so that the
    trained range stays within one period. The output has no bias: a constant over keys is invisible to softmax.
    """

    def __init__(self, shape: ModelShape, num_frequencies: int, hidden: int) -> None:
        super().__init__()
        self.num_prefix = shape.num_prefix
        self.key = (SinkNetwork, shape, num_frequencies)
        self.train_length = float(shape.train_extent[0]) if shape.num_axes == 1 else None
        periods = [[2.0 * extent * 2.0**n for n in range(num_frequencies)] for extent in shape.train_extent]
        self.register_buffer("frequencies", 2 * math.pi / torch.tensor(periods, dtype=torch.float64), persistent=False)  # [A, F]
        num_features = 2 * shape.num_axes * num_frequencies + (2 if self.train_length else 0)
        self.fc1 = nn.Linear(num_features, hidden)
        self.fc2 = nn.Linear(hidden, 1, bias=False)

    def reset_parameters(self) -> None:
        self.fc1.reset_parameters()
        nn.init.normal_(self.fc2.weight, std=0.01)

    def forward(self, positions: Positions) -> Tensor:
        dtype = self.fc1.weight.dtype
        features = positions.remember((*self.key, dtype), lambda: self._features(positions).to(dtype))
        u0 = self.fc2(F.silu(self.fc1(features))).squeeze(-1)
        return u0 * ~positions.is_prefix if self.num_prefix else u0

    def _features(self, positions: Positions) -> Tensor:
        """[B|1, K, features] float64."""
        phase = (positions.coords[..., None] * self.frequencies.to(torch.float64)).flatten(-2)  # [B|1, K, A*F]
        features = [phase.cos(), phase.sin()]
        if self.train_length:
            t = positions.coords[..., :1].clamp_min(0)
            features += [t / (t + self.train_length), torch.log1p(t) / math.log1p(self.train_length)]
        return torch.cat(features, dim=-1)


def geometric_frequencies(count: int, min_period: float, max_period: float) -> Tensor:
    """`count` angular frequencies, periods geometric from min_period to max_period inclusive; float64."""
    exponent = torch.linspace(0.0, 1.0, count, dtype=torch.float64) if count > 1 else torch.zeros(1, dtype=torch.float64)
    return 2 * math.pi / (min_period * (max_period / min_period) ** exponent)


def _join(lanes: list[Tensor]) -> Tensor:
    """Concatenate lanes whose batch and head axes broadcast."""
    batch, heads = max(t.shape[0] for t in lanes), max(t.shape[1] for t in lanes)
    return torch.cat([t.expand(batch, heads, *t.shape[2:]) for t in lanes], dim=-1)
