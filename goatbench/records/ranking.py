"""Who is better than whom, as far as the seeds tell: paired tests against the best row, and groups instead of strict ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .statistics import PairedDifference, holm, paired_difference

ALPHA = 0.05
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


def compare_with(best: str, names: Sequence[str], scores: Mapping[str, Scores]) -> list[Comparison]:
    """Every named row against `best`, paired by seed; the p values are Holm-adjusted over the rows that could be tested."""
    differences = {name: paired_difference(scores[name], scores[best]) for name in names}
    tested = [name for name, difference in differences.items() if difference is not None and difference.p_value is not None]
    adjusted = dict(zip(tested, holm([differences[name].p_value for name in tested]), strict=True))
    return [Comparison(name, differences[name], adjusted.get(name)) for name in names]


def rank_groups(ranked: Sequence[str], others: Sequence[str], scores: Mapping[str, Scores]) -> tuple[dict[str, str], list[Comparison]]:
    """Rank labels of the rows in `ranked` (sorted, best first), and every row of both lists against the best one.

    A group is the best row left and all rows not told apart from it; '1-3' means: first to third place, in no order. The first
    group's tests are adjusted over `others` (variants, not ranked) as well. Rows with fewer than two seeds get no label.
    """
    left = [name for name in ranked if len(scores[name]) > 1]
    if not left:
        return {}, []
    first = compare_with(left[0], [name for name in (*ranked, *others) if name != left[0]], scores)
    labels: dict[str, str] = {}
    comparisons, place = first, 1
    while left:
        apart = {comparison.name for comparison in comparisons if comparison.is_told_apart}
        group = [name for name in left if name not in apart]
        last = place + len(group) - 1
        labels |= dict.fromkeys(group, f"{place}-{last}" if len(group) > 1 else f"{place}")
        place, left = last + 1, [name for name in left if name in apart]
        if left:
            comparisons = compare_with(left[0], left[1:], scores)
    return labels, first
