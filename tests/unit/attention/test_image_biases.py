"""Biases of 2D offsets: against angles and distances worked out pair by pair, and against timm."""

import math

import pytest
import torch
import torch.nn.functional as F
from attention_cases import assert_close, make_shape, randomise
from timm.layers.pos_embed_rel import gen_relative_position_index, resize_rel_pos_bias_table_simple

from goatbench.attention.kernels import Auto, Recording
from goatbench.attention.layer import SelfAttention
from goatbench.attention.positions import Positions
from goatbench.attention.priors.fire import Fire2D
from goatbench.attention.priors.lookhere import LookHere
from goatbench.attention.priors.relative_table import RelativeTable
from goatbench.attention.rotary import RopeAxial, RopeMixed
from goatbench.attention.rotary_absolute import RopeAxialApe, RopeMixedApe
from goatbench.attention.scheme import ModelShape, Role

GRID = (4, 5)


def grid_shape(heads: int = 3, num_prefix: int = 0, grid: tuple[int, int] = GRID, depth: int = 1) -> ModelShape:
    return ModelShape(2, False, 24, depth, heads, heads, 8, grid, num_prefix)


def dense(scheme, positions: Positions) -> torch.Tensor:
    n, heads = positions.num_tokens, scheme.shape.num_heads
    return scheme.prior(positions, positions).dense(heads, n, n, dtype=torch.float64)[0].detach()


# LookHere. Directions in degrees, clockwise from up: diagonals first, then axes; a view of 45 degrees begins at its direction.
DIRECTIONS = [315, 135, 45, 225, 0, 180, 270, 90]


def sees(direction: float, field_of_view: int, dy: int, dx: int) -> bool:
    """Whether the offset lies in the view, by its angle."""
    if dy == dx == 0:
        return True
    middle = direction + (22.5 if field_of_view == 45 else 0)
    angle = math.degrees(math.atan2(dx, -dy))
    return abs((angle - middle + 180) % 360 - 180) <= field_of_view / 2 + 1e-9


@pytest.mark.parametrize("field_of_view", [180, 90, 45])
def test_lookhere_is_directed_distance(field_of_view):
    """12 heads: eight directions with slope 1/2, four that look everywhere; CLS row and column 0."""
    shape, positions = grid_shape(12, num_prefix=1), Positions.grid(*GRID, 1)
    places = [(y, x) for y in range(GRID[0]) for x in range(GRID[1])]
    expected = torch.zeros(12, 21, 21, dtype=torch.float64)
    for h in range(12):
        slope = 0.5 if h < 8 else 0.25 ** (h - 7)
        for a, p in enumerate(places):
            for b, q in enumerate(places):
                visible = h >= 8 or sees(DIRECTIONS[h], field_of_view, q[0] - p[0], q[1] - p[1])
                expected[h, 1 + a, 1 + b] = -slope * math.dist(p, q) if visible else -math.inf
    assert_close(dense(LookHere(shape, field_of_view), positions), expected, atol=1e-6, rtol=1e-6)


def test_lookhere_slopes_fall_over_the_layers_and_rounds():
    """1.5 to 0.5 times over the layers; of 16 heads twelve are directed, the last four of them in the second round."""
    scheme = LookHere(grid_shape(16, depth=5), slope=2.0)
    heads = torch.tensor([1.0] * 8 + [0.5] * 4 + [2 * 0.25**n for n in (1, 2, 3, 4)])
    for layer, factor in enumerate([1.5, 1.25, 1.0, 0.75, 0.5]):
        assert_close(scheme.for_layer(layer).slopes, factor * heads, atol=1e-7)


def test_lookhere_keeps_its_view_on_stretched_coordinates():
    """Offsets that lie on the edge of a view are not lost to rounding when coordinates are rescaled."""
    scheme, positions = LookHere(grid_shape(12), 90), Positions.grid(7, 7)
    scaled = positions.rescaled((4 / 7, 4 / 7))
    assert torch.equal(dense(scheme, scaled).isinf(), dense(scheme, positions).isinf())


# Relative position table


@pytest.mark.parametrize("num_prefix", [0, 1])
@pytest.mark.parametrize("grid", [GRID, (6, 6)])
def test_rpb_is_timms_table(num_prefix, grid):
    """The index of offsets, the three entries of the class token, and the table resized to a larger grid, as timm has them."""
    train = GRID if grid == GRID else (4, 4)
    scheme = RelativeTable(grid_shape(3, num_prefix, train)).double()
    randomise(scheme)
    rows = scheme.table.detach().flatten(0, 1)
    if num_prefix:
        rows = torch.cat((rows, scheme.prefix_rows.detach()))
    if grid != train:
        rows = resize_rel_pos_bias_table_simple(rows, grid, (11 * 11 + 3 * num_prefix, 3))
    index = gen_relative_position_index(grid, class_token=bool(num_prefix))
    assert_close(dense(scheme, Positions.grid(*grid, num_prefix)), rows[index].permute(2, 0, 1), atol=1e-9)


