"""The learned null sink in a whole layer: an extra softmax column without value, on its own and beside a recency slope."""

import pytest
import torch
from attention_cases import assert_close, randomise
from torch import nn

from goatbench.attention.kernels import Auto, Reference
from goatbench.attention.layer import SelfAttention
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.alibi import Alibi
from goatbench.attention.priors.sink import SinkScalar
from goatbench.attention.scheme import ModelShape

HEADS, KV_HEADS, HEAD_DIM, DIM, LENGTH = 4, 2, 8, 12, 37
SLOPES = [0.25, 0.0625, 0.015625, 0.00390625]  # ALiBi of 4 heads


class AlibiWithSink(Alibi):
    """A sum of priors is all that a pair of mechanisms takes."""

    def __init__(self, shape):
        super().__init__(shape)
        self.sink = nn.Parameter(torch.zeros(shape.num_heads))

    def prior(self, query_positions, key_positions, state=None):
        return super().prior(query_positions, key_positions, state) + LogPrior(sink=self.sink)


def make(cls, causal: bool = True, kernel=None) -> SelfAttention:
    torch.manual_seed(0)
    shape = ModelShape(1, causal, DIM, 1, HEADS, KV_HEADS, HEAD_DIM, (64,))
    layer = SelfAttention(shape, cls(shape), kernel=kernel).double()
    randomise(layer.scheme, std=1.0)
    return layer


def extra_column(layer: SelfAttention, x: torch.Tensor, causal: bool, slopes: list[float]) -> torch.Tensor:
    """Softmax over the keys and one more column that holds the sink's logit; the column is dropped before the values."""
    n = x.shape[1]
    split = lambda t, heads: t.unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = (split(p(x), h) for p, h in ((layer.q_proj, HEADS), (layer.k_proj, KV_HEADS), (layer.v_proj, KV_HEADS)))
    place = torch.arange(n, dtype=x.dtype)
    outs = []
    for h in range(HEADS):
        g = h * KV_HEADS // HEADS
        logits = q[:, h] @ k[:, g].transpose(1, 2) * q.shape[-1] ** -0.5 - slopes[h] * (place[:, None] - place)
        if causal:
            logits = logits.masked_fill(place > place[:, None], -torch.inf)
        column = layer.scheme.sink[h].expand(*logits.shape[:2], 1)
        probs = torch.softmax(torch.cat((logits, column), dim=-1), dim=-1)[..., :-1]
        outs.append(probs @ v[:, g])
    return layer.proj(torch.cat(outs, dim=-1))


def check_against_an_extra_column(layer: SelfAttention, causal: bool, slopes: list[float]) -> None:
    """Output and every gradient, float64."""
    generator = torch.Generator().manual_seed(3)
    x, weight = (torch.randn(2, LENGTH, DIM, generator=generator, dtype=torch.float64) for _ in range(2))
    x.requires_grad_()
    actual = layer(x, Positions.line(LENGTH), Mask(causal=causal))
    expected = extra_column(layer, x, causal, slopes)
    assert_close(actual, expected, atol=1e-12)
    inputs = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(actual, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True):
        assert_close(a, b, atol=1e-11)


@pytest.mark.parametrize("kernel", [Auto(), Reference()])
@pytest.mark.parametrize("causal", [True, False])
def test_sink_is_an_extra_softmax_column(causal, kernel):
    check_against_an_extra_column(make(SinkScalar, causal, kernel), causal, [0.0] * HEADS)


@pytest.mark.parametrize("kernel", [Auto(), Reference()])
def test_sink_beside_a_recency_slope(kernel):
    """The sink's logit stays put while the keys fall off with their distance: needs the row term -slope * i."""
    check_against_an_extra_column(make(AlibiWithSink, True, kernel), True, SLOPES)


def test_at_its_initial_value_it_is_softmax_off_by_one():
    """softmax_1(x) = e^x / (1 + sum e^x): one key whose logit is zero gets 1/2."""
    shape = ModelShape(1, True, DIM, 1, HEADS, KV_HEADS, HEAD_DIM, (64,))
    layer = SelfAttention(shape, SinkScalar(shape), qkv_bias=False).double()
    with torch.no_grad():
        layer.q_proj.weight.zero_()
        layer.proj.weight.copy_(torch.ones_like(layer.proj.weight))
        layer.proj.bias.zero_()
    x = torch.randn(1, 1, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = layer.v_proj(x).sum(-1, keepdim=True) * (HEADS // KV_HEADS)
    assert_close(layer(x, Positions.line(1), Mask(causal=True)), (values / 2).expand(1, 1, DIM), atol=1e-12)


def test_each_layer_has_its_own_sink():
    shape = ModelShape(1, True, DIM, 1, HEADS, KV_HEADS, HEAD_DIM, (64,))
    scheme = SinkScalar(shape)
    assert scheme.for_layer(1).sink is not scheme.sink
    assert scheme.for_layer(1).sink.shape == (HEADS,) and (scheme.sink == 0).all()
