"""Positions against coordinates written by hand."""

import pytest
import torch

from goatbench.attention.positions import Grid, Line, Positions, Scattered


def test_a_line_starts_at_its_offset():
    positions = Positions.line(3, offset=70_000)
    assert positions.layout == Line(70_000, 3)
    assert positions.order.tolist() == [[70_000, 70_001, 70_002]]
    assert positions.coords.tolist() == [[[70_000.0], [70_001.0], [70_002.0]]]
    assert positions.coords.dtype == torch.float64 and positions.order.dtype == torch.int64
    assert not positions.is_prefix.any()
    assert positions.num_tokens == 3 and positions.num_axes == 1


def test_a_grid_is_prefix_then_rows():
    """2 x 3 patches behind two prefix tokens; coords are (y, x)."""
    positions = Positions.grid(2, 3, num_prefix=2)
    assert positions.layout == Grid(2, 3, 2)
    assert positions.order.tolist() == [list(range(8))]
    assert positions.coords[0, 2:].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert positions.coords[0, :2].tolist() == [[0, 0], [0, 0]]
    assert positions.is_prefix.tolist() == [[True, True, False, False, False, False, False, False]]
    assert positions.num_tokens == 8 and positions.num_axes == 2


def test_scattered_takes_any_order():
    order = torch.tensor([[4, 0], [-1, 2]])
    positions = Positions.scattered(order)
    assert positions.layout == Scattered(2)
    assert positions.coords.tolist() == [[[4.0], [0.0]], [[-1.0], [2.0]]]
    assert not positions.is_prefix.any() and positions.is_prefix.shape == (2, 2)
    given = Positions.scattered(order, torch.tensor([[[1, 2], [3, 4]]]), torch.tensor([[True, False]]))
    assert given.coords.dtype == torch.float64 and given.coords.tolist() == [[[1, 2], [3, 4]]]
    assert given.is_prefix.tolist() == [[True, False]]


def test_rescaling_is_axis_by_axis_and_leaves_the_order():
    grid = Positions.grid(2, 2, 1)
    scaled = grid.rescaled((0.5, 3.0))
    assert scaled.coords[0, 1:].tolist() == [[0, 0], [0, 3], [0.5, 0], [0.5, 3]]
    assert torch.equal(scaled.order, grid.order) and scaled.layout == grid.layout
    with pytest.raises(ValueError, match=r"2 axes, got \(0.5,\)"):
        grid.rescaled((0.5,))


def test_gather_keeps_what_belongs_together():
    kept = Positions.grid(2, 3, 1).gather(torch.tensor([[0, 6, 2], [0, 1, 5]]))
    assert kept.layout == Scattered(3)
    assert kept.order.tolist() == [[0, 6, 2], [0, 1, 5]]
    assert kept.coords.tolist() == [[[0, 0], [1, 2], [0, 1]], [[0, 0], [0, 0], [1, 1]]]
    assert kept.is_prefix.tolist() == [[True, False, False], [True, False, False]]


def test_adjoining_lines_stay_a_line():
    joined = Positions.line(3, offset=5).concat(Positions.line(2, offset=8))
    assert joined.layout == Line(5, 5) and joined.order.tolist() == [[5, 6, 7, 8, 9]]
    for gap in (Positions.line(2, offset=9), Positions.line(2, offset=7), Positions.scattered(torch.tensor([[8, 9]]))):
        assert Positions.line(3, offset=5).concat(gap).layout == Scattered(5)


def test_concat_widens_one_row_to_the_other_batch():
    by_row = Positions.scattered(torch.tensor([[5], [7]]))
    joined = Positions.line(2).concat(by_row)
    assert joined.order.tolist() == [[0, 1, 5], [0, 1, 7]]
    assert joined.coords[..., 0].tolist() == [[0.0, 1.0, 5.0], [0.0, 1.0, 7.0]]
    assert joined.is_prefix.shape == (2, 3)
