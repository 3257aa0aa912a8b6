"""Differences that hold for other seeds and other examples: where runs have stored the scores of single examples.

A board's tests are over seeds: they ask whether another training would say the same of these test examples. This asks of other test
examples as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .board import Row
from .canonical import canonical_json
from .examples import EXAMPLES, Loaded, read_examples
from .grouping import Group, RowSamples, Sample
from .layout import placed_at
from .record import Metric, RunRecord
from .statistics import TwoLevelMean, hierarchical_bootstrap

MAX_ROWS = 50  # of a board, best first: each has files to read
MAX_LISTED = 20
METHOD = "95 % two-way bootstrap over seeds and examples"


class ExampleFiles:
    """The scores behind records, from own runs and from published ones; read once, checked, unreadable ones named in `warnings`."""

    def __init__(self, runs_dir: Path | str | None, published: Path | str | None, warnings: list[str]) -> None:
        self.runs_dir, self.published, self.warnings = runs_dir, published, warnings
        self._loaded: dict[str, Loaded | None] = {}

    def of(self, record: RunRecord) -> Loaded | None:
        """None if the run has stored none, or no file of them is whole."""
        if record.examples is None:
            return None
        if record.run_id not in self._loaded:
            self._loaded[record.run_id] = self._read(record)
        return self._loaded[record.run_id]

    def _read(self, record: RunRecord) -> Loaded | None:
        paths = [] if self.runs_dir is None else [Path(self.runs_dir) / record.run_id / EXAMPLES]
        paths += [] if self.published is None else [Path(self.published) / placed_at(record).with_suffix(".npz")]
        there = [path for path in paths if path.exists()]
        if not there:
            self.warnings.append(f"run {record.run_id}: its file of per-example scores is missing")
        for path in there:
            try:
                return read_examples(record, path)[1]
            except UsageError as error:
                self.warnings.append(str(error))
        return None


def over_examples(metric: Metric, row: RowSamples, other: RowSamples | None, column: Any, files: ExampleFiles) -> TwoLevelMean | None:
    """The row (None) or the row minus another in one column, paired by seed and example, in the metric's unit and direction.

    Paired are runs of one board: one task version, data and protocol. The order of the data follows from the seed. None unless every
    (common) seed of both has stored the scores of equally many examples with equal weights.
    """
    sides = [side for side in (row, other) if side is not None]
    if any(sample.record.examples is None for side in sides for sample in _measured(side, column)):
        return None
    import numpy as np

    sides = [_by_seed(metric, side, column, files) for side in sides]
    if any(side is None for side in sides):
        return None
    seeds = sorted(set.intersection(*(set(side) for side in sides)))
    stored = [side[seed] for side in sides for seed in seeds]
    if not stored or len({(len(scores), None if weights is None else weights.tobytes()) for scores, weights in stored}) > 1:
        return None
    scores = [np.stack([side[seed][0] for seed in seeds]).astype(np.float64) for side in sides]
    return hierarchical_bootstrap(scores[0] if other is None else scores[0] - scores[1], stored[0][1])


def _by_seed(metric: Metric, row: RowSamples, column: Any, files: ExampleFiles) -> dict[int, tuple[Any, Any]] | None:
    """Seed -> (scores, weights); None if a seed with a value in this column has none stored."""
    found = {}
    for sample in _measured(row, column):
        loaded = files.of(sample.record) or {}
        stored = loaded.get((metric.name, canonical_json(sample.cells[column].conditions)))
        if stored is None:
            return None
        found[sample.record.seed] = stored
    return found


def _measured(row: RowSamples, column: Any) -> list[Sample]:
    """Its finished runs with a value in this column."""
    return [sample for sample in row.finished if (cell := sample.cells.get(column)) is not None and cell.value is not None]


def of_rows(
    metric: Metric, group: Group, names: Sequence[str], against: str | None, column: Any, files: ExampleFiles
) -> dict[str, TwoLevelMean]:
    """Of the first rows that have them: the row itself, or its difference to `against`."""
    other = None if against is None else group.rows[against]
    chosen = [name for name in names if name in group.rows and name != against][:MAX_ROWS]
    found = {name: over_examples(metric, group.rows[name], other, column, files) for name in chosen}
    return {name: mean for name, mean in found.items() if mean is not None}


def with_intervals(rows: Sequence[Row], means: Mapping[str, TwoLevelMean], column: str) -> list[Row]:
    """The rows with these intervals in one column, for the formats that a program reads."""
    changed = []
    for row in rows:
        mean = means.get(row.name)
        half = mean.half_width() if mean is not None else None
        if half is not None and column in row.cells and not row.is_reference:
            interval = (mean.mean - half, mean.mean + half)
            row = replace(row, cells=row.cells | {column: replace(row.cells[column], interval=interval, interval_method=METHOD)})
        changed.append(row)
    return changed


def note(metric: Metric, against: str, means: Mapping[str, TwoLevelMean]) -> list[str]:
    """One line: each row minus `against`, with its interval over seeds and examples."""
    listed = [f"{name} ({shown(metric, mean)})" for name, mean in means.items() if mean.half_width() is not None]
    if not listed:
        return []
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    how = "two-way bootstrap, 95 %; not adjusted for the number of rows"
    return [f"row minus {against} over seeds and examples ({how}): {', '.join(listed[:MAX_LISTED])}{more}"]


def shown(metric: Metric, mean: TwoLevelMean) -> str:
    """'-1.2 [-3.1,+0.7], p = 0.15', in percent where the metric is."""
    half = mean.half_width()
    assert half is not None
    low, high = (metric.text(mean.mean + sign * half, "+") for sign in (-1, 1))
    return f"{metric.text(mean.mean, '+')} [{low},{high}], p = {mean.p_value():.2g}"
