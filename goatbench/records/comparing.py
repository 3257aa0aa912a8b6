"""A against B: paired differences by seed of everything both were measured on, and what else is different between them.

Runs are paired only within one task version, scale, data, protocol and budget (`grouping`); what agrees in none of them is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .canonical import canonical_json
from .grouping import Group, RowSamples, as_measured, differing_fields, environment_of, group_records
from .leaderboard import title_of
from .ranking import ALPHA, Comparison
from .record import Metric, RunRecord, TaskCard
from .statistics import Summary, TwoLevelMean, holm, paired_difference, pairs_needed, summarise

if TYPE_CHECKING:
    from .over_examples import ExampleFiles

MOST_SEEDS = 1000
NO_MATTER = ("seed", "attention.name")  # configuration that differs by design


@dataclass(frozen=True, slots=True)
class Side:
    """label: as asked for; row: its name on boards; records: of any task."""

    label: str
    row: str
    records: Sequence[RunRecord]


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one task in one column: both sides over their seeds, and the paired difference A - B in the metric's unit.

    is_headline: the task's primary metric at its headline column. over_examples: the difference for other seeds and other examples,
    where both sides have stored the scores of single examples.
    """

    board: str
    metric: Metric
    column: str
    is_headline: bool
    a: Summary
    b: Summary
    comparison: Comparison
    over_examples: TwoLevelMean | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """A task that both were measured on, but never alike: the fields that differ, with both values."""

    task: str
    fields: tuple[tuple[str, str, str], ...]


def compare(
    cards: Iterable[TaskCard], a: Side, b: Side, everything: bool = False, examples: ExampleFiles | None = None
) -> tuple[list[Line], list[Apart]]:
    """Every metric at the headline column of each task (everything: at all columns).

    p values are Holm-adjusted over the headlines, one a task and board, and apart from them over all other lines.
    """
    lines: list[Line] = []
    apart: list[Apart] = []
    for card in cards:
        found = [line for metric in card.metrics for line in _lines(card, metric, a, b, everything, examples)]
        lines += found
        if not found and (different := _apart(card, a, b)) is not None:
            apart.append(different)
    adjusted: dict[int, float] = {}
    for family in (True, False):
        raw = {i: line.comparison.difference for i, line in enumerate(lines) if line.is_headline is family}
        tested = {i: d.p_value for i, d in raw.items() if d is not None and d.p_value is not None}
        adjusted |= dict(zip(tested, holm(list(tested.values())), strict=True))
    return [replace(line, comparison=replace(line.comparison, p_adjusted=adjusted.get(i))) for i, line in enumerate(lines)], apart


def _lines(card: TaskCard, metric: Metric, a: Side, b: Side, everything: bool, examples: ExampleFiles | None) -> Iterator[Line]:
    headline = card.primary_conditions.get(card.column_condition)
    others = {canonical_json(group.key): group for group in group_records(card, metric, b.records, ())}
    for group in group_records(card, metric, a.records, ()):
        other = others.get(canonical_json(group.key))
        if other is None or a.row not in group.rows or b.row not in other.rows:
            continue
        scores_a, scores_b = _by_column(group, a.row), _by_column(other, b.row)
        for value in sorted(scores_a.keys() & scores_b.keys(), key=lambda v: (isinstance(v, str), v)):
            if everything or value == headline:
                ours, theirs = scores_a[value], scores_b[value]
                comparison = Comparison(a.row, paired_difference(ours, theirs), None)
                summaries = summarise(list(ours.values())), summarise(list(theirs.values()))
                is_headline = value == headline and metric.name == card.primary_metric
                both = _over_examples(metric, group.rows[a.row], other.rows[b.row], value, examples)
                shown = as_measured(metric, group)
                yield Line(title_of(card, shown, group), shown, f"{value}", is_headline, *summaries, comparison, both)


def _over_examples(metric: Metric, ours: RowSamples, theirs: RowSamples, value: Any, examples: ExampleFiles | None) -> TwoLevelMean | None:
    if examples is None:
        return None
    from .over_examples import over_examples

    return over_examples(metric, ours, theirs, value, examples)


def _by_column(group: Group, row: str) -> dict[Any, dict[int, float]]:
    """Column value -> seed -> score, where there is one."""
    scores: dict[Any, dict[int, float]] = {}
    for sample in group.rows[row].finished:
        for value, measurement in sample.cells.items():
            if measurement.value is not None:
                scores.setdefault(value, {})[sample.record.seed] = measurement.value
    return scores


def _apart(card: TaskCard, a: Side, b: Side) -> Apart | None:
    metric = card.metric(card.primary_metric)
    ours, theirs = ([g for g in group_records(card, metric, side.records, ()) if side.row in g.rows] for side in (a, b))
    if not ours or not theirs:
        return None
    pair = [ours[0], theirs[0]]
    fields = ((name, *(canonical_json(group.key.get(name)) for group in pair)) for name in differing_fields(pair))
    return Apart(card.name, tuple(fields))


def verdict(line: Line, a: str, b: str) -> str:
    """What the difference says, in words: who is better, or how many seeds it would take."""
    difference = line.comparison.difference
    if difference is None:
        return "no common seed: not compared"
    if difference.n == 1:
        return "one common seed: its spread is unknown, so nothing can be said"
    seeds = f"at {difference.n} seeds"
    if difference.mean == 0 and not difference.sd:
        return f"equal in each of {difference.n} seeds"
    if line.comparison.is_told_apart:
        more = a if difference.mean > 0 else b
        if line.metric.direction == "none":
            return f"{more} has more {seeds}"
        better = more if line.metric.direction == "higher" else (b if more == a else a)
        return f"{better} is better {seeds}"
    if difference.p_value is None:
        return f"the same difference in each of {difference.n} seeds: no test is possible"
    if difference.p_value < ALPHA:
        return f"not distinguishable {seeds} once adjusted for the number of lines"
    needed = pairs_needed(difference.mean, difference.sd or 0.0, alpha=ALPHA, most=MOST_SEEDS)
    return f"not distinguishable {seeds}: would need {f'more than {MOST_SEEDS:,}' if needed is None else f'about {needed}'}"


def differences(a: Any, b: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, value in a, value in b) wherever two nested containers differ; a key that is absent counts as None."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            yield from differences(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key)
    elif a != b:
        yield prefix, a, b


def config_differences(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[tuple[str, Any, Any]]:
    """Of the newest runs of both sides in the first task they share: what is configured differently, apart from seed and name."""
    newest = [{r.task.name: r for r in sorted(side, key=lambda r: r.run_id)} for side in (a, b)]
    shared = sorted(newest[0].keys() & newest[1].keys())
    if not shared:
        return []
    one, other = (side[shared[0]].config for side in newest)
    return [(key, x, y) for key, x, y in differences(one, other) if key not in NO_MATTER]


def environment_differences(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[tuple[str, str, str]]:
    """Machine, libraries and state of the code where the two sides do not have the same set of values."""
    found = [[environment_of(record) for record in side] for side in (a, b)]
    keys = sorted({key for side in found for environment in side for key in environment})
    values = [(key, *({canonical_json(environment.get(key)) for environment in side} for side in found)) for key in keys]
    values.append(("code", *({f"{r.code.source_hash[:8]}{' (dirty)' if r.code.dirty else ''}" for r in side} for side in (a, b))))
    return [(key, " or ".join(sorted(x)), " or ".join(sorted(y))) for key, x, y in values if x != y]
