"""xPos against rotary-embedding-torch and its formula in float64."""

import math

import pytest
import torch
from attention_cases import assert_close
from rotary_embedding_torch import RotaryEmbedding

from goatbench.attention.positions import Positions
from goatbench.attention.rope_xpos import RopeXpos
from goatbench.attention.rotary import Rope
from goatbench.attention.scheme import ModelShape, Role

D = 16
SHAPE = ModelShape(1, True, 2 * D, 1, 2, 2, D, (64,))
INTERLEAVED = torch.cat((torch.arange(0, D, 2), torch.arange(1, D, 2)))


def logits(scheme, q, k, positions):
    return scheme.rotate(q, positions, Role.QUERY) @ scheme.rotate(k, positions, Role.KEY).mT


def draw(num_tokens, dtype=torch.float64):
    return torch.randn(2, 1, 2, num_tokens, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype).unbind(0)


def test_logits_are_those_of_rotary_embedding_torch():
    """Which counts places from the middle of the sequence: only the offset matters."""
    q, k = draw(200, torch.float32)
    theirs_q, theirs_k = RotaryEmbedding(D, use_xpos=True).rotate_queries_and_keys(q, k)
    actual = logits(RopeXpos(SHAPE), q[..., INTERLEAVED], k[..., INTERLEAVED], Positions.line(200))
    torch.testing.assert_close(actual, theirs_q @ theirs_k.mT, rtol=1e-4, atol=2e-4)


def test_planes_fade_with_distance_the_slow_ones_fastest():
    """One plane p at a time, 1 in q and k, 512 tokens apart: cos(512 theta_p) * (2p/D + 0.4) / 1.4."""
    for p in range(D // 2):
        x = torch.zeros(1, 2, 1, D, dtype=torch.float64)
        x[..., p] = 1
        scheme = RopeXpos(SHAPE)
        q = scheme.rotate(x, Positions.line(1, 612), Role.QUERY)
        k = scheme.rotate(x, Positions.line(1, 100), Role.KEY)
        expected = math.cos(512 * 10_000.0 ** (-2 * p / D)) * (2 * p / D + 0.4) / 1.4
        assert float((q * k).sum(-1)[0, 0, 0]) == pytest.approx(expected, rel=1e-9)


def test_it_is_relative_and_no_isometry():
    q, k = draw(50)
    scheme = RopeXpos(SHAPE)
    assert_close(logits(scheme, q, k, Positions.line(50, 9000)), logits(scheme, q, k, Positions.line(50)), atol=1e-9)
    norms = scheme.rotate(q, Positions.line(50, 512), Role.QUERY).norm(dim=-1) / q.norm(dim=-1)
    assert not scheme.is_isometry and float(norms.max()) < 0.95
    assert float((logits(scheme, q, k, Positions.line(50)) - logits(Rope(SHAPE), q, k, Positions.line(50))).abs().max()) > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_to_its_last_position_logits_of_the_latest_keys_are_right(dtype):
    """float64 of the same rounded content, at 32,768 tokens; no factor over- or underflows."""
    q, k = draw(64, dtype)
    scheme, there = RopeXpos(SHAPE), Positions.line(64, RopeXpos.max_positions - 64)
    rotated_q, rotated_k = scheme.rotate(q, there, Role.QUERY), scheme.rotate(k, there, Role.KEY)
    assert rotated_q.dtype == dtype and rotated_q.isfinite().all() and rotated_k.isfinite().all()
    expected = logits(scheme, q.double(), k.double(), there)
    error = (rotated_q.double() @ rotated_k.double().mT - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert float(error) < (1e-5 if dtype == torch.float32 else 0.01)


def test_options_are_checked():
    with pytest.raises(ValueError, match="scale_base = 0"):
        RopeXpos(SHAPE, scale_base=0)
