"""A board read against one of its rows: every cell a difference by seed, with interval and Holm-adjusted p, missing pairs named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .board import Cell, Column, Row
from .grouping import Group
from .ranking import Comparison, compare_with
from .record import Metric


def against(baseline: str, metric: Metric, group: Group, rows: list[Row], columns: Mapping[object, Column]) -> list[Row]:
    """The rows with score cells turned into 'row minus baseline', paired by seed; the baseline's own row keeps its values.

    p values are Holm-adjusted over the rows of one column. Yardsticks have no seeds and no difference.
    """
    by_column = {column.key: _compare(baseline, group, value) for value, column in columns.items()}
    changed = []
    for row in rows:
        if row.name == baseline and not row.is_reference:
            changed.append(replace(row, is_baseline=True))
            continue
        cells = dict(row.cells)
        for key, comparisons in by_column.items():
            has_score = key in cells and cells[key].summary is not None
            if row.is_reference:
                cells.pop(key, None)
            elif row.name in comparisons and has_score:
                cells[key] = difference_cell(metric, comparisons[row.name])
        changed.append(replace(row, cells=cells))
    return changed


def _compare(baseline: str, group: Group, value: object) -> dict[str, Comparison]:
    scores = {name: _by_seed(group, name, value) for name in group.rows}
    names = [name for name in sorted(group.rows) if name != baseline and scores[name]]
    return {comparison.name: comparison for comparison in compare_with(baseline, names, scores)}


def _by_seed(group: Group, name: str, value: object) -> dict[int, float]:
    measured = ((sample.record.seed, sample.cells.get(value)) for sample in group.rows[name].finished)
    return {seed: m.value for seed, m in measured if m is not None and m.value is not None}


def difference_cell(metric: Metric, comparison: Comparison) -> Cell:
    """'-1.2 [-3.1,+0.7] p=0.15', '-1.2 (1 pair)', '-1.2 no test' (equal in every seed) or 'no pair'."""
    difference = comparison.difference
    if difference is None:
        return Cell("no pair")
    mean = metric.text(difference.mean, "+")
    if difference.half_width is None:
        return Cell(f"{mean} (1 pair)" if difference.n == 1 else f"{mean} no test", difference=difference)
    low, high = (metric.text(difference.mean + sign * difference.half_width, "+") for sign in (-1, 1))
    return Cell(f"{mean} [{low},{high}] p={comparison.p_adjusted:.2g}", difference=difference, p_adjusted=comparison.p_adjusted)


def note(baseline: str, metric: Metric, rows: list[Row]) -> list[str]:
    """How the cells are to be read."""
    better = {"higher": "positive is better", "lower": "negative is better", "none": "positive is more"}[metric.direction]
    told = (
        f"cells: row minus {baseline}, paired by seed: mean [95 % t interval], p of the paired t test, Holm-adjusted over the rows of "
        f"its column; {better} than {baseline}"
    )
    notes = [told]
    for end, why in (("no pair", f"no common seed with {baseline}"), ("no test", "the same difference in every seed")):
        names = sorted({row.name for row in rows for cell in row.cells.values() if cell.text.endswith(end)})
        notes += [f"{end}: {why}: {', '.join(names)}"] if names else []
    return notes
