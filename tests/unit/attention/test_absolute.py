"""Absolute positions: the learned table against timm's resampler, the sinusoids against their formula."""

import math

import pytest
import torch
from attention_cases import assert_close
from timm.layers import build_sincos2d_pos_embed, resample_abs_pos_embed
from torch.nn import functional as F

from goatbench.attention.embeddings import LearnedAbsolute, Sinusoidal
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import ModelShape

DIM, GRID, LENGTH = 8, (4, 6), 20


def shape(num_axes: int, num_prefix: int = 0, dim: int = DIM) -> ModelShape:
    return ModelShape(num_axes, num_axes == 1, dim, 1, 2, 2, 4, (LENGTH,) if num_axes == 1 else GRID, num_prefix)


def zeros(num_tokens: int, batch: int = 2) -> torch.Tensor:
    return torch.zeros(batch, num_tokens, DIM)


@pytest.mark.parametrize("num_prefix", [0, 1, 3])
@pytest.mark.parametrize("grid", [GRID, (8, 12), (9, 5), (3, 3), (1, 7)])
def test_learned_table_is_resampled_as_timm_does(grid, num_prefix):
    """Bicubic with antialias, at grids that are not square; prefix tokens get nothing."""
    torch.manual_seed(0)
    scheme = LearnedAbsolute(shape(2, num_prefix))
    expected = resample_abs_pos_embed(scheme.table.detach().reshape(1, -1, DIM), list(grid), list(GRID), num_prefix_tokens=0)
    actual = scheme.embed(zeros(num_prefix + math.prod(grid)), Positions.grid(*grid, num_prefix)).detach()
    assert torch.equal(actual[:, :num_prefix], zeros(num_prefix))
    torch.testing.assert_close(actual[:, num_prefix:], expected.expand(2, -1, -1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("grid", [(2, 1), (7, 1), (1, 1), (1, 9)])
def test_a_single_row_or_column_is_resampled_axis_by_axis(grid):
    """Bicubic resampling is separable: one matrix per axis, here taken from an axis on its own."""
    torch.manual_seed(0)
    scheme = LearnedAbsolute(shape(2))

    def weights(old: int, new: int) -> torch.Tensor:
        columns = torch.eye(old)[:, None, :, None].expand(old, 1, old, 8)
        return F.interpolate(columns, size=(new, 8), mode="bicubic", antialias=True)[:, 0, :, 0].T

    expected = torch.einsum("yh,xw,hwc->yxc", weights(GRID[0], grid[0]), weights(GRID[1], grid[1]), scheme.table.detach())
    actual = scheme.embed(zeros(math.prod(grid), 1), Positions.grid(*grid)).detach()
    torch.testing.assert_close(actual[0], expected.flatten(0, 1), rtol=0, atol=1e-7)


def test_at_the_training_grid_the_table_is_read_as_it_is():
    scheme = LearnedAbsolute(shape(2, 1))
    actual = scheme.embed(zeros(25, 1), Positions.grid(*GRID, 1))
    assert torch.equal(actual[0, 1:], scheme.table.flatten(0, 1))


def test_resampling_is_done_in_float32_for_bf16_tokens():
    scheme = LearnedAbsolute(shape(2))
    grid = Positions.grid(8, 5)
    actual = scheme.embed(zeros(40).bfloat16(), grid)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, scheme.embed(zeros(40), grid).bfloat16())


def test_a_resampled_table_gets_gradient_everywhere():
    """Shrinking with antialias reads every row; the sum of weights over the new grid is kept per channel up to the area ratio."""
    scheme = LearnedAbsolute(shape(2))
    scheme.embed(zeros(6, 1), Positions.grid(2, 3)).sum().backward()
    assert (scheme.table.grad != 0).all()
    assert float(scheme.table.grad.sum()) == pytest.approx(6 * DIM, rel=1e-4)


def test_coordinates_do_not_move_a_table():
    scheme, grid = LearnedAbsolute(shape(2)), Positions.grid(8, 12)
    assert torch.equal(scheme.embed(zeros(96), grid.rescaled((0.5, 0.5))), scheme.embed(zeros(96), grid))


def test_1d_reads_its_row_and_stops_at_the_end_of_the_table():
    scheme = LearnedAbsolute(shape(1))
    assert torch.equal(scheme.embed(zeros(5, 1), Positions.line(5, offset=15))[0], scheme.table[15:20])
    order = torch.tensor([[3, 0, 19]])
    assert torch.equal(scheme.embed(zeros(3, 1), Positions.scattered(order))[0], scheme.table[order[0]])
    for positions in (Positions.line(21), Positions.line(1, offset=20)):
        with pytest.raises(ValueError, match="has 20 positions, got position 20: not applicable beyond the training length"):
            scheme.embed(zeros(positions.num_tokens), positions)


def test_2d_wants_the_whole_grid():
    kept = Positions.grid(*GRID).gather(torch.tensor([[0, 3, 5]]))
    with pytest.raises(ValueError, match="whole grid"):
        LearnedAbsolute(shape(2)).embed(zeros(3, 1), kept)


def test_initial_table_is_normal_of_std_002():
    torch.manual_seed(0)
    table = LearnedAbsolute(ModelShape(1, True, 64, 1, 2, 2, 4, (512,))).table.detach()
    assert float(table.std()) == pytest.approx(0.02, rel=0.02) and abs(float(table.mean())) < 1e-3


def by_hand(place: tuple[float, ...], dim: int, base: float) -> list[float]:
    """Per axis: all sines, then all cosines, of place * base^(-2k / (dim / axes))."""
    part = dim // len(place)
    row = []
    for x in place:
        phases = [x * base ** (-2 * k / part) for k in range(part // 2)]
        row += [math.sin(p) for p in phases] + [math.cos(p) for p in phases]
    return row


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_sinusoids_of_a_line(base):
    actual = Sinusoidal(shape(1), base).embed(zeros(5, 1).double(), Positions.line(5, offset=1000))
    expected = torch.tensor([by_hand((1000.0 + t,), DIM, base) for t in range(5)], dtype=torch.float64)
    assert_close(actual[0], expected, atol=1e-12)


def test_sinusoids_of_a_grid_skip_the_prefix():
    """First half of the dims y, second half x; the coordinates count, so rescaling them moves the waves."""
    tokens, positions = zeros(5, 1).double(), Positions.line(5)
    assert torch.allclose(Sinusoidal(shape(1), amplitude=0.3).embed(tokens, positions).abs().max(), torch.tensor(0.3).double())
    scheme = Sinusoidal(shape(2, 2))
    actual = scheme.embed(zeros(2 + 15, 1).double(), Positions.grid(3, 5, 2).rescaled((0.5, 2.0)))
    expected = torch.tensor([by_hand((0.5 * (n // 5), 2.0 * (n % 5)), DIM, 10_000.0) for n in range(15)], dtype=torch.float64)
    assert torch.equal(actual[0, :2], torch.zeros(2, DIM, dtype=torch.float64))
    assert_close(actual[0, 2:], expected, atol=1e-12)


def test_sinusoids_of_a_grid_are_timms():
    """Of amplitude 1; theirs has the sines of y and x first, then the cosines, and is in float32."""
    theirs = build_sincos2d_pos_embed([5, 7], dim=48).unflatten(1, (2, 2, 12)).transpose(1, 2).flatten(1)
    scheme = Sinusoidal(shape(2, dim=48), amplitude=1.0)
    torch.testing.assert_close(scheme.embed(torch.zeros(1, 35, 48), Positions.grid(5, 7))[0], theirs, rtol=0, atol=1e-5)


def test_sinusoids_need_an_even_share_per_axis():
    with pytest.raises(ValueError, match="embed_dim 10 is not a multiple of 4"):
        Sinusoidal(shape(2, dim=10))
