"""Biases of the distance along a sequence against their published formulas, written out in float64."""

import math

import pytest
import torch
from attention_cases import assert_close, make_layer, randomise, run, tokens

from goatbench.attention.kernels import Auto, Recording, Reference
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.alibi import Alibi
from goatbench.attention.priors.alibi_learned import AlibiLearned
from goatbench.attention.priors.bam import Bam
from goatbench.attention.priors.bucketed import T5
from goatbench.attention.priors.fire import Fire
from goatbench.attention.priors.kerple import KerpleLog, KerplePower
from goatbench.attention.scheme import ModelShape

HEADS = 4


def line_shape(causal: bool = True, num_axes: int = 1) -> ModelShape:
    return ModelShape(num_axes, causal, 32, 3, HEADS, HEADS, 32, (64,) * num_axes)


def dense(scheme, length: int, offset: int = 0) -> torch.Tensor:
    """[H, length - offset, length]: the last queries over all keys."""
    keys = Positions.line(length)
    queries = Positions.line(length - offset, offset) if offset else keys
    return scheme.prior(queries, keys).dense(HEADS, length - offset, length, dtype=torch.float64)[0].detach()


def in_float64(scheme, seed: int = 0):
    scheme = scheme.double()
    randomise(scheme, seed)
    return scheme


# T5


@pytest.mark.parametrize(("distance", "bucket"), [(0, 0), (15, 15), (16, 16), (18, 16), (19, 17), (127, 31), (128, 31), (299, 31)])
def test_t5_buckets_of_the_past(distance, bucket):
    """32 buckets up to 128: 16 + floor(16 ln(d / 16) / ln 8), worked out by hand; the future shares the bucket of distance 0."""
    scheme = in_float64(T5(line_shape()))
    prior = dense(scheme, 300)
    assert_close(prior[:, 299, 299 - distance], scheme.table[bucket].detach())
    assert_close(prior[:, 3, 7], scheme.table[0].detach())


def test_t5_buckets_of_both_sides():
    """Half of the buckets for each side: 8 + floor(8 ln(d / 8) / ln 16), at exact powers of two as well."""
    scheme = in_float64(T5(line_shape(causal=False)))
    prior = dense(scheme, 300)
    for distance in range(1, 300):
        bucket = distance if distance < 8 else min(8 + math.floor(8 * math.log(distance / 8) / math.log(16) + 1e-9), 15)
        assert_close(prior[:, 299, 299 - distance], scheme.table[bucket].detach())
        assert_close(prior[:, 0, distance], scheme.table[16 + bucket].detach())


# KERPLE


@pytest.mark.parametrize("kind", [KerpleLog, KerplePower])
def test_kerple_is_its_kernel(kind):
    scheme = kind(line_shape()).double()
    a, b = torch.tensor([[0.3, 1.7, 0.01, 5.0], [0.9, 0.2, 1.9, 0.01]], dtype=torch.float64)
    with torch.no_grad():
        scheme.scale.copy_(a)
        scheme.exponent.copy_(b)
    distance = (torch.arange(200.0).double()[:, None] - torch.arange(200.0).double()).abs()
    a, b = a[:, None, None], b[:, None, None]
    expected = -a * torch.log(1 + b * distance) if kind is KerpleLog else -a * distance**b
    assert_close(dense(scheme, 200), expected)


def test_kerple_parameters_rest_on_their_bounds_and_can_leave_them():
    """Below 0.01 the value is 0.01's; gradient descent may raise the parameter and not lower it further. The power is at most 2."""
    scheme = KerplePower(line_shape()).double()
    with torch.no_grad():
        scheme.scale.copy_(torch.tensor([-1.0, -1.0, 0.5, 0.5]))
        scheme.exponent.copy_(torch.tensor([1.0, 1.0, 3.0, 1.0]))
    prior = scheme.prior(Positions.line(4), Positions.line(4)).dense(HEADS, 4, 4, dtype=torch.float64)[0]
    assert_close(prior[:, 3, 0].detach(), torch.tensor([-0.03, -0.03, -4.5, -1.5], dtype=torch.float64))
    (prior[0, 3, 0] - prior[1, 3, 0] + prior[2, 3, 0]).backward()
    assert_close(scheme.scale.grad, torch.tensor([-3.0, 0.0, -9.0, 0.0]).double())
    assert float(scheme.exponent.grad[2]) == 0.0


def test_kerple_starts_where_it_was_published():
    torch.manual_seed(0)
    wide = ModelShape(1, True, 32, 1, 4096, 4096, 32, (64,))
    for kind, a, b in ((KerpleLog, 2, 1), (KerplePower, 1, 2)):
        scheme = kind(wide)
        for parameter, top in ((scheme.scale.detach(), a), (scheme.exponent.detach(), b)):
            assert 0 <= float(parameter.min()) < 0.01 * top and 0.99 * top < float(parameter.max()) <= top
            assert float(parameter.mean()) == pytest.approx(top / 2, rel=0.05)


# FIRE


def test_fire_is_its_network_of_the_normalised_logarithm():
    scheme = in_float64(Fire(line_shape(), threshold=20.0))
    c, threshold = float(scheme.contraction.detach()), abs(float(scheme.multiplier.detach())) * 20
    prior = dense(scheme, 60)
    for i, j in ((0, 0), (5, 2), (30, 29), (59, 0), (59, 40)):
        x = math.log(abs(c * (i - j)) + 1) / (math.log(abs(c * max(i, threshold)) + 1) + 1e-6)
        hidden = torch.relu(scheme.hidden.weight[:, 0] * x + scheme.hidden.bias)
        assert_close(prior[:, i, j], (scheme.out.weight @ hidden).detach())
    assert_close(dense(scheme, 60, offset=53), prior[:, 53:])  # a cached query brings its own place
    assert float((prior[:, 59, 49] - prior[:, 40, 30]).abs().max()) > 1e-3  # no function of the distance alone
    with torch.no_grad():
        scheme.out.weight.zero_()
    assert not dense(scheme, 9).any()


