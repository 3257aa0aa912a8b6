"""Against printed tables (t: Abramowitz and Stegun 26.10 and later, to nine decimals) and closed forms."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from goatbench.records.statistics import (
    bootstrap_intervals,
    holm,
    paired_difference,
    paired_power,
    pairs_needed,
    summarise,
    t_quantile,
    t_two_sided,
    wilson_interval,
)

TABLE = [  # p, degrees of freedom, quantile
    (0.975, 1, 12.706204736),
    (0.975, 2, 4.302652730),
    (0.975, 3, 3.182446305),
    (0.975, 4, 2.776445105),
    (0.975, 9, 2.262157163),
    (0.975, 29, 2.045229642),
    (0.995, 3, 5.840909310),
    (0.995, 10, 3.169272673),
    (0.95, 5, 2.015048373),
    (0.9, 1, 3.077683537),
    (0.9995, 2, 31.599054577),
    (0.975, 1000, 1.962339081),
]


@pytest.mark.parametrize(("p", "degrees", "expected"), TABLE)
def test_t_quantile_equals_the_table(p, degrees, expected):
    assert t_quantile(p, degrees) == pytest.approx(expected, abs=1e-8)
    assert t_quantile(1 - p, degrees) == pytest.approx(-expected, abs=1e-8)


def test_t_quantile_equals_its_closed_forms():
    """One degree is Cauchy's distribution, two have an algebraic quantile."""
    for p in (0.5, 0.6, 0.9, 0.975, 0.999, 0.9999):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9, abs=1e-12)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, 1.0, 4.3, 60.0, 1e6])
def test_two_sided_p_equals_its_closed_forms(t):
    assert t_two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9, abs=1e-15)
    assert t_two_sided(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9, abs=1e-12)
    x = t / math.sqrt(4)  # four degrees: Abramowitz and Stegun 26.7.4
    cosine = 1 / math.sqrt(1 + x * x)
    assert t_two_sided(t, 4) == pytest.approx(1 - x * cosine * (1 + cosine**2 / 2), rel=1e-9, abs=1e-12)


def test_summary_of_a_worked_example():
    summary = summarise([1.0, 2.0, 3.0, 4.0])
    assert (summary.n, summary.mean) == (4, 2.5)
    assert summary.sd == pytest.approx(math.sqrt(5 / 3))
    assert summary.half_width == pytest.approx(3.182446305 * math.sqrt(5 / 3) / 2)
    assert summarise([7.0]).sd is None
    with pytest.raises(ValueError, match="at least one value"):
        summarise([])
    with pytest.raises(ValueError, match="finite"):
        summarise([1.0, math.nan])


def test_the_t_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(4000, 3))
    covered = [abs(s.mean) <= s.half_width for s in (summarise(list(map(float, row)), 0.9) for row in draws)]
    assert np.mean(covered) == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 4000))


def test_paired_difference_of_a_worked_example():
    """Differences 1, 2, 3: mean 2, sd 1, t = 2 sqrt(3) with two degrees, p = 1 - t / sqrt(2 + t^2). Unpaired seeds do not count."""
    difference = paired_difference({0: 11.0, 1: 7.0, 2: 5.0, 9: 99.0}, {0: 10.0, 1: 5.0, 2: 2.0, 8: -99.0})
    t = 2 * math.sqrt(3)
    assert (difference.n, difference.mean, difference.sd) == (3, 2.0, 1.0)
    assert difference.p_value == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert difference.half_width == pytest.approx(4.302652730 / math.sqrt(3))


def test_no_spread_is_no_certainty():
    twice = paired_difference({0: 0.9, 1: 0.8}, {0: 0.4, 1: 0.3})  # 0.5, up to rounding
    assert (twice.n, twice.p_value, twice.half_width) == (2, None, None) and twice.mean == pytest.approx(0.5)
    assert paired_difference({0: 0.9}, {0: 0.4}).p_value is None
    assert paired_difference({0: 0.9, 1: 0.8}, {0: 0.9, 1: 0.8}).p_value == 1.0
    assert paired_difference({0: 0.9}, {1: 0.9}) is None


