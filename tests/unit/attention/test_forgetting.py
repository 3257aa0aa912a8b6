"""Forgetting attention and CABLE against the double sum of their equations, in one pass, in chunks and far out in bf16."""

import math

import pytest
import torch
from attention_cases import assert_close, make_layer, make_shape, run, tokens

from goatbench.attention.cache import FullCache
from goatbench.attention.kernels import Problem, Reference, Sdpa
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.forgetting import Cable, Fox
from goatbench.attention.scheme import ModelShape, NoPosition

N = 9


def log_gate(name: str, z: float) -> float:
    """log sigmoid(z) of fox, -softplus(z) of cable."""
    return -math.log1p(math.exp(-z)) if name == "fox" else -math.log1p(math.exp(z))


def dense_attention(name: str, layer, x: torch.Tensor) -> torch.Tensor:
    """softmax(q k / sqrt(d) + sum of log f over l = j+1 .. i) v, written out; the diagonal has no gate."""
    heads = layer.shape.num_heads
    q, k, v = (p(x).unflatten(-1, (heads, -1)).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    z = (x @ layer.scheme.gate.weight.T + layer.scheme.gate.bias).tolist()
    decay = torch.full((len(x), heads, N, N), -math.inf, dtype=x.dtype)
    for b in range(len(x)):
        for h in range(heads):
            for i in range(N):
                for j in range(i + 1):
                    decay[b, h, i, j] = sum(log_gate(name, z[b][m][h]) for m in range(j + 1, i + 1))
    out = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + decay).softmax(-1) @ v
    return layer.proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("name", ["fox", "cable"])
def test_attention_decays_by_the_product_of_the_gates_in_between(name):
    layer, x = make_layer(name, "line"), tokens(N)
    assert_close(run(layer, x, Positions.line(N)), dense_attention(name, layer, x), atol=1e-12)


def test_the_two_rows_differ_by_the_sign_of_their_projection():
    fox, cable, x = make_layer("fox", "line"), make_layer("cable", "line"), tokens(N)
    assert float((run(fox, x, Positions.line(N)) - run(cable, x, Positions.line(N))).detach().abs().max()) > 1e-3
    with torch.no_grad():
        for parameter in cable.scheme.parameters():
            parameter.neg_()
    assert_close(run(cable, x, Positions.line(N)), run(fox, x, Positions.line(N)), atol=1e-13)


@pytest.mark.parametrize(("name", "bias"), [("fox", 800.0), ("cable", -800.0)])
def test_gates_that_stay_open_are_no_position_at_all(name, bias):
    layer, x = make_layer(name, "line"), tokens(N)
    plain = SelfAttention(layer.shape, NoPosition(layer.shape)).double()
    plain.load_state_dict({key: t for key, t in layer.state_dict().items() if "scheme" not in key})
    with torch.no_grad():
        layer.scheme.gate.weight.zero_()
        layer.scheme.gate.bias.fill_(bias)
    assert_close(run(layer, x, Positions.line(N)), run(plain, x, Positions.line(N)), atol=1e-13)


def test_initial_decay_is_one_half_a_token():
    shape = make_shape("fox", "line")
    for cls in (Fox, Cable):
        scheme = cls(shape)
        assert scheme.gate.weight.std().item() == pytest.approx(0.02, rel=0.4) and (scheme.gate.bias == 0).all()
        state = scheme.token_state(torch.zeros(1, 5, shape.embed_dim))
        positions = Positions.line(5)
        prior = scheme.prior(positions, positions, state).dense(shape.num_heads, 5, 5)
        assert_close(prior[0, 0, 4, 1], torch.tensor(-3 * math.log(2)), atol=1e-6)


def test_the_row_term_reaches_the_sink():
    """A sink's logit is not shifted by the gates: P_sink = 1 / (1 + sum of e^l) with the decays counted from the query."""
    shape = make_shape("fox", "line")
    scheme, positions = Fox(shape).double(), Positions.line(N)
    state = scheme.token_state(tokens(N))
    prior = scheme.prior(positions, positions, state).dense(shape.num_heads, N, N)
    assert_close(prior.diagonal(dim1=-2, dim2=-1), torch.zeros(2, shape.num_heads, N, dtype=torch.float64), atol=1e-13)


def test_sums_go_on_across_cached_chunks_in_float32():
    """Decays of thousands of nats: 4,096 cached tokens, then one; the log-sum-exp of the last row is that of float64."""
    shape = ModelShape(1, True, 16, 1, 2, 2, 8, (64,))
    scheme, x = Fox(shape), tokens(4097, batch=1, dtype=torch.float32)
    cache, both = FullCache(), []
    for part, offset in ((x[:, :4096], 0), (x[:, 4096:], 4096)):
        streams, keys, queries = cache.update(0, scheme.token_state(part), Positions.line(part.shape[1], offset))
        both.append(scheme.prior(queries, keys, streams).dense(2, queries.num_tokens, keys.num_tokens) if offset else None)
    exact = Fox(shape).double()
    exact.load_state_dict(scheme.double().state_dict())
    whole, last = Positions.line(4097), Positions.line(1, 4096)
    expected = exact.prior(last, whole, exact.token_state(x.double())).dense(2, 1, 4097)
    assert float(expected.detach().min()) < -2000
    assert_close(both[1][..., -64:].double(), expected[..., -64:], atol=2e-5)
    assert_close(both[1].double(), expected, atol=2e-3)


@pytest.mark.parametrize("name", ["fox", "cable"])
def test_bf16_far_out_is_at_the_floor_of_its_content(name):
    """16,384 keys, the last 64 rows: with the decay the error is no more than twice that of the content alone."""
    shape, n, rows = ModelShape(1, True, 16, 1, 2, 2, 32, (64,)), 16384, 64
    scheme = {"fox": Fox, "cable": Cable}[name](shape)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, m, 32, generator=generator) for m in (rows, n, n))
    x = torch.randn(1, n, 16, generator=generator)
    keys, queries = Positions.line(n), Positions.line(rows, n - rows)
    mask = Mask(causal=True).bind(queries, keys)
    errors = {}
    with torch.no_grad():
        scheme.gate.bias.fill_(3.0 if name == "fox" else -3.0)  # about 0.05 nats a token: 800 in all
        prior = scheme.prior(queries, keys, scheme.token_state(x))
        exact_scheme = type(scheme)(shape).double()
        exact_scheme.load_state_dict(scheme.state_dict())
        exact_prior = exact_scheme.prior(queries, keys, exact_scheme.token_state(x.double()))
        for label, ours, theirs in (("decay", prior, exact_prior), ("content", type(prior)(), type(prior)())):
            out, _ = Sdpa()(Problem(*(t.bfloat16() for t in (q, k, v)), ours, mask, 32**-0.5))
            exact, _ = Reference()(Problem(*(t.bfloat16().double() for t in (q, k, v)), theirs, mask, 32**-0.5))
            errors[label] = float((out.double() - exact).norm() / exact.norm())
    assert errors["decay"] < max(2 * errors["content"], 0.01)


def test_what_it_is_not_defined_for_is_refused():
    with pytest.raises(ValueError, match="fox is causal"):
        Fox(ModelShape(1, False, 16, 1, 4, 4, 8, (64,)))
    with pytest.raises(ValueError, match="cable has a gate per query head"):
        Cable(ModelShape(1, True, 16, 1, 4, 2, 8, (64,)))
