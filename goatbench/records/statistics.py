"""What a handful of seeds says about a mean, a rate or a difference. Standard library: samples are small, imports are not.

Only `hierarchical_bootstrap`, over thousands of examples, imports numpy when it is called.

Student's t is computed from the regularised incomplete beta function by its continued fraction (Lentz's method; Abramowitz and
Stegun 26.5.8 and 26.7.1); quantiles by bisection on it. Relative error below 1e-9 for 1 to 1,000 degrees of freedom.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_NORMAL = NormalDist()
BINOMIAL, WILSON = "binomial", "width of Wilson's 95 % interval / 3.92"  # stderr_method of a rate; `submit` works both out again


@dataclass(frozen=True, slots=True)
class Summary:
    """n values: their mean, sample standard deviation (n - 1) and the half width of the t interval; the last two None for n = 1."""

    n: int
    mean: float
    sd: float | None
    half_width: float | None


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """mean of a - b over the n seeds that both have, with t interval and two-sided p value.

    p_value and half_width are None where no test is possible: fewer than two pairs, or differences that are equal in every pair (their
    spread, and with it the error of the mean, is then unknown rather than zero). All differences exactly zero: p_value is 1.
    """

    n: int
    mean: float
    sd: float | None
    half_width: float | None
    p_value: float | None


def summarise(values: Sequence[float], level: float = 0.95) -> Summary:
    """Mean, standard deviation and t interval of at least one finite value."""
    _check_level(level)
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"summarise needs at least one value and only finite ones, got {list(values)[:5]}")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(n, mean, None, None)
    sd = math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / (n - 1))
    return Summary(n, mean, sd, t_quantile(0.5 + level / 2, n - 1) * sd / math.sqrt(n))


def paired_difference(a: Mapping[int, float], b: Mapping[int, float], level: float = 0.95) -> PairedDifference | None:
    """Paired t of a - b, paired by seed; None without a common seed."""
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return None
    pairs = [(a[seed], b[seed]) for seed in seeds]
    differences = [x - y for x, y in pairs]
    summary = summarise(differences, level)
    if not any(differences):
        p_value = 1.0 if summary.n > 1 else None
    elif summary.sd is None or summary.sd <= 1e-12 * max(max(abs(x), abs(y)) for x, y in pairs):
        p_value = None  # one pair, or a spread that is only rounding
    else:
        p_value = t_two_sided(summary.mean / (summary.sd / math.sqrt(summary.n)), summary.n - 1)
    return PairedDifference(summary.n, summary.mean, summary.sd, None if p_value is None else summary.half_width, p_value)


def paired_power(effect: float, n: int, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t test of n pairs finds a true mean difference of `effect` standard deviations.

    The noncentral t tail as an average of normal tails over the distribution of the sample's standard deviation (Simpson's rule).
    """
    if n < 2 or not math.isfinite(effect):
        raise ValueError(f"paired_power needs n >= 2 and a finite effect, got n={n}, effect={effect}")
    degrees, shift, steps = n - 1, abs(effect) * math.sqrt(n), 800
    critical = t_quantile(1 - alpha / 2, degrees)
    reach = 10 / math.sqrt(2 * degrees)  # s = sample sd / true sd, spread about 1 / sqrt(2 degrees)
    low, high = max(1e-12, 1 - reach), 1 + reach
    log_front = math.log(2) + degrees / 2 * math.log(degrees / 2) - math.lgamma(degrees / 2)

    def at(s: float) -> float:
        density = math.exp(log_front + (degrees - 1) * math.log(s) - degrees * s * s / 2)
        return density * (_NORMAL.cdf(shift - critical * s) + _NORMAL.cdf(-shift - critical * s))

    width = (high - low) / steps
    return width / 3 * math.fsum((1 if i in (0, steps) else 4 if i % 2 else 2) * at(low + i * width) for i in range(steps + 1))


def pairs_needed(mean: float, sd: float, power: float = 0.8, alpha: float = 0.05, most: int = 1000) -> int | None:
    """Least number of pairs at which a paired t test would find this mean difference with this power; None if more than `most`."""
    if not sd > 0 or mean == 0:
        return None if mean == 0 else 2
    low, high = 1, 2  # the power grows with n: enough at high, not enough at low
    while paired_power(mean / sd, high, alpha) < power:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if paired_power(mean / sd, middle, alpha) >= power else (middle, high)
    return high


