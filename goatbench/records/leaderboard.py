"""From records to boards: rows of attentions, a column for each value of one condition, cells over seeds.

What must not be mixed is split (`grouping`), failed runs are rows with a reason, ranks are intervals (`ranking`). No torch, no time
stamps: equal records give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .against import against as against_baseline
from .against import note as against_note
from .board import Board, Cell, Column, Row
from .board_notes import notes_of
from .costs import extra_columns, is_comparable, mark_pareto
from .grouping import REFERENCE, Group, RowSamples, Sample, as_measured, group_records
from .ranking import rank_rows
from .record import Metric, RunRecord, TaskCard
from .statistics import Summary, summarise

if TYPE_CHECKING:
    from .over_examples import ExampleFiles


def build_boards(
    card: TaskCard, submitted: Iterable[RunRecord], local: Iterable[RunRecord] = (), metric: str | None = None,
    against: str | None = None, examples: ExampleFiles | None = None,
) -> list[Board]:  # fmt: skip
    """The boards of a task, current version first; none without records. metric: one of the card's, by default its primary one.

    against: a row that the others are compared with, seed by seed; boards without it are left out. examples: where runs have stored
    the scores of single examples, the headline's intervals are also over them: those of the notes now, those of cells when asked for.
    """
    known = [m.name for m in card.metrics]
    if metric is not None and metric not in known:
        raise UsageError(f"task {card.name} has no metric {metric!r}: choose one of {', '.join(known)}")
    shown = card.metric(metric or card.primary_metric)
    groups = group_records(card, shown, submitted, local)
    chosen = [group for group in groups if against is None or against in group.rows]
    return [_board(card, as_measured(shown, group), group, groups, against, examples) for group in chosen]


def row_names(card: TaskCard, submitted: Iterable[RunRecord], local: Iterable[RunRecord] = ()) -> list[str]:
    """All rows of all boards of a task: what `against` can be."""
    groups = group_records(card, card.metric(card.primary_metric), submitted, local)
    return sorted({name for group in groups for name in group.rows})


def _board(
    card: TaskCard, metric: Metric, group: Group, groups: list[Group], against: str | None, examples: ExampleFiles | None
) -> Board:
    headline = _headline(card, group)
    scores = {name: scores_of(metric, row, headline) for name, row in group.rows.items()}
    means = {name: summarise(list(values.values())).mean for name, values in scores.items() if values}
    order = sorted(group.rows, key=lambda name: (name not in means, -means.get(name, 0.0), name))
    unlearned = {name for name, row in group.rows.items() if not has_learned(card, row)}
    rivals = [name for name in order if name in means and group.rows[name].attention not in card.controls and name not in unlearned]
    rivals = [] if metric.direction == "none" else rivals
    plain = [name for name in rivals if group.rows[name].is_plain]
    ranking = rank_rows(plain, [name for name in rivals if name not in plain], scores)

    columns = _score_columns(card, metric, group, headline)
    extras = [*([_by_seed(metric, group, headline)] if card.per_seed else []), *extra_columns(group)]
    rows = []
    for name in order:
        row = group.rows[name]
        finished = row.finished
        cells = {column.key: cell_of(metric, finished, value) for value, column in columns.items()}
        if not finished:
            cells[columns[headline].key if headline in columns else "seeds"] = Cell(row.failed[-1].record.ending)
        cells |= {column.key: by_row[name] for column, by_row in extras if by_row[name].text}
        is_local = any(sample.is_local for sample in row.samples.values())
        is_control = row.attention in card.controls
        rows.append(Row(name, cells, ranking.labels.get(name, ""), row.is_plain, is_control, is_local, is_unlearned=name in unlearned))
    if is_comparable(group):
        rows = mark_pareto(rows, {name: means[name] for name in rivals})
    rows = _with_references(metric, group, rows, columns, headline)
    head = columns[headline].head if headline in columns else None
    notes = notes_of(card, metric, group, groups, rows, head, ranking)
    if against is not None:
        rows = against_baseline(against, metric, group, rows, columns)
        notes = [*against_note(against, metric, rows), *notes]
    detailed = None
    if examples is not None and headline in columns:
        from .over_examples import note, of_rows, with_intervals

        def detailed() -> Sequence[Row]:
            return with_intervals(rows, of_rows(metric, group, order, against, headline, examples), columns[headline].key)

        if (base := against or next(iter(ranking.labels), rivals[0] if rivals else None)) is not None:
            notes += note(metric, base, of_rows(metric, group, order, base, headline, examples))
    facts = _facts(card, metric, group, headline) | ({"against": against} if against is not None else {})
    every = (*columns.values(), *(column for column, _ in extras))
    return Board(title_of(card, metric, group, against), every, tuple(rows), tuple(notes), facts, detailed)


def _headline(card: TaskCard, group: Group) -> Any:
    """The column that a board is sorted by: the card's, or the only one in which this metric was measured at all."""
    measured = {column for sample in group.samples for column, m in sample.cells.items() if m.value is not None}
    return next(iter(measured)) if len(measured) == 1 else card.primary_conditions.get(card.column_condition)


