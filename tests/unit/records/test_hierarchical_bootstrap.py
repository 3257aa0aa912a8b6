"""Seeds outside, examples inside: variances of drawn resamples, limits that are ordinary intervals, coverage in a seeded simulation."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from goatbench.records.statistics import hierarchical_bootstrap, summarise

MANY = 4000


def drawn_sd(scores: np.ndarray, weight: np.ndarray) -> float:
    """Standard deviation of the weighted mean over MANY resamples, seeds and examples drawn with replacement, one draw of examples for
    all seeds; the seeds' means are stretched first, so that resampled seeds vary as fresh ones do."""
    (num_seeds, num_examples), draw = scores.shape, np.random.default_rng(5)
    means = scores @ weight / weight.sum()
    stretch = math.sqrt(num_seeds / (num_seeds - 1)) - 1 if num_seeds > 1 else 0.0
    scores = scores + (stretch * (means - means.mean()))[:, None]
    found = []
    for _ in range(MANY):
        seeds, examples = draw.integers(num_seeds, size=num_seeds), draw.integers(num_examples, size=num_examples)
        found.append((scores[np.ix_(seeds, examples)] @ weight[examples]).mean() / weight[examples].sum())
    return float(np.std(found, ddof=1))


@pytest.mark.parametrize("shape", [(2, 5), (3, 40), (6, 12)])
@pytest.mark.parametrize("spread", [(1.0, 0.0), (0.1, 2.0), (0.5, 0.5)])
def test_the_spread_is_that_of_many_resamples(shape, spread):
    """A balanced two-level normal model. 4,000 resamples tell their sd to 1.1 %; four times that."""
    draw = np.random.default_rng(7)
    scores = spread[0] * draw.normal(size=(shape[0], 1)) + spread[1] * draw.normal(size=(1, shape[1])) + 0.7 * draw.normal(size=shape)
    found = hierarchical_bootstrap(scores)
    assert found.sd == pytest.approx(drawn_sd(scores, np.ones(shape[1])), rel=4 / math.sqrt(2 * MANY))
    assert (found.num_seeds, found.num_examples) == shape and found.mean == pytest.approx(scores.mean())


def test_where_only_seeds_vary_it_is_the_t_interval_of_their_means():
    """Scores 1, 2, 4 for every example: mean 7/3, sd sqrt(7/3)."""
    scores = np.repeat([[1.0], [2.0], [4.0]], 50, axis=1)
    found, expected = hierarchical_bootstrap(scores), summarise([1.0, 2.0, 4.0])
    assert found.half_width() == pytest.approx(expected.half_width, rel=1e-6)
    t = (7 / 3) / (math.sqrt(7 / 3) / math.sqrt(3))
    assert found.p_value() == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6)  # two degrees


def test_where_only_examples_vary_it_is_the_normal_interval_of_their_mean():
    """400 examples, half right, the same under each of three seeds: 1.96 * 0.5 / 20."""
    scores = np.tile(np.arange(400) % 2, (3, 1))
    found = hierarchical_bootstrap(scores)
    assert found.half_width() == pytest.approx(1.959964 * 0.5 / 20, rel=1e-6)
    shifted = hierarchical_bootstrap(scores - 0.45)  # two standard errors from zero: 0.05 / 0.025
    assert shifted.p_value() == pytest.approx(math.erfc(2 / math.sqrt(2)), rel=1e-6)


def test_weights_make_a_ratio_of_sums():
    """Values 1 and 3 with weights 3 and 1: mean 1.5. The spread, to first order, is that of many resamples."""
    found = hierarchical_bootstrap(np.array([[1.0, 3.0]]), np.array([3.0, 1.0]))
    assert found.mean == 1.5 and found.half_width() is None and found.p_value() is None  # one seed says nothing of others
    draw = np.random.default_rng(11)
    weight = draw.integers(1, 6, size=200).astype(float)
    scores = 0.1 * draw.normal(size=(3, 1)) + draw.normal(size=(1, 200)) / weight + 0.5 * draw.normal(size=(3, 200))
    assert hierarchical_bootstrap(scores, weight).sd == pytest.approx(drawn_sd(scores, weight), rel=0.06)


def test_no_spread_and_nonsense():
    found = hierarchical_bootstrap(np.zeros((3, 10)))
    assert (found.mean, found.sd, found.half_width(), found.p_value()) == (0.0, 0.0, None, None)
    for scores in (np.zeros(3), np.zeros((0, 3)), np.array([[1.0, np.nan]])):
        with pytest.raises(ValueError, match="finite scores"):
            hierarchical_bootstrap(scores)
    with pytest.raises(ValueError, match="positive weight"):
        hierarchical_bootstrap(np.zeros((2, 2)), np.array([1.0, 0.0]))


@pytest.mark.parametrize("spread", [(0.0, 1.0, 0.3), (0.3, 0.5, 0.5), (1.0, 0.3, 0.3)])
def test_the_interval_covers_at_least_as_often_as_it_says(spread):
    """300 made-up studies of 3 seeds and 40 examples: seeds, examples and what is left vary by `spread`. 95 % minus three standard
    errors; too wide is allowed, but not by much: an interval that always covers says nothing."""
    draw = np.random.default_rng(3)
    covered, widths, studies = 0, [], 300
    for _ in range(studies):
        scores = spread[0] * draw.normal(size=(3, 1)) + spread[1] * draw.normal(size=(1, 40)) + spread[2] * draw.normal(size=(3, 40))
        found = hierarchical_bootstrap(scores)
        covered += abs(found.mean) <= found.half_width()
        widths.append(found.half_width())
    assert covered / studies >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / studies)
    true = math.sqrt(spread[0] ** 2 / 3 + spread[1] ** 2 / 40 + spread[2] ** 2 / 120)
    assert np.median(widths) < 4.4 * true  # 4.3 is t's quantile with two degrees


def test_importing_the_statistics_imports_no_numpy():
    program = "import sys, goatbench.records.statistics; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