def test_rpb_of_dropped_patches():
    """Row by row the rows and columns of the kept tokens; beyond the training grid there is no table for them."""
    scheme, positions = RelativeTable(grid_shape(3, 1)).double(), Positions.grid(*GRID, 1)
    randomise(scheme)
    whole, index = dense(scheme, positions), torch.tensor([[0, 2, 3, 12], [0, 20, 7, 1]])
    kept = positions.gather(index)
    rows = scheme.prior(kept, kept).dense(3, 4, 4, dtype=torch.float64, batch=2)
    for row in range(2):
        assert_close(rows[row].detach(), whole[:, index[row]][:, :, index[row]])
    larger = Positions.grid(5, 5, 1).gather(torch.tensor([[0, 25]]))
    with pytest.raises(ValueError, match="outside the training grid"):
        scheme.prior(larger, larger)


# FIRE in two dimensions


def test_fire_2d_is_its_network_of_the_normalised_distance():
    """By hand for pairs of patches, on a grid whose corners are beyond the threshold; prefix rows and columns are 0."""
    scheme, positions = Fire2D(grid_shape(3, 1), threshold=20.0).double(), Positions.grid(6, 7, 1)
    randomise(scheme)
    prior = dense(scheme, positions)
    c, threshold = float(scheme.contraction.detach()), abs(float(scheme.multiplier.detach())) * 20
    for p, q in (((0, 0), (0, 0)), ((0, 0), (5, 6)), ((2, 3), (4, 1)), ((5, 1), (0, 1))):
        farthest = max(math.dist(p, corner) for corner in ((0, 0), (0, 6), (5, 0), (5, 6)))
        x = math.log(abs(c) * math.dist(p, q) + 1) / (math.log(abs(c) * max(farthest, threshold) + 1) + 1e-6)
        expected = scheme.out.weight @ torch.relu(scheme.hidden.weight[:, 0] * x + scheme.hidden.bias) + scheme.out.bias
        assert_close(prior[:, 1 + 7 * p[0] + p[1], 1 + 7 * q[0] + q[1]], expected.detach())
    assert not prior[:, 0].any() and not prior[:, :, 0].any()


def test_fire_2d_starts_at_the_diagonal_of_the_training_grid():
    assert Fire2D(grid_shape()).first_threshold == pytest.approx(5.0)  # 3 and 4 patches


# Rotary rows with an absolute embedding


@pytest.mark.parametrize(("kind", "plain"), [(RopeAxialApe, RopeAxial), (RopeMixedApe, RopeMixed)])
def test_absolute_embedding_beside_the_rotation(kind, plain):
    """Embedding: the table, stretched bicubically on another grid, nothing on CLS. Rotation: that of the row without it."""
    shape = make_shape("rope_mixed", "grid")
    scheme = kind(shape).double()
    randomise(scheme)
    larger, x = Positions.grid(9, 8, 1), torch.randn(2, 73, shape.embed_dim, dtype=torch.float64)
    table = scheme.absolute.table.detach().permute(2, 0, 1)[None]
    rows = F.interpolate(table, size=(9, 8), mode="bicubic", antialias=True)[0].flatten(1).T
    added = (scheme.embed(x, larger) - x).detach()
    assert_close(added, torch.cat((torch.zeros(1, shape.embed_dim).double(), rows)).expand(2, -1, -1))
    twin = plain(shape).double()
    twin.load_state_dict({name: value for name, value in scheme.state_dict().items() if not name.startswith("absolute")})
    q = torch.randn(2, shape.num_heads, 73, shape.head_dim, dtype=torch.float64)
    assert torch.equal(scheme.rotate(q, larger, Role.QUERY), twin.rotate(q, larger, Role.QUERY))


def test_all_layers_hold_the_one_table():
    scheme = RopeMixedApe(make_shape("rope_mixed", "grid"))
    first, second = scheme.for_layer(0), scheme.for_layer(1)
    assert first.absolute is second.absolute and first.frequencies is not second.frequencies


# What they share


@pytest.mark.parametrize(("kind", "kernel"), [(LookHere, "sdpa-flash"), (RelativeTable, "sdpa-math"), (Fire2D, "sdpa-math")])
def test_the_record_says_where_a_bias_trains(kind, kernel):
    shape, spy = grid_shape(3, 1), Recording(Auto())
    layer, positions = SelfAttention(shape, kind(shape), kernel=spy), Positions.grid(*GRID, 1)
    layer(torch.randn(2, 21, 24), positions).sum().backward()
    assert spy.used == {kernel}


def test_impossible_shapes_are_refused():
    line = ModelShape(1, True, 24, 1, 3, 3, 8, (64,))
    for kind in (LookHere, RelativeTable, Fire2D):
        with pytest.raises(ValueError, match="for images"):
            kind(line)
    for kind in (RopeAxialApe, RopeMixedApe):
        with pytest.raises(ValueError, match="two-dimensional"):
            kind(line)
    with pytest.raises(ValueError, match="field_of_view = 60 degrees; one of 180, 90, 45"):
        LookHere(grid_shape(), 60)