def bootstrap_intervals(
    sizes: Sequence[int], statistic: Callable[[list[list[int]]], Sequence[float]], resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> list[tuple[float, float]]:
    """Percentile intervals (Efron 1979) of every component of `statistic`, a function of indices drawn with replacement.

    sizes: how many units each independent group has (its seeds); statistic gets as many drawn indices of each group.
    """
    _check_level(level)
    if not sizes or min(sizes) < 1 or resamples < 1:
        raise ValueError(f"bootstrap_intervals needs groups of at least one unit and one resample, got {list(sizes)}, {resamples}")
    draw = random.Random(seed)
    drawn = [statistic([draw.choices(range(size), k=size) for size in sizes]) for _ in range(resamples)]
    cut = (1 - level) / 2
    return [_ends(sorted(values), cut) for values in zip(*drawn, strict=True)]


def _ends(values: list[float], cut: float) -> tuple[float, float]:
    return values[math.floor(cut * (len(values) - 1))], values[math.ceil((1 - cut) * (len(values) - 1))]


@dataclass(frozen=True, slots=True)
class TwoLevelMean:
    """Mean over seeds and examples; sd: what both sources of noise give it, over resamples; sd_seeds: what the seeds' means alone show.

    The interval takes t's quantile for the seeds' part of the variance (where only seeds vary it is their t interval) and the normal one
    for the rest. No interval and no p value with one seed, or where nothing varies.
    """

    num_seeds: int
    num_examples: int
    mean: float
    sd: float
    sd_seeds: float | None

    def half_width(self, level: float = 0.95) -> float | None:
        if self.sd_seeds is None:
            return None
        rest = math.sqrt(max(0.0, self.sd**2 - self.sd_seeds**2))
        p = 0.5 + level / 2
        return math.hypot(t_quantile(p, self.num_seeds - 1) * self.sd_seeds, _NORMAL.inv_cdf(p) * rest)

    def p_value(self) -> float | None:
        """Of a mean of zero: one minus the level at which the interval ends at zero."""
        if self.sd_seeds is None:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.half_width(1 - middle) > abs(self.mean) else (low, middle)
        return (low + high) / 2


def hierarchical_bootstrap(scores: np.ndarray, weights: np.ndarray | None = None) -> TwoLevelMean:
    """The weighted mean of scores [seeds, examples], or of paired differences, when other seeds and other examples could have been drawn.

    A resample draws seeds and, within, the examples, with replacement. All seeds were tested on the same examples, so one draw of
    examples serves them all (Owen 2007, The pigeonhole bootstrap): drawn apart for each seed, luck with the examples would average out.
    Nothing is drawn here: what infinitely many resamples would give is known. Scores are a mean, a part of the seed, a part of the
    example and the rest, which add their mean squares over S, N and S N to the variance (weights: of the ratio's first-order terms).
    The seeds' part is stretched by S / (S - 1), as resampled seeds vary less than fresh ones would. The variance is too large rather
    than too small: what only one seed does with one example counts more than once. Percentiles of three seeds mean little: see
    `TwoLevelMean` for the interval.
    """
    import numpy as np

    values = np.asarray(scores, np.float64)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ValueError(f"hierarchical_bootstrap needs finite scores [seeds, examples], got {values.shape}")
    num_seeds, num_examples = values.shape
    weight = np.ones(num_examples) if weights is None else np.asarray(weights, np.float64)
    if weight.shape != (num_examples,) or not (weight > 0).all():
        raise ValueError(f"hierarchical_bootstrap needs a positive weight for each of {num_examples} examples, got {weight.shape}")
    means = values @ weight / weight.sum()
    mean = float(means.mean())
    rest = (values - means[:, None]) * (weight / weight.mean())
    of_examples = rest.mean(0)
    stretch = num_seeds / (num_seeds - 1) if num_seeds > 1 else 1.0
    squares = np.square(means - mean).mean() * stretch, np.square(of_examples).mean(), np.square(rest - of_examples).mean()
    sd = math.sqrt(squares[0] / num_seeds + squares[1] / num_examples + squares[2] / (num_seeds * num_examples))
    varies = num_seeds > 1 and sd > 1e-12 * float(np.abs(values).max())
    return TwoLevelMean(num_seeds, num_examples, mean, sd, float(means.std(ddof=1)) / math.sqrt(num_seeds) if varies else None)


def wilson_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate (Wilson 1927): inside [0, 1] and not empty even at 0 or n successes."""
    _check_level(level)
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"wilson_interval needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return (centre - half if successes else 0.0), (centre + half if successes < n else 1.0)  # the ends exactly, without rounding


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values (Holm 1979), in the order given."""
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"p values lie in [0, 1], got {list(p_values)[:5]}")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def t_two_sided(t: float, degrees: int) -> float:
    """P(|T| >= |t|) for Student's t."""
    assert degrees >= 1
    if math.isinf(t):
        return 0.0
    return _beta_regularised(degrees / (degrees + t * t), degrees / 2, 0.5)


@cache
def t_quantile(p: float, degrees: int) -> float:
    """The t with P(T <= t) = p, for 0 < p < 1."""
    if not 0 < p < 1 or degrees < 1:
        raise ValueError(f"t_quantile needs 0 < p < 1 and degrees >= 1, got p={p}, degrees={degrees}")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, degrees)
    tail, low, high = 2 * (1 - p), 0.0, 1.0
    while t_two_sided(high, degrees) > tail:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if middle in (low, high) or high - low <= 1e-14 * high:
            return middle
        low, high = (middle, high) if t_two_sided(middle, degrees) > tail else (low, middle)


def _beta_regularised(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast; otherwise by symmetry
        return math.exp(log_front) * _beta_fraction(x, a, b) / a
    return 1 - math.exp(log_front) * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction of I_x(a, b)."""
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for coefficient in (even, odd):
            d = 1 / ((1 + coefficient * d) or tiny)
            c = (1 + coefficient / c) or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
