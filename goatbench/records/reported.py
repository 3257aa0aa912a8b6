"""Numbers quoted from papers: files under results/reported/, boards of their own. Never ranked, tested or aggregated with ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from ..errors import UsageError
from .board import Board, Cell, Column, Row
from .files import one_line, read_bounded
from .record import NAME_PATTERN, Metric, Strict

FOLDER = "reported"


class Figure(Strict):
    """One number as printed in the source, in the metric's unit; note: what sets it apart from the others of its table."""

    row: str = Field(min_length=1, max_length=80)
    conditions: dict[str, str | int | float | bool]
    value: float
    note: str = ""


class ReportedTable(Strict):
    """Figures of one table of one source, all of one metric. place: table or page; note: recipe, what differs from our protocol."""

    schema_version: Literal[1]
    task: str = Field(pattern=NAME_PATTERN)
    scale: Literal["paper"]  # nothing quoted stands beside what a laptop can run
    metric: Metric
    column_condition: str
    source: str = Field(min_length=1)
    place: str = Field(min_length=1)
    note: str = ""
    figures: list[Figure] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_value_a_cell(self) -> ReportedTable:
        cells = [(figure.row, figure.conditions.get(self.column_condition)) for figure in self.figures]
        if any(column is None for _, column in cells):
            raise ValueError(f"every figure needs the condition {self.column_condition}")
        if len(set(cells)) < len(cells):
            raise ValueError("a row has two figures in one column")
        return self


def read_reported(root: Path | str, warnings: list[str]) -> list[ReportedTable]:
    """Every table under root/reported/, in the order of file names; what cannot be read is skipped and named in `warnings`."""
    folder = Path(root) / FOLDER
    tables = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            tables.append(ReportedTable.model_validate_json(read_bounded(path), strict=True))
        except UsageError as error:
            warnings.append(str(error))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the table"
            warnings.append(one_line(f"{FOLDER}{os.sep}{path.name}: {where}: {first['msg']}"))
    return tables


def reported_boards(task: str, tables: Sequence[ReportedTable]) -> list[Board]:
    """A board for each table of this task."""
    return [_board(table) for table in tables if table.task == task]


def _board(table: ReportedTable) -> Board:
    metric, condition = table.metric, table.column_condition
    values = sorted({figure.conditions[condition] for figure in table.figures}, key=lambda v: (isinstance(v, str), v))
    cells: dict[str, dict[str, Cell]] = {}
    for figure in table.figures:
        cells.setdefault(figure.row, {})[f"{figure.conditions[condition]}"] = Cell(metric.text(figure.value), number=figure.value)
    rows = tuple(Row(name, found, is_plain=False, is_reported=True) for name, found in cells.items())
    unit = "%" if metric.percent else metric.unit
    title = f"{table.task} · reported by {table.source.partition(',')[0]}, not measured here · {metric.name} ({unit}) {metric.arrow}"
    notes = [f"source: {table.source}, {table.place}", f"columns: {condition}; rows in the order of the source; not ranked, not tested"]
    notes += [table.note] if table.note else []
    notes += [f"{figure.row} at {figure.conditions[condition]}: {figure.note}" for figure in table.figures if figure.note]
    facts: dict[str, Any] = {
        "kind": "reported", "task": table.task, "scale": table.scale, "metric": metric.name, "unit": metric.unit, "percent": metric.percent,
        "digits": metric.digits, "direction": metric.direction, "chance": metric.chance_at(table.scale), "column_condition": condition,
        "source": table.source, "place": table.place,
    }  # fmt: skip
    columns = tuple(Column(f"{value}", f"{value}", is_score=True) for value in values)
    return Board(title, columns, rows, tuple(notes), facts)