def test_fire_has_the_published_parameters():
    """66 + 33 H a layer, of which the H output biases are left out, as they are constants of a row."""
    scheme = Fire(line_shape())
    assert sum(p.numel() for p in scheme.parameters()) + scheme.published_extra_parameters() == 66 + 33 * HEADS
    assert float(scheme.contraction) == pytest.approx(0.1) and float(scheme.multiplier) == 1 and scheme.first_threshold == 512


# BAM


def test_bam_starts_as_alibi():
    expected = dense(Alibi(line_shape()), 200)
    actual = dense(Bam(line_shape(), ssmax=False), 200)
    past = torch.ones(200, 200, dtype=torch.bool).tril()
    torch.testing.assert_close(actual[:, past], expected[:, past], rtol=1e-5, atol=1e-4)
    assert float((dense(in_float64(Bam(line_shape(), ssmax=False)), 200)[:, past] - expected[:, past]).abs().max()) > 0.1


def test_bam_with_a_negative_exponent_is_finite():
    """beta = -3 would give the own token a penalty of 10^15; it is bounded at 10^4, without a NaN in the gradients."""
    scheme = Bam(line_shape(), ssmax=False)
    with torch.no_grad():
        scheme.beta.fill_(-3.0)
        scheme.log_slope.zero_()
    prior = scheme.prior(Positions.line(5), Positions.line(5)).dense(HEADS, 5, 5)[0]
    assert_close(prior[0, 4, 1:].detach(), -torch.tensor([1 / 27, 1 / 8, 1.0, 1e4]), atol=1e-4, rtol=1e-4)
    prior.sum().backward()
    assert all(p.grad.isfinite().all() for p in scheme.parameters())


@pytest.mark.parametrize("kernel", [Auto(), Reference()])
def test_scalable_softmax_multiplies_all_logits(kernel):
    """Content and prior times t ln(n), n = 1, 2, ...: softmax written out, on the layer's own projections."""
    layer = make_layer("bam", "line", kernel=kernel)
    x, scheme, n = tokens(9), layer.scheme, 9
    split = lambda t: t.unflatten(-1, (-1, 32)).transpose(1, 2)
    q, k, v = split(layer.q_proj(x)), split(layer.k_proj(x)), split(layer.v_proj(x))
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    distance = (torch.arange(n)[:, None] - torch.arange(n)).abs() + 1e-5
    column = lambda p: p.double()[:, None, None]
    prior = -column(scheme.log_slope.exp()) * distance ** column(scheme.beta)
    logits = column(scheme.gain) * torch.arange(1, n + 1).log().double()[:, None] * (q @ k.transpose(-1, -2) / 32**0.5 + prior)
    weights = logits.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    expected = layer.proj((weights @ v).transpose(1, 2).flatten(2))
    assert_close(run(layer, x, Positions.line(n), Mask(causal=True)), expected, atol=1e-5, rtol=1e-5)


# Learned slopes


def test_learned_slopes_start_as_alibi_and_move():
    shape, positions = line_shape(), Positions.line(300)
    scheme = AlibiLearned(shape)
    assert_close(dense(scheme, 300), dense(Alibi(shape), 300), atol=1e-4, rtol=1e-5)
    with torch.no_grad():
        scheme.log_slope.fill_(math.log(0.2))
    prior = scheme.prior(positions, positions).dense(HEADS, 300, 300, dtype=torch.float64)
    assert float(prior[0, 0, 299, 9]) == pytest.approx(-0.2 * 290, rel=1e-5)
    prior[0, 1, 299, 9].backward()
    assert_close(scheme.log_slope.grad, torch.tensor([0.0, -58.0, 0.0, 0.0]), atol=1e-3)


# What they share


def test_published_sharing_over_layers():
    for shared in (T5(line_shape()), KerpleLog(line_shape()), KerplePower(line_shape()), Bam(line_shape())):
        assert shared.for_layer(0) is shared.for_layer(2)
    for own in (Fire(line_shape()), AlibiLearned(line_shape()), Bam(line_shape(), shared=False)):
        assert own.for_layer(0) is not own.for_layer(2)


@pytest.mark.parametrize(("name", "kernel"), [("t5", "sdpa-math"), ("fire", "sdpa-math"), ("alibi_learned", "sdpa-flash")])
def test_the_record_says_where_a_learned_bias_trains(name, kernel):
    spy = Recording(Auto())
    layer = make_layer(name, "line", kernel=spy, dtype=torch.float32)
    run(layer, tokens(37, dtype=torch.float32), Positions.line(37)).sum().backward()
    assert spy.used == {kernel} and all(p.grad.abs().max() > 0 for p in layer.scheme.parameters())


def test_impossible_shapes_are_refused():
    for kind in (AlibiLearned, Fire, Bam):
        with pytest.raises(ValueError, match="causal and one-dimensional"):
            kind(line_shape(causal=False))
    for kind in (T5, KerpleLog, KerplePower):
        with pytest.raises(ValueError, match="one-dimensional; for images use"):
            kind(line_shape(causal=False, num_axes=2))
    with pytest.raises(ValueError, match="num_buckets = 31"):
        T5(line_shape(), num_buckets=31)
    with pytest.raises(ValueError, match="positive number"):
        Fire(line_shape(), threshold=0.0)
