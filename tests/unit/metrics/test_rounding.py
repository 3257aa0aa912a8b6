"""Rounding of an attention layer: against dense float64 formulas written out here, and the staircase of one bf16 lane."""

from __future__ import annotations

import math

import pytest
import torch
from attention_cases import OPTIONS

from goatbench.attention.positions import Positions
from goatbench.attention.priors.recency import alibi_slopes
from goatbench.metrics import rounding as r
from goatbench.models import Decoder

ROWS, LENGTH = 8, 700


def layer_of(name: str, **options):
    torch.manual_seed(0)
    sizes = dict(vocab_size=5, num_scored=5, seq_len=64, embed_dim=64, depth=1, num_heads=2, mlp_ratio=1.0)
    return r.exact_layer(Decoder(name, OPTIONS.get(name), **sizes, **options).attention_layers[0], seed=3)


def heads(t: torch.Tensor) -> torch.Tensor:
    return t.unflatten(-1, (2, -1)).transpose(1, 2)


def dense(layer, x: torch.Tensor, log_prior: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [1, Q, C] and rows [1, H, Q, K] of the last queries: softmax(q k / sqrt(D) + log_prior) v, all in float64."""
    q, k, v = (heads(x[..., p.index].double()) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    logits = q[:, :, -ROWS:] @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + log_prior
    query = torch.arange(LENGTH - ROWS, LENGTH)[:, None]
    rows = logits.masked_fill(torch.arange(LENGTH) > query, -math.inf).softmax(-1)
    return (rows @ v).transpose(1, 2).flatten(2), rows


def recency(slopes: torch.Tensor) -> torch.Tensor:
    query, key = torch.arange(LENGTH - ROWS, LENGTH)[:, None], torch.arange(LENGTH)
    return -slopes.double()[:, None, None] * (query - key)


def test_content_is_a_number_of_every_dtype():
    x = r.content(500, 16, 0)
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(x.to(dtype).float(), x)
    assert x.std() == pytest.approx(1, abs=0.05) and not torch.equal(x, x.half().round().float())


@pytest.mark.parametrize("name", ["nope", "alibi"])
def test_the_last_rows_in_float64_are_the_dense_formula(name):
    layer, x = layer_of(name), r.content(LENGTH, 64, 1)
    slopes = alibi_slopes(2) if name == "alibi" else torch.zeros(2)
    out, rows = dense(layer, x, recency(slopes))
    found = r.last_rows(r.in_dtype(layer, torch.float64), x.double(), Positions.line(LENGTH), ROWS)
    torch.testing.assert_close(found.out, out, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.weights[..., 1:], rows, rtol=0, atol=1e-12)
    assert (found.weights[..., 0] == 0).all()


def test_a_position_in_bf16_is_a_staircase_and_two_integer_lanes_are_not():
    """ALiBi with coordinates held in bf16, from the formula: keys at round(j). With exact coordinates its two lanes leave only the
    rounding of the slope, here a power of two: rows as without any prior."""
    layer, x = layer_of("alibi"), r.content(LENGTH, 64, 1)
    slopes = alibi_slopes(2)
    assert torch.equal(slopes.bfloat16().float(), slopes)
    _, rows = dense(layer, x, recency(slopes))
    query, key = torch.arange(LENGTH - ROWS, LENGTH)[:, None], torch.arange(LENGTH)
    steps = query.bfloat16().double() - key.bfloat16().double()
    _, stairs = dense(layer, x, -slopes.double()[:, None, None] * steps)
    expected = (stairs - rows).abs().sum(-1).mean((0, 2)) / 2
    true = r.last_rows(r.in_dtype(layer, torch.float64), x.double(), Positions.line(LENGTH), ROWS)
    low = r.in_dtype(layer, torch.bfloat16)
    exact = r.last_rows(low, x.bfloat16(), Positions.line(LENGTH), ROWS)
    naive = r.last_rows(low, x.bfloat16(), r.rounded(Positions.line(LENGTH), torch.bfloat16), ROWS)
    found = r.total_variation(naive.weights, true.weights)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=2e-3)
    assert found.max() > 0.02
    assert (r.total_variation(exact.weights, true.weights) < 2e-3).all()
    assert r.relative_error(exact.out, true.out) < 6e-3  # two roundings to 8 bits
    assert r.relative_error(naive.out, true.out) > 3 * r.relative_error(exact.out, true.out)


def test_one_recency_lane_is_worse_than_two():
    """The released GOAT code holds slope * j in one lane."""
    x, positions = r.content(LENGTH, 64, 1), Positions.line(LENGTH)
    errors = {}
    for name in ("goat_reference", "goat"):
        layer = layer_of(name)
        true, low = (
            r.last_rows(r.in_dtype(layer, dtype), x.to(dtype), positions, ROWS) for dtype in (torch.float64, torch.bfloat16)
        )
        errors[name] = float(r.total_variation(low.weights, true.weights).max())
    assert errors["goat_reference"] > 3 * errors["goat"]


def test_a_sink_is_a_column_of_its_own():
    layer, x = layer_of("sink_scalar"), r.content(LENGTH, 64, 1)
    found = r.last_rows(r.in_dtype(layer, torch.float64), x.double(), Positions.line(LENGTH), ROWS)
    q, k = (heads(x[..., p.index].double()) for p in (layer.q_proj, layer.k_proj))
    logits = (q[:, :, -1:] @ k.transpose(-1, -2) / math.sqrt(32))[:, :, 0]
    sink = layer.scheme.prior(None, None).sink.detach().double()
    expected = sink.exp() / (sink.exp() + logits.exp().sum(-1)[0])
    torch.testing.assert_close(found.weights[0, :, -1, 0], expected, rtol=1e-9, atol=0)


def test_errors_by_hand():
    assert r.relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)
    rows = torch.tensor([[[[0.0, 0.5, 0.5]]], [[[0.0, 1.0, 0.0]]]])
    moved = torch.tensor([[[[0.1, 0.5, 0.4]]], [[[0.0, 0.0, 1.0]]]])
    torch.testing.assert_close(r.total_variation(moved, rows), torch.tensor([(0.1 + 1.0) / 2]))
    true = {"a": torch.tensor([1.0, 0.0]), "silent": torch.tensor([1e-14])}
    assert r.gradient_errors({"a": torch.tensor([1.0, 0.5]), "silent": torch.tensor([1.0])}, true) == {"a": pytest.approx(0.5)}


def test_gradients_in_float64_are_differences_of_the_function():
    layer, positions = r.in_dtype(layer_of("alibi_learned"), torch.float64), Positions.line(40)
    x, weight = r.content(40, 64, 1).double(), r.content(40, 64, 2).double()
    found = r.gradients(layer, x, positions, weight)
    ((name, parameter),) = layer.scheme.named_parameters()
    value = lambda: float((r.last_rows(layer, x, positions, 39).out * weight[:, 1:]).sum())  # token 0 sees itself alone
    expected = []
    for head in range(2):
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter[head] += step
                ends.append(value())
                parameter[head] -= step
        expected.append((ends[0] - ends[1]) / 2e-5)
    assert list(found) == [f"scheme.{name}"]
    torch.testing.assert_close(found[f"scheme.{name}"], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-8)
