"""Who is better than whom, as far as the seeds tell: paired tests of every two rows, and places as intervals instead of strict ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .statistics import PairedDifference, holm, paired_difference

ALPHA = 0.05
MAX_ALL_PAIRS = 200  # rows; of more, whose pairs are too many, each is tested against the best alone
Scores = Mapping[int, float]  # seed -> value, oriented so that higher is better


@dataclass(frozen=True, slots=True)
class Comparison:
    """difference: row minus best, None without a common seed; p_adjusted: Holm's, None where no test was possible."""

    name: str
    difference: PairedDifference | None
    p_adjusted: float | None

    @property
    def is_told_apart(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA


@dataclass(frozen=True, slots=True)
class Ranking:
    """labels: places by row, best mean first; against_best: every other row minus the first of them, those without a label last.

    num_pairs: of rows with a label; num_untested: those of them that no test was possible of.
    """

    labels: dict[str, str] = field(default_factory=dict)
    against_best: list[Comparison] = field(default_factory=list)
    num_pairs: int = 0
    num_untested: int = 0


def compare_with(best: str, names: Sequence[str], scores: Mapping[str, Scores]) -> list[Comparison]:
    """Every named row against `best`, paired by seed; the p values are Holm-adjusted over the rows that could be tested."""
    differences = {name: paired_difference(scores[name], scores[best]) for name in names}
    tested = [name for name, difference in differences.items() if difference is not None and difference.p_value is not None]
    adjusted = dict(zip(tested, holm([differences[name].p_value for name in tested]), strict=True))
    return [Comparison(name, differences[name], adjusted.get(name)) for name in names]


def rank_rows(ranked: Sequence[str], others: Sequence[str], scores: Mapping[str, Scores]) -> Ranking:
    """Places of the rows in `ranked` (sorted, best first), and every row of both lists against the best one.

    A label is a 95 % confidence interval of the place of that one row (Mogstad, Romano, Shaikh and Wilhelm 2023, marginal confidence
    sets): '2-5' has one row significantly better, and of n rows n - 5 significantly worse. The row's n - 1 tests are Holm-adjusted; one
    that is not possible counts as p = 1. Of more than MAX_ALL_PAIRS rows each has the test against the best alone, and is '1-900' or
    '2-900'. `others` (variants) have no place, and a family of their own against the best. Rows with fewer than two seeds get no label.
    """
    names = [name for name in ranked if len(scores[name]) > 1]
    if not names:
        return Ranking()
    count = len(names)
    firsts = range(count if count <= MAX_ALL_PAIRS else 1)
    pairs = {(i, j): paired_difference(scores[names[j]], scores[names[i]]) for i in firsts for j in range(i + 1, count)}  # j minus i
    tested = {pair: one.p_value for pair, one in pairs.items() if one is not None and one.p_value is not None}
    labels: dict[str, str] = {}
    against_best: list[Comparison] = []
    for i, name in enumerate(names):
        rivals = range(count) if i in firsts else (0,)
        family = [(min(i, j), max(i, j)) for j in rivals if j != i]
        adjusted = dict(zip(family, holm([tested.get(pair, 1.0) for pair in family]), strict=True))
        if i == 0:
            against_best = [Comparison(names[j], pairs[0, j], adjusted[0, j] if (0, j) in tested else None) for _, j in family]
        apart = [pair for pair in family if adjusted[pair] < ALPHA]
        better = sum((pairs[pair].mean > 0) == (pair[0] == i) for pair in apart)
        first, last = 1 + better, count - (len(apart) - better)
        labels[name] = f"{first}" if first == last else f"{first}-{last}"
    against_best += compare_with(names[0], [*(name for name in ranked if name not in labels), *others], scores)
    return Ranking(labels, against_best, len(pairs), len(pairs) - len(tested))
