"""Differential attention against its formula map by map, and what sets its two versions apart from plain attention."""

import math

import pytest
import torch
from attention_cases import assert_close, move, randomise

from goatbench.attention.inner.differential import DifferentialV1, DifferentialV2
from goatbench.attention.kernels import Auto, Recording, Reference
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.alibi import Alibi
from goatbench.attention.priors.bucketed import T5
from goatbench.attention.priors.forgetting import Fox
from goatbench.attention.priors.fourier import Goat
from goatbench.attention.priors.sink import SinkScalar
from goatbench.attention.rotary import Rope
from goatbench.attention.scheme import ModelShape, NoPosition, Role
from goatbench.models.backbone import scheme_factory

HEADS, KV_HEADS, HEAD_DIM, DIM, LENGTH = 8, 4, 16, 24, 13
CLASSES = {"v1": DifferentialV1, "v2": DifferentialV2}
fox_with_sink = scheme_factory("fox+sink_scalar", "carve")  # its row term is read by a sink only


def make(version: str, cls=NoPosition, kernel=None, layer_index: int = 0, kv_heads: int = KV_HEADS, **options) -> SelfAttention:
    torch.manual_seed(0)
    shape = ModelShape(1, True, DIM, 6, HEADS, kv_heads, HEAD_DIM, (64,))
    inner = CLASSES[version]
    layer = SelfAttention(shape, cls(inner.scheme_shape(shape), **options), kernel=kernel, inner=inner, layer_index=layer_index).double()
    randomise(layer.scheme)
    move(layer.inner)
    return layer


