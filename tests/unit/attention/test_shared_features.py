"""Features of positions are worked out once and shared by layers: never by other positions, other options or other precisions."""

import math

import pytest
import torch

from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.fourier import Goat
from goatbench.attention.rotary import Rope, RopeAxial
from goatbench.attention.scheme import ModelShape, Role

LINE = ModelShape(1, True, 64, 2, 2, 2, 32, (16,))
GRID = ModelShape(2, False, 64, 2, 2, 2, 32, (4, 4), 1)


def goat(shape, min_period=4.0, seed=0):
    torch.manual_seed(seed)
    scheme = Goat(shape, num_frequencies=2, min_period=min_period, max_period=50.0)
    torch.nn.init.normal_(scheme.even)
    return scheme


def test_made_once_for_an_object_and_again_for_every_other():
    calls = []
    positions = Positions.line(5)
    for _ in range(3):
        assert positions.remember("key", lambda: calls.append(1) or "value") == "value"
    assert len(calls) == 1
    for other in (positions.rescaled((0.5,)), positions.concat(Positions.line(2, offset=5)), positions.gather(torch.tensor([[0, 3]]))):
        assert other.known == {}


@pytest.mark.parametrize("shape", [LINE, GRID], ids=["1D", "2D"])
def test_layers_with_other_options_do_not_get_each_others_features(shape):
    make = (lambda: Positions.line(9)) if shape is LINE else (lambda: Positions.grid(2, 4, 1))
    shared = make()
    for min_period in (4.0, 8.0, 4.0):
        scheme = goat(shape, min_period)
        alone = make()
        assert torch.equal(scheme.prior(shared, shared).dense(2, 9, 9), scheme.prior(alone, alone).dense(2, 9, 9))
    rope = Rope if shape is LINE else RopeAxial
    x = torch.randn(1, 2, 9, 32)
    for base in (10.0, 100.0):
        scheme = rope(shape, base=base)
        assert torch.equal(scheme.rotate(x, shared, Role.QUERY), scheme.rotate(x, make(), Role.QUERY))


def test_rescaled_positions_turn_by_rescaled_angles():
    """After the unscaled positions were used: RoPE's first plane turns by the coordinate itself."""
    x = torch.zeros(1, 2, 4, 32)
    x[..., 0] = 1.0
    scheme, positions = Rope(LINE), Positions.line(4)
    scheme.rotate(x, positions, Role.QUERY)
    turned = scheme.rotate(x, positions.rescaled((0.5,)), Role.QUERY)
    torch.testing.assert_close(turned[0, 0, :, 16], torch.tensor([math.sin(0.5 * t) for t in range(4)]))


@pytest.mark.parametrize("scheme", [goat(LINE), Rope(LINE)], ids=["goat", "rope"])
def test_positions_first_used_under_inference_mode_serve_training(scheme):
    layer = SelfAttention(LINE, scheme, lanes="carve")
    x = torch.randn(2, 9, 64)
    with torch.inference_mode():
        positions = Positions.line(9)
        expected = layer(x, positions, Mask(causal=True)).clone()
    out = layer(x, positions, Mask(causal=True))
    out.sum().backward()
    torch.testing.assert_close(out, expected)
    assert layer.q_proj.weight.grad is not None


def test_other_precision_other_features():
    positions = Positions.line(9)
    scheme = goat(LINE)
    single = scheme.prior(positions, positions).k_lanes
    double = scheme.double().prior(positions, positions).k_lanes
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert 0 < (single - double).abs().max() < 1e-5  # worked out in double, not the rounded ones widened