def title_of(card: TaskCard, metric: Metric, group: Group, against: str | None = None) -> str:
    """'vit_resolution@v1 · embedded · top1 (%) ↑'."""
    unit = "%" if metric.percent else metric.unit
    minus = f", minus {against}" if against is not None else ""
    return f"{card.name}@v{group.key['version']} · {group.key['scale']} · {metric.name}{minus} ({unit}) {metric.arrow}"


def _facts(card: TaskCard, metric: Metric, group: Group, headline: Any) -> dict[str, Any]:
    """What a program needs to read the board: the metric, and everything that its rows share."""
    return {
        "kind": "measured", "task": card.name, "version": group.key["version"], "scale": group.key["scale"], "metric": metric.name,
        "unit": metric.unit, "percent": metric.percent, "digits": metric.digits, "direction": metric.direction,
        "chance": metric.chance_at(group.key["scale"]), "column_condition": card.column_condition, "headline": headline,
        "shared": {name: value for name, value in sorted(group.key.items()) if name not in ("version", "scale", "unit")},
    }  # fmt: skip


def has_learned(card: TaskCard, row: RowSamples) -> bool:
    """False if the mean of the card's test of learning, over the plain row's conditions, is known and too low."""
    if card.learned is None:
        return True
    test, column = card.learned, card.column_condition
    measured = (m for sample in row.finished for m in sample.record.measurements if m.metric == test.metric)
    wanted = {column: (test.value,), REFERENCE: (None,), **card.headline_rows}
    plain = (m for m in measured if all(m.conditions.get(name) in values for name, values in wanted.items()))
    values = [m.value for m in plain if m.value is not None]
    return not values or summarise(values).mean >= test.at_least


def _with_references(metric: Metric, group: Group, rows: list[Row], columns: dict[Any, Column], headline: Any) -> list[Row]:
    """Yardsticks among the rows, where their headline value puts them; not ranked, without spread (they have no seed)."""

    def place(row: Row) -> float:
        cell = row.cells.get(columns[headline].key if headline in columns else "")
        return -metric.sign * cell.summary.mean if cell is not None and cell.summary is not None else float("inf")

    yardsticks = []
    for name, sample in group.references.items():
        values = {v: m.value for v, m in sample.cells.items() if m.value is not None and v in columns}
        cells = {columns[v].key: Cell(metric.text(value), summarise([value])) for v, value in values.items()}
        yardsticks.append(Row(name, cells, is_plain=False, is_reference=True))
    return sorted([*rows, *yardsticks], key=place)


def scores_of(metric: Metric, row: RowSamples, headline: Any) -> dict[int, float]:
    """Headline value by seed, turned so that higher is better."""
    measured = ((sample.record.seed, sample.cells.get(headline)) for sample in row.finished)
    return {seed: metric.sign * m.value for seed, m in measured if m is not None and m.value is not None}


def _score_columns(card: TaskCard, metric: Metric, group: Group, headline: Any) -> dict[Any, Column]:
    """Column by value of the column condition, numbers in order; the head names the label too where it differs: '28 (512)'."""
    labels: dict[Any, set[Any]] = {}
    for sample in group.samples:
        for value, measurement in sample.cells.items():
            labels.setdefault(value, set()).add(measurement.conditions.get(card.column_label or card.column_condition, value))
    columns = {}
    for value in sorted(labels, key=lambda v: (isinstance(v, str), v)):
        label = next(iter(labels[value])) if len(labels[value]) == 1 else value
        head = f"{value}" if label == value else f"{label} ({value})"
        columns[value] = Column(f"{value}", head + (metric.arrow if value == headline else ""), is_score=True)
    return columns


def cell_of(metric: Metric, finished: list[Sample], value: Any) -> Cell:
    """'40.2±1.1' (standard deviation), '40.2±?' with one seed, '40.2±1.1 (2)' with fewer seeds than the row, 'n/a', or '-'."""
    measured = [sample.cells[value] for sample in finished if value in sample.cells]
    numbers = [measurement.value for measurement in measured if measurement.value is not None]
    if not numbers:
        return Cell("n/a" if measured else "-")
    summary = summarise(numbers)
    count = "" if summary.n == len(finished) else f" ({summary.n})"
    return Cell(_show(metric, summary) + count, summary)


def _show(metric: Metric, summary: Summary) -> str:
    return f"{metric.text(summary.mean)}±{'?' if summary.sd is None else metric.text(summary.sd)}"


def _by_seed(metric: Metric, group: Group, headline: Any) -> tuple[Column, dict[str, Cell]]:
    """The headline value of every seed, in the order of the seeds."""
    texts = {}
    for name, row in group.rows.items():
        found = sorted((s.record.seed, s.cells[headline].value) for s in row.finished if headline in s.cells)
        texts[name] = Cell(" ".join("n/a" if value is None else metric.text(value) for _, value in found))
    return Column("by_seed", "seed by seed", numeric=False), texts