def draw(seed: int = 1) -> torch.Tensor:
    return torch.randn(2, LENGTH, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(layer: SelfAttention, x: torch.Tensor, version: str) -> torch.Tensor:
    """Head by head, map by map, softmax with every number written out; maps 2h and 2h + 1 are a pair."""
    inner, scheme, shape, n = layer.inner, layer.scheme, layer.shape, x.shape[1]
    positions = Positions.line(n)
    D = layer.head_layout.content_dim
    q, k = layer.q_proj(x).split(D, dim=-1), layer.k_proj(x).split(D, dim=-1)
    heads, kv = (shape.num_heads // 2, shape.num_kv_heads // 2) if version == "v1" else (shape.num_heads, shape.num_kv_heads)
    v = layer.v_proj(x).split(2 * HEAD_DIM if version == "v1" else HEAD_DIM, dim=-1)
    prior = scheme.prior(positions, positions, scheme.token_state(x))
    log_prior = prior.dense(heads, n, n, dtype=torch.float64)
    turn = lambda t, role: scheme.rotate(t[:, None], positions, role)[:, 0]  # of rope: no parameters by head
    past = torch.ones(n, n, dtype=torch.bool).tril()
    outs = []
    for h in range(heads):
        g = h // (heads // kv)
        maps = []
        for m in (0, 1):
            key = k[2 * g + m] if version == "v1" else k[g]
            logits = D**-0.5 * turn(q[2 * h + m], Role.QUERY) @ turn(key, Role.KEY).transpose(1, 2) + log_prior[:, h]
            weights = torch.where(past, logits.exp(), 0)
            maps.append(weights / (weights.sum(-1, keepdim=True) + (0 if prior.sink is None else prior.sink[h].exp())))
        if version == "v1":
            start = 0.8 - 0.6 * math.exp(-0.3 * layer.layer_index)
            weight = torch.exp(inner.lambda_q1 @ inner.lambda_k1) - torch.exp(inner.lambda_q2 @ inner.lambda_k2) + start
            out = (maps[0] - weight * maps[1]) @ v[g]
            outs.append((1 - start) * inner.norm.weight * out / (out.square().mean(-1, keepdim=True) + 1e-5).sqrt())
        else:
            weight = 1 / (1 + torch.exp(-x @ inner.lambda_proj.weight[h]))
            outs.append((maps[0] - weight[..., None] * maps[1]) @ v[g])
    return layer.proj(torch.cat(outs, dim=-1))


@pytest.mark.parametrize("kernel", [Auto(), Reference()])
@pytest.mark.parametrize("cls", [NoPosition, Rope, Alibi, Goat, SinkScalar, T5, Fox, fox_with_sink])
@pytest.mark.parametrize("version", CLASSES)
def test_it_is_its_formula(version, cls, kernel):
    """Output and every gradient, two pairs of query heads for a pair of key heads, whatever the position scheme inside: rotations, lanes,
    sinks, biases by head and terms by head and token (these with as many key heads as query heads)."""
    options = {"num_frequencies": 1, "min_period": 3.0} if cls is Goat else {}
    layer = make(version, cls, kernel, layer_index=2, kv_heads=HEADS if cls in (Fox, fox_with_sink) else KV_HEADS, **options)
    x = draw().requires_grad_()
    actual, expected = layer(x, Positions.line(LENGTH), Mask(causal=True)), by_definition(layer, x, version)
    assert_close(actual, expected)
    inputs = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(actual, inputs, draw(2)), torch.autograd.grad(expected, inputs, draw(2)), strict=True):
        assert_close(a, b, atol=1e-9)


@pytest.mark.parametrize("version", CLASSES)
def test_one_fused_call_computes_it(version):
    calls = []

    class Spy(Recording):
        def __call__(self, problem):
            calls.append((problem.q.shape[1], problem.k.shape[1], problem.v.shape[1], problem.v.shape[-1]))
            return super().__call__(problem)

    spy = Spy(Auto())
    make(version, Alibi, spy)(draw(), Positions.line(LENGTH), Mask(causal=True))
    assert calls == [{"v1": (16, 8, 8, 16), "v2": (16, 4, 4, 16)}[version]]
    assert spy.used == {"sdpa-flash"}


def test_without_the_second_map_it_is_attention_of_the_first():
    """lambda = 0 (W x far below 0): softmax with the even queries."""
    layer = make("v2")
    plain = SelfAttention(layer.shape, NoPosition(layer.shape)).double()
    state = {key: value for key, value in layer.state_dict().items() if not key.startswith("inner")}
    for key in ("q_proj.weight", "q_proj.bias"):
        state[key] = state[key].unflatten(0, (HEADS, 2, HEAD_DIM))[:, 0].flatten(0, 1)
    plain.load_state_dict(state)
    x = draw()
    args = Positions.line(LENGTH), Mask(causal=True)
    layer.inner.lambda_proj.register_forward_hook(lambda module, inputs, out: torch.full_like(out, -50.0))
    assert_close(layer(x, *args), plain(x, *args))


def test_lambda_starts_at_its_published_value_by_depth():
    """0.2, 0.3555 and 0.8 - 0.6 exp(-6.9) in layers 0, 1 and 23; the four vectors are N(0, 0.1), so that products of 64 are small."""
    shape = ModelShape(1, True, 2048, 24, 32, 32, 64, (64,))
    torch.manual_seed(0)
    for index, value in ((0, 0.2), (1, 0.3555091), (23, 0.7993953)):
        inner = DifferentialV1(shape, index, Auto())
        assert float(inner.weight_of_second_map.detach()) == pytest.approx(value, abs=0.4)
        assert inner.lambda_k2.std().item() == pytest.approx(0.1, rel=0.3)
        inner.lambda_q1.data.zero_()
        inner.lambda_q2.data.zero_()
        assert float(inner.weight_of_second_map.detach()) == pytest.approx(value, abs=1e-6)


def test_parameters_beyond_plain_attention():
    """v1: 6 head dims a layer; 24 layers of the 880 M model 13,824 (arXiv 2504.00927, table of parameter counts). v2: C (C + H)."""
    shape = ModelShape(1, True, 1536, 24, 16, 16, 96, (2048,))
    with torch.device("meta"):
        plain = SelfAttention(shape, NoPosition(shape), qkv_bias=False)
        layers = {name: SelfAttention(shape, NoPosition(shape), qkv_bias=False, inner=inner) for name, inner in CLASSES.items()}
    count = lambda layer: sum(p.numel() for p in layer.parameters())
    assert 24 * (count(layers["v1"]) - count(plain)) == 13_824
    assert count(layers["v2"]) - count(plain) == 1536 * (1536 + 16)


def test_odd_heads_cannot_be_paired():
    with pytest.raises(ValueError, match="num_heads 8 and num_kv_heads 1 must both be even"):
        make("v1", kv_heads=1)