def test_wilson_equals_worked_examples():
    """10 of 10 and 0 of 10 have closed ends n / (n + z^2); the interval solves |p - 8/10| = z sqrt(p (1 - p) / 10)."""
    z2 = 3.841458821
    assert wilson_interval(10, 10) == (pytest.approx(10 / (10 + z2)), 1.0)
    assert wilson_interval(0, 10) == (0.0, pytest.approx(z2 / (10 + z2)))
    for end in wilson_interval(8, 10):
        assert (end - 0.8) ** 2 == pytest.approx(z2 * end * (1 - end) / 10)
    with pytest.raises(ValueError, match="11 of 10"):
        wilson_interval(11, 10)


def test_holm_of_a_worked_example():
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1 is 0.04, 0.06, 0.06, 0.04; made monotone: 0.04, 0.06, 0.06, 0.06."""
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("effect", "pairs"), [(1.0, 10), (0.8, 15), (0.5, 34), (0.2, 199)])
def test_pairs_needed_are_those_of_published_power_tables(effect, pairs):
    """Two-sided paired t test, alpha .05, power .8: what G*Power 3.1 prints for these effect sizes."""
    assert pairs_needed(effect, 1.0) == pairs
    assert pairs_needed(-3 * effect, 3.0) == pairs


def test_power_without_an_effect_is_the_level_and_grows_with_pairs():
    for n in (2, 3, 10, 200):
        assert paired_power(0.0, n) == pytest.approx(0.05, abs=1e-6)
    powers = [paired_power(0.7, n) for n in range(2, 40)]
    assert powers == sorted(powers) and powers[-1] > 0.98


def test_power_at_two_pairs_equals_a_direct_integral():
    """One degree of freedom: s is a half-normal, so the power is its mean of Phi(d - c s) + Phi(-d - c s), summed finely here."""
    shift, critical, step = 5 * math.sqrt(2), 12.706204736, 1e-4
    s = np.arange(step / 2, 9, step)
    density = math.sqrt(2 / math.pi) * np.exp(-s * s / 2)
    phi = np.vectorize(NormalDist().cdf)
    expected = float(np.sum(density * (phi(shift - critical * s) + phi(-shift - critical * s))) * step)
    assert paired_power(5.0, 2) == pytest.approx(expected, abs=1e-5)


def test_no_number_of_pairs_finds_no_difference():
    assert pairs_needed(0.0, 1.0) is None and pairs_needed(0.001, 1.0) is None
    with pytest.raises(ValueError, match="n >= 2"):
        paired_power(1.0, 1)


def test_bootstrap_of_two_values_has_their_range_and_is_repeatable():
    """Means of two draws from {0, 1}: 0 and 1 with chance 1/4 each, so both ends of the 95 % interval are extremes."""
    values = [0.0, 1.0]

    def mean(draws):
        return [sum(values[i] for i in draws[0]) / 2, 7.0]

    assert bootstrap_intervals([2], mean) == [(0.0, 1.0), (7.0, 7.0)] == bootstrap_intervals([2], mean)


def test_bootstrap_of_many_values_is_the_normal_interval():
    """n = 400 values with sd 1: half width 1.96 / 20; groups are drawn apart, so the sd of a sum of two means is sqrt(2) larger."""
    values = [math.sqrt(2) * math.sin(2 * math.pi * (i + 0.5) / 400) for i in range(400)]

    def statistic(draws):
        means = [sum(values[i] for i in drawn) / 400 for drawn in draws]
        return [means[0], means[0] + means[1]]

    (low, high), (low_sum, high_sum) = bootstrap_intervals([400, 400], statistic, resamples=1000)
    assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.1)
    assert high_sum - low_sum == pytest.approx(2 * 1.96 / 20 * math.sqrt(2), rel=0.1)
    with pytest.raises(ValueError, match="at least one unit"):
        bootstrap_intervals([3, 0], statistic)
