"""FoPE against its formula, summed term by term in float64."""

import math

import pytest
import torch
from attention_cases import assert_close

from goatbench.attention.fope import Fope
from goatbench.attention.positions import Positions
from goatbench.attention.rotary import Rope
from goatbench.attention.scheme import ModelShape, Role

D, HEADS = 32, 2


def shape(train_length=256, head_dim=D, kv=HEADS):
    return ModelShape(1, True, HEADS * head_dim, 2, HEADS, kv, head_dim, (train_length,))


def draw(num_tokens):
    return torch.randn(2, HEADS, num_tokens, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def make(**options):
    torch.manual_seed(3)
    return Fope(shape(), **options).double()


@pytest.mark.parametrize(("train_length", "kept"), [(256, 7), (64, 5), (7, 1), (65_536, 16)])
def test_frequencies_that_do_not_turn_once_in_training_are_clipped(train_length, kept):
    """10000^(-p/16) >= 2 pi / L: p <= 16 ln(L / 2 pi) / ln(10000) = 6.4, 4.03, 0.19, 16.07."""
    scheme = Fope(shape(train_length))
    assert_close(scheme.frequencies, torch.tensor([10_000 ** (-p / 16) for p in range(kept)], dtype=torch.float64), atol=1e-15)
    assert scheme.cos_weights.shape == (HEADS, kept, min(kept, D // 4))


def test_a_plane_turns_by_a_mixture_and_slow_planes_stand_still():
    scheme, x, n = make(), draw(1), 77
    out = scheme.rotate(x, Positions.line(1, n), Role.QUERY)
    for head in range(HEADS):
        for plane in range(D // 2):
            cos, sin = 1.0, 0.0
            if plane < 7:
                a, b = (w.detach()[head, :, plane].tolist() for w in (scheme.cos_weights, scheme.sin_weights))
                cos = sum(a_f * math.cos(n * 10_000 ** (-f / 16)) for f, a_f in enumerate(a)) / sum(a)
                sin = sum(b_f * math.sin(n * 10_000 ** (-f / 16)) for f, b_f in enumerate(b)) / sum(b)
            first, second = x[0, head, 0, plane], x[0, head, 0, plane + D // 2]
            assert float(out[0, head, 0, plane]) == pytest.approx(float(first * cos - second * sin), abs=1e-10)
            assert float(out[0, head, 0, plane + D // 2]) == pytest.approx(float(second * cos + first * sin), abs=1e-10)


def test_without_mixing_it_is_rope_with_slow_planes_standing():
    x, places = draw(40), Positions.line(40)
    out, rope = make(init_gain=0.0).rotate(x, places, Role.KEY), Rope(shape()).rotate(x, places, Role.KEY)
    halves = lambda t: t.unflatten(-1, (2, D // 2))
    assert_close(halves(out)[..., :7], halves(rope)[..., :7], atol=1e-12)
    assert torch.equal(halves(out)[..., 7:], halves(x)[..., 7:])
    assert float((make().rotate(x, places, Role.KEY) - out).abs().max()) > 0.01


def test_weights_start_around_the_leading_frequency_and_are_frozen_as_released():
    """Xavier over [H, I, O]: fan in I O, fan out H O, so that std = gain sqrt(2 / (O (I + H)))."""
    torch.manual_seed(0)
    scheme = Fope(ModelShape(1, True, 16 * 64, 1, 16, 16, 64, (512,)))
    heads, kept, turning = scheme.cos_weights.shape
    assert (heads, kept, turning) == (16, 16, 16) and not scheme.cos_weights.requires_grad
    noise = scheme.cos_weights - torch.eye(16)
    assert float(noise.std()) == pytest.approx(0.3 * math.sqrt(2 / (16 * 32)), rel=0.05)
    assert not torch.equal(scheme.cos_weights, scheme.sin_weights)
    assert not torch.equal(scheme.for_layer(1).cos_weights, scheme.cos_weights)
    spread = Fope(shape(65_536), init_gain=0.0)  # 16 kept, 8 turn: every second one leads
    assert torch.equal(spread.sin_weights[0].argmax(0), torch.arange(0, 16, 2))
    assert make(learned=True).cos_weights.requires_grad


def test_it_is_neither_isometry_nor_relative():
    scheme, x = make(), draw(30)
    assert not scheme.is_isometry and not scheme.is_relative
    ratio = scheme.rotate(x, Positions.line(30), Role.QUERY).norm(dim=-1) / x.norm(dim=-1)
    assert float((ratio - 1).abs().max()) > 0.01
    assert_close(scheme.rotate(x[:, :, :1], Positions.line(1), Role.QUERY), x[:, :, :1], atol=1e-12)  # at 0 all cosines are 1


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="num_kv_heads must equal num_heads"):
        Fope(shape(kv=1))
    with pytest.raises(ValueError, match="turns once"):
        Fope(shape(train_length=6))
    with pytest.raises(ValueError, match="one-dimensional"):
        Fope(ModelShape(2, False, 64, 1, 2, 2, D, (4, 4)))
