"""GOAT exactly as the authors' code computes it: the row that shows what their choices cost.

Source: the released package goat-attention 0.1.1 (MIT) beside arXiv 2601.15380. What differs from `Goat`:

- one key lane holds sink and recency together (slope * j: in bf16 a staircase);
- frequencies base^(-r / (R - 1)), base 10,000, one list split over the axes: y takes the first (high), x the rest (low);
- the sink network sees the raster index t (t / T and log(1 + t) / log(1 + T)) beside the Fourier features;
- parameters are tied per key/value head, and the bump sits on the first token, whatever it is.

Same function, without its dead rows: q and k are projected to the content dims only, and parameters that a setting never
uses (the gate; the slope of a bidirectional model) do not exist.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .recency import alibi_slopes, inverse_softplus


class GoatReference(PositionScheme):
    """pos_rank, abs_rank: numbers R and M of relative and absolute frequencies, over all axes; pos_rank None: head_dim / 4.

    base: of both ladders of frequencies.
    init: 'seeded' (their language models: ALiBi's slopes, spectral part N(0, 0.01)) or 'uniform' (their ViT: a flat prior).
    train_length: T of the sink features; None: the train extent in 1D, as in their language models (with the number of keys, cached
                  decoding would differ from one pass), and the number of keys minus one in 2D, as their ViT leaves it.
    """

    is_relative = False

    def __init__(
        self,
        shape: ModelShape,
        pos_rank: int | None,
        abs_rank: int,
        init: str = "seeded",
        train_length: int | None = None,
        base: float = 10_000.0,
    ) -> None:
        super().__init__(shape)
        if init not in ("seeded", "uniform"):
            raise ValueError(f"init = {init!r}: allowed are 'seeded' and 'uniform'")
        pos_rank = shape.head_dim // 4 if pos_rank is None else pos_rank
        train_length = shape.train_extent[0] if train_length is None and shape.num_axes == 1 else train_length
        self.pos_rank, self.abs_rank, self.init, self.train_length, self.base = pos_rank, abs_rank, init, train_length, base
        self.num_lanes = 2 * pos_rank + 1
        heads = shape.num_kv_heads
        self.lambda_sym = nn.Parameter(torch.empty(heads, pos_rank))
        self.lambda_asym = nn.Parameter(torch.empty(heads, pos_rank))
        self.sink_gain = nn.Parameter(torch.empty(heads))
        self.sink_bump = nn.Parameter(torch.empty(heads))
        if shape.causal:
            self.recency_slope_raw = nn.Parameter(torch.empty(heads))
        num_features = 2 * abs_rank + 2
        hidden = min(2 * num_features, 4)
        self.fc1 = nn.Linear(num_features, hidden)
        self.fc2 = nn.Linear(hidden, 1)
        self.register_buffer("relative_frequencies", _ladder(pos_rank, base), persistent=False)
        self.register_buffer("absolute_frequencies", _ladder(abs_rank, base), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        seeded = self.init == "seeded"
        nn.init.normal_(self.lambda_sym, std=0.01 if seeded else 0.0)
        nn.init.zeros_(self.lambda_asym)
        nn.init.ones_(self.sink_gain)
        nn.init.zeros_(self.sink_bump)
        nn.init.normal_(self.fc1.weight, std=0.001)
        nn.init.normal_(self.fc2.weight, std=0.001 if seeded else 0.0)
        nn.init.zeros_(self.fc1.bias)
        nn.init.zeros_(self.fc2.bias)
        if self.shape.causal:
            with torch.no_grad():
                slopes = alibi_slopes(self.shape.num_kv_heads)
                self.recency_slope_raw.copy_(inverse_softplus(slopes) if seeded else torch.full_like(slopes, -30.0))

    def published_extra_parameters(self) -> int:
        """What one layer of the published code holds beyond this row: q and k rows of the lanes, projected and thrown away; the k
        bias; the gate; and the slope of a bidirectional model. None of them ever changes an output."""
        shape, lanes = self.shape, self.num_lanes
        dead_rows = lanes * (shape.num_heads * (shape.embed_dim + 1) + shape.num_kv_heads * shape.embed_dim)
        unused = shape.num_kv_heads * shape.head_dim + 2 * shape.num_heads + (0 if shape.causal else shape.num_kv_heads)
        return dead_rows + unused

    def for_layer(self, layer_index: int) -> GoatReference:
        return type(self)(self.shape, self.pos_rank, self.abs_rank, self.init, self.train_length, self.base)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        group = self.shape.num_heads // self.shape.num_kv_heads
        cos_q, sin_q = self._waves(query_positions, self.relative_frequencies)
        cos_k, sin_k = self._waves(key_positions, self.relative_frequencies)
        even = self.lambda_sym.repeat_interleave(group, dim=0)[:, None, :]  # [H, 1, R]
        odd = self.lambda_asym.repeat_interleave(group, dim=0)[:, None, :]
        spectral_q = torch.cat((even * cos_q + odd * sin_q, even * sin_q - odd * cos_q), dim=-1)  # [B|1, H, Q, 2R]
        spectral_k = torch.cat((cos_k, sin_k), dim=-1)  # [B|1, 1, K, 2R]
        key_lane = self._key_term(key_positions)[..., None]  # [B|1, G, K, 1]
        batch, heads = key_lane.shape[:2]
        k_lanes = torch.cat((spectral_k.expand(batch, heads, -1, -1), key_lane), dim=-1)
        q_lanes = torch.cat((spectral_q, torch.ones_like(spectral_q[..., :1])), dim=-1)
        row_lanes = None
        if self.shape.causal:  # a row term for sinks: minus slope * i
            slopes = F.softplus(self.recency_slope_raw).repeat_interleave(group)
            q_term = -slopes[:, None] * query_positions.order[:, None].to(q_lanes.dtype)
            return LogPrior(q_lanes, k_lanes, row_lanes, q_term=q_term)
        return LogPrior(q_lanes, k_lanes, row_lanes)

    def _key_term(self, positions: Positions) -> Tensor:
        """u_h(j): gain * network + bump on the first token (+ slope * t in causal models), [B|1, G, K]."""
        dtype = self.fc1.weight.dtype
        t = positions.order.to(dtype)  # the raster index, prefix included
        length = float(self.train_length if self.train_length is not None else max(positions.num_tokens - 1, 1))
        features = [*self._waves(positions, self.absolute_frequencies)]
        ramp = torch.stack((t / length, torch.log1p(t.clamp_min(0)) / math.log1p(length)), dim=-1)[:, None]  # padding: t < 0
        hidden = F.silu(self.fc1(torch.cat((*features, ramp), dim=-1)))
        shared = self.fc2(hidden).squeeze(-1)  # [B|1, 1, K]
        first = (positions.order == 0).to(dtype)[:, None]
        term = self.sink_gain[:, None] * shared + self.sink_bump[:, None] * first
        if self.shape.causal:
            term = term + F.softplus(self.recency_slope_raw)[:, None] * t[:, None]
        return term

    def _waves(self, positions: Positions, frequencies: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, [B|1, 1, K, number of frequencies]; in 2D the list is split: y the first (rounded up), x the rest."""
        frequencies = frequencies.to(torch.float64)
        if self.shape.num_axes == 1:
            phase = positions.coords * frequencies
        else:
            first = (len(frequencies) + 1) // 2
            phase = torch.cat((positions.coords[..., :1] * frequencies[:first], positions.coords[..., 1:] * frequencies[first:]), dim=-1)
        cos, sin = phase.cos()[:, None], phase.sin()[:, None]
        if self.shape.num_prefix:
            patch = ~positions.is_prefix[:, None, :, None]
            cos, sin = cos * patch, sin * patch
        return cos.to(self.lambda_sym.dtype), sin.to(self.lambda_sym.dtype)


def _ladder(count: int, base: float) -> Tensor:
    """base^(-r / max(count - 1, 1)), r = 0 .. count - 1: from 1 down to 1 / base inclusive."""
    return base ** (-torch.arange(count, dtype=torch.float64) / max(count - 1, 1))
