"""A leaderboard as a picture: quality against length or resolution, one line a row."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..records.board import Board, Column, Row
from .curves import Curve, Labels, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_LINES = 14  # names beside the lines that still fit


def plot_board(board: Board) -> Figure:
    """Rows over the columns that are numbers, of many the `fewer`. UsageError unless two columns are numbers."""
    return curves(*board_curves(fewer(board)))


def fewer(board: Board) -> Board:
    """As many rows as a picture holds, where the board has more: without variants, then without rows of one seed; the title says so."""
    kinds = (("variants", lambda row: row.is_plain), ("rows of one seed", lambda row: _seeds(row) > 1))
    left_out = []
    for name, is_kept in kinds:
        if len(board.rows) > MAX_LINES:
            left_out.append(name)
            board = replace(board, rows=tuple(row for row in board.rows if row.is_reference or is_kept(row)))
    if not left_out:
        return board
    title, dot, metric = board.title.rpartition(" · ")
    return replace(board, title=f"{title} · {' and '.join(left_out)} left out{dot}{metric}")


def _seeds(row: Row) -> int:
    return max((cell.summary.n for cell in row.cells.values() if cell.summary is not None), default=0)


def board_curves(board: Board) -> tuple[list[Curve], Labels]:
    """Rows over the columns that are numbers ('8192 (16)' is 8192), band: one standard deviation over seeds.

    Yardsticks that are the same in every column are dashed lines. UsageError unless at least two columns are numbers.
    """
    places = {column: place for column in board.columns if (place := _place(column, board.rows)) is not None}
    if len(places) < 2:
        raise UsageError(f"{board.title}: its columns are no lengths or resolutions, so there is no curve to draw")
    factor = 100 if "(%)" in board.title else 1
    lines, references = [], {}
    for row in board.rows:
        values = {x: row.cells[column.key].summary for column, x in places.items() if column.key in row.cells}
        known = {x: summary for x, summary in values.items() if summary is not None}
        if not known:
            continue
        x = sorted(known)
        y = [factor * known[at].mean for at in x]
        if row.is_reference and max(y) - min(y) < 1e-9:
            references[row.name] = y[0]
            continue
        spread = [factor * (known[at].sd or 0.0) for at in x]
        low, high = ([value + sign * sd for value, sd in zip(y, spread, strict=True)] for sign in (-1, 1))
        lines.append(Curve(row.name, x, y, low, high))
    name, _, metric = board.title.rpartition(" · ")
    return lines, Labels(name, _axis_name(board), metric, references=references, band="standard deviation over seeds")


def _place(column: Column, rows: tuple[Row, ...]) -> int | None:
    """What number a score column stands for; None for another column."""
    number = re.match(r"(\d+)\b", column.head)
    has_scores = any(column.key in row.cells and row.cells[column.key].summary is not None for row in rows)
    return int(number.group(1)) if number and has_scores else None


def _axis_name(board: Board) -> str:
    """From the note that says what the columns are."""
    found = re.search(r"columns: ([^;]+)", " ".join(board.notes))
    return found.group(1) if found else "column"
