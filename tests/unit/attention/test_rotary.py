"""Rotary embeddings against timm's (another pairing of dims) and against multiplication of complex numbers in float64."""

import math

import pytest
import torch
from attention_cases import assert_close
from timm.layers import RotaryEmbeddingCat, RotaryEmbeddingMixed, apply_rot_embed_cat

from goatbench.attention.positions import Positions
from goatbench.attention.rotary import Rope, RopeAxial, RopeMixed
from goatbench.attention.scheme import ModelShape, Role

HEADS, HEAD_DIM = 3, 24
GRID = (4, 7)


def shape(num_axes: int, num_prefix: int = 0, heads: int = HEADS, kv: int = HEADS, head_dim: int = HEAD_DIM) -> ModelShape:
    return ModelShape(num_axes, num_axes == 1, heads * head_dim, 2, heads, kv, head_dim, GRID[:num_axes], num_prefix)


def draw(num_tokens: int, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(2, HEADS, num_tokens, HEAD_DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# timm pairs dims 2p and 2p + 1, we pair p and p + D/2: our dim d is timm's dim PAIRING[d].
PAIRING = torch.cat((torch.arange(0, HEAD_DIM, 2), torch.arange(1, HEAD_DIM, 2)))


@pytest.mark.parametrize("num_prefix", [0, 2])
def test_axial_is_timms(num_prefix):
    """timm's vit_*_rope models: temperature 100, 'xy' indexing; prefix tokens go by untouched."""
    embedding = RotaryEmbeddingCat(HEAD_DIM, in_pixels=False, temperature=100.0, feat_shape=list(GRID), grid_indexing="xy").get_embed()
    x = draw(num_prefix + math.prod(GRID), torch.float32)
    expected = torch.cat((x[:, :, :num_prefix], apply_rot_embed_cat(x[:, :, num_prefix:], embedding)), dim=2)
    actual = RopeAxial(shape(2, num_prefix)).rotate(x[..., PAIRING], Positions.grid(*GRID, num_prefix), Role.QUERY)
    torch.testing.assert_close(actual, expected[..., PAIRING], rtol=0, atol=5e-6)
    assert torch.equal(actual[:, :, :num_prefix], x[:, :, :num_prefix][..., PAIRING])


@pytest.mark.parametrize("num_prefix", [0, 2])
def test_mixed_is_timms(num_prefix):
    """With timm's learned frequencies of the second layer."""
    torch.manual_seed(0)
    rope = RotaryEmbeddingMixed(HEADS * HEAD_DIM, 2, HEADS, temperature=10.0, feat_shape=list(GRID), grid_indexing="xy")
    x = draw(num_prefix + math.prod(GRID), torch.float32)
    scheme = RopeMixed(shape(2, num_prefix))
    with torch.no_grad():
        along_x, along_y = rope.freqs[:, 1]
        scheme.frequencies.copy_(torch.stack((along_y, along_x), dim=-1))
        patches = apply_rot_embed_cat(x[:, :, num_prefix:], rope.get_embed(list(GRID))[1])
        actual = scheme.rotate(x[..., PAIRING], Positions.grid(*GRID, num_prefix), Role.KEY)
    expected = torch.cat((x[:, :, :num_prefix], patches), dim=2)
    torch.testing.assert_close(actual, expected[..., PAIRING], rtol=0, atol=5e-6)


def test_mixed_starts_as_timms_does():
    """Magnitudes 10^(-4k/D) along one direction a head and along its perpendicular; another direction for each head and layer."""
    scheme = RopeMixed(shape(2))
    theirs = RotaryEmbeddingMixed(HEADS * HEAD_DIM, 1, HEADS, temperature=10.0, feat_shape=list(GRID)).freqs.detach()[:, 0]
    ours = scheme.frequencies.detach()
    assert_close(ours.norm(dim=-1), theirs.norm(dim=0), atol=1e-6)
    first, second = ours.chunk(2, dim=1)
    assert_close((first * second).sum(-1), torch.zeros(HEADS, HEAD_DIM // 4), atol=1e-6)
    directions = first / first.norm(dim=-1, keepdim=True)
    assert_close(directions, directions[:, :1].expand_as(directions), atol=1e-6)
    assert float((directions[0, 0] - directions[1, 0]).norm()) > 1e-3
    assert not torch.equal(scheme.for_layer(1).frequencies, scheme.frequencies)


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rope_is_multiplication_by_complex_units(base):
    x, positions = draw(37), Positions.line(37, offset=5)
    z = torch.complex(*x.chunk(2, dim=-1))
    turns = [[complex(math.cos(t * base ** (-2 * p / HEAD_DIM)), math.sin(t * base ** (-2 * p / HEAD_DIM))) for p in range(HEAD_DIM // 2)]
             for t in range(5, 42)]  # fmt: skip
    expected = z * torch.tensor(turns, dtype=torch.complex128)
    assert_close(Rope(shape(1), base).rotate(x, positions, Role.QUERY), torch.cat((expected.real, expected.imag), dim=-1), atol=1e-12)


def test_float32_rotation_is_right_at_65k_tokens():
    """Against float64 by hand: only the product is rounded to float32 (2^-24 a term), not the phase (which would be off by 4e-3)."""
    x, place = draw(1, torch.float32), 65_535
    actual = Rope(shape(1)).rotate(x, Positions.line(1, offset=place), Role.QUERY)
    first, second = x.double().chunk(2, dim=-1)
    phases = [place * 10_000.0 ** (-2 * p / HEAD_DIM) for p in range(HEAD_DIM // 2)]
    angle = torch.tensor([math.fmod(phase, 2 * math.pi) for phase in phases], dtype=torch.float64)
    expected = torch.cat((first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()), dim=-1)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1e-6)


def test_bf16_content_is_rotated_in_float32():
    """Neighbouring places stay apart: the rotation of bf16 content is the float32 rotation, rounded once."""
    x = draw(64, torch.bfloat16)
    scheme, positions = Rope(shape(1)), Positions.line(64, offset=60_000)
    actual = scheme.rotate(x, positions, Role.QUERY)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, scheme.rotate(x.float(), positions, Role.QUERY).bfloat16())


@pytest.mark.parametrize("cls", [Rope, RopeAxial, RopeMixed])
def test_logits_see_offsets_only(cls):
    """<q_i, k_j> depends on the offset: equal offsets anywhere give equal logits for equal content."""
    axes = 1 if cls is Rope else 2
    scheme = cls(shape(axes)).double()
    q, k = draw(1), draw(1, seed=1)

    def logit(place_q, place_k):
        at = lambda place: Positions.scattered(torch.zeros(1, 1, dtype=torch.long), torch.tensor([[place]], dtype=torch.float64))
        return (scheme.rotate(q, at(place_q), Role.QUERY) * scheme.rotate(k, at(place_k), Role.KEY)).sum(-1)

    here, there = ([3.0], [7.0]) if axes == 1 else ([3.0, 1.0], [7.0, 6.0])
    moved = lambda place: [c + 1234.0 for c in place]
    assert_close(logit(moved(here), moved(there)), logit(here, there), atol=1e-9)
    assert float((logit(there, here) - logit(here, there)).detach().abs().max()) > 1e-3


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="rope is one-dimensional"):
        Rope(shape(2))
    with pytest.raises(ValueError, match="rope_mixed is two-dimensional"):
        RopeMixed(shape(1))
    with pytest.raises(ValueError, match="head_dim 22 is not a multiple of 4"):
        RopeAxial(shape(2, head_dim=22))
    with pytest.raises(ValueError, match="num_kv_heads must equal num_heads"):
        RopeMixed(shape(2, heads=4, kv=2)).rotate(draw(28), Positions.grid(*GRID), Role.QUERY)
