"""ALiBi against the published slopes and against distances worked out one by one."""

import math

import pytest
import torch
from attention_cases import assert_close

from goatbench.attention.positions import Positions
from goatbench.attention.priors.alibi import Alibi, Alibi2D
from goatbench.attention.scheme import ModelShape

# arXiv 2108.12409: a geometric sequence from 2^(-8/n); for 12 heads those of 8, then every second one of 16.
EIGHT = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
PUBLISHED = {
    1: [2.0**-8],
    2: [0.0625, 0.00390625],
    4: [0.25, 0.0625, 0.015625, 0.00390625],
    8: EIGHT,
    12: [*EIGHT, 0.70710678, 0.35355339, 0.17677670, 0.08838835],
    16: [2 ** (-n / 2) for n in range(1, 17)],
}


def line_shape(heads: int, causal: bool = True) -> ModelShape:
    return ModelShape(1, causal, 32, 1, heads, heads, 32, (64,))


def grid_shape(heads: int, num_prefix: int = 0) -> ModelShape:
    return ModelShape(2, False, 32, 1, heads, heads, 32, (4, 4), num_prefix)


@pytest.mark.parametrize("heads", PUBLISHED)
def test_slopes_are_the_published_ones(heads):
    slopes = torch.tensor(PUBLISHED[heads])
    assert_close(Alibi(line_shape(heads)).slopes, slopes, atol=1e-7)
    assert_close(Alibi2D(grid_shape(heads)).slopes, slopes.sort(descending=True).values, atol=1e-7)


def test_prior_is_minus_slope_times_distance():
    """Written out, across the seam of the two integer lanes at 128, and for the last queries beside a cache."""
    n = 300
    i, j = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    expected = -torch.tensor(PUBLISHED[12], dtype=torch.float64)[:, None, None] * (i - j)
    scheme, keys = Alibi(line_shape(12)), Positions.line(n)
    whole = scheme.prior(keys, keys)
    torch.testing.assert_close(whole.dense(12, n, n, dtype=torch.float64)[0], expected, rtol=1e-6, atol=1e-6)
    last = scheme.prior(Positions.line(7, offset=n - 7), keys).dense(12, 7, n, dtype=torch.float64)[0]
    torch.testing.assert_close(last, expected[:, -7:], rtol=1e-6, atol=1e-6)
    assert whole.num_lanes == scheme.num_lanes == 2 and not list(scheme.parameters())


@pytest.mark.parametrize("num_prefix", [0, 1, 3])
@pytest.mark.parametrize("grid", [(3, 3), (2, 7)])
def test_2d_is_the_euclidean_distance(grid, num_prefix):
    """Brute force over all pairs; rows and columns of prefix tokens are zero."""
    height, width = grid
    places = [None] * num_prefix + [(y, x) for y in range(height) for x in range(width)]
    n = len(places)
    expected = torch.zeros(3, n, n, dtype=torch.float64)
    for h, slope in enumerate([0.25, 0.0625, 0.00390625]):  # 3 heads: those of 2, and the first of 4; in descending order
        for a, p in enumerate(places):
            for b, q in enumerate(places):
                if p is not None and q is not None:
                    expected[h, a, b] = -slope * math.dist(p, q)
    positions = Positions.grid(height, width, num_prefix)
    prior = Alibi2D(grid_shape(3, num_prefix)).prior(positions, positions)
    torch.testing.assert_close(prior.dense(3, n, n, dtype=torch.float64)[0], expected, rtol=1e-6, atol=1e-7)


def test_2d_with_other_patches_in_every_row_of_the_batch():
    """Patch dropout: row by row the rows and columns of the kept tokens."""
    positions, index = Positions.grid(3, 4, 1), torch.tensor([[0, 2, 3, 12], [0, 12, 7, 1]])
    scheme = Alibi2D(grid_shape(2, 1))
    whole = scheme.prior(positions, positions).dense(2, 13, 13)[0]
    kept = positions.gather(index)
    rows = scheme.prior(kept, kept).dense(2, 4, 4, batch=2)
    for row in range(2):
        assert_close(rows[row], whole[:, index[row]][:, :, index[row]], atol=1e-7)


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="causal and one-dimensional"):
        Alibi(line_shape(2, causal=False))
    with pytest.raises(ValueError, match="causal and one-dimensional"):
        Alibi(grid_shape(2))
    with pytest.raises(ValueError, match="for images"):
        Alibi2D(line_shape(2))
