"""bf16 at 16,384 tokens: the last 64 rows of every one-dimensional mechanism against float64, without a logit of the rows before."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from attention_cases import GATED, INNER, LINES, POSITIVE, make_inner, make_scheme, make_shape, move, randomise
from torch import Tensor

from goatbench.attention.cache import FullCache
from goatbench.attention.layer import SelfAttention
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.recency import alibi_slopes
from goatbench.attention.scheme import PositionScheme
from goatbench.attention.sink_token import behind_prefix

N, ROWS, HEADS, DIM = 16_384, 64, 2, 16
CAUSAL = Mask(causal=True)
FLAT = {"slope_raw": -6.0, "log_slope": -6.0, "gate.bias": 6.0}  # a decay of 0.0025 nats a token: thousands of keys matter


class OneLane(PositionScheme):
    """ALiBi as slope * j in a single lane: what the rows here must not do."""

    num_lanes = 1

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        slopes = alibi_slopes(self.shape.num_heads)[None, :, None, None].expand(-1, -1, query_positions.num_tokens, -1)
        return LogPrior(slopes, key_positions.coords[:, None].float())


def make_layer(name: str, scheme: type[PositionScheme] | None = None) -> SelfAttention:
    """float32, with weights that bf16 holds exactly."""
    torch.manual_seed(0)
    given = make_shape(name, "line")
    shape = replace(given, num_heads=HEADS, num_kv_heads=HEADS, train_extent=(N,))
    inner = make_inner(name)
    if name == "mta":  # as many queries as published, fewer keys: a fourth of the time
        inner = partial(inner.func, **{**INNER[name]["inner_options"], "key_kernel": 3})
    layer = SelfAttention(shape, make_scheme(name, shape) if scheme is None else scheme(shape), inner=inner, **GATED.get(name, {}))
    randomise(layer.scheme)
    move(layer.inner)
    with torch.no_grad():
        for key, parameter in layer.scheme.named_parameters():
            if name in POSITIVE:
                parameter.abs_().add_(0.1)
            for part, value in FLAT.items():
                if key.endswith(part):
                    parameter.fill_(-value if name == "cable" else value)
        for key, parameter in layer.named_parameters():
            if "scheme" not in key:
                parameter.copy_(parameter.bfloat16())
    return layer


def last_rows(layer: SelfAttention, x: Tensor) -> Tensor:
    """The outputs of the last tokens of x [1, N, DIM]; all others are in the cache, as keys, values and what else the layer keeps."""
    positions, prefix, mask, cache = Positions.line(N), layer.scheme.prefix(), CAUSAL, FullCache()
    x = layer.scheme.embed(x, positions)
    past, positions = x[:, :-ROWS], Positions.line(N - ROWS)
    if prefix is not None:
        past, positions, mask, _ = behind_prefix(prefix, past, positions, mask, None)
    layout = layer.head_layout
    split = lambda projection, heads: projection(past).unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = split(layer.q_proj, layout.num_q), split(layer.k_proj, layout.num_k), split(layer.v_proj, layout.num_v)
    cache.update(0, {"k": k, "v": v, **layer.scheme.token_state(past), **layer.inner.token_state(past, q)}, positions)
    return layer(x[:, -ROWS:], Positions.line(ROWS, N - ROWS), mask, cache)


def error_in_bf16(layer: SelfAttention) -> float:
    """Root of the mean square, relative to float64 from the same weights and tokens."""
    x = torch.randn(1, N, DIM, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.inference_mode():
        found = last_rows(layer.to(torch.bfloat16), x).double()
        expected = last_rows(layer.double(), x.double())
    assert found.shape == (1, ROWS, DIM) and found.isfinite().all()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", LINES)
def test_the_last_rows_of_16k_tokens(name):
    """Measured 0.002 to 0.009, of which the rounding of content is 0.002."""
    assert error_in_bf16(make_layer(name)) < 0.015


def test_a_single_lane_for_the_recency_would_fail():
    assert error_in_bf16(make_layer("alibi", OneLane)) > 0.1
