"""One table in memory, and its two forms: text for a terminal, Markdown for a README. Equal boards give equal bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .files import one_line
from .statistics import Summary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MAX_NAME_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Column:
    """key: what the column holds ('512', 'params'); head: what is printed above it."""

    key: str
    head: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """text as printed; summary: the numbers behind it, unrounded and in the metric's own unit, if there are any."""

    text: str = ""
    summary: Summary | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """name without marks; rank group such as '1-3', empty if not ranked; cells by column key."""

    name: str
    cells: dict[str, Cell]
    rank: str = ""
    is_plain: bool = True  # the attention as it comes: no variant of training or evaluation
    is_control: bool = False
    is_local: bool = False  # some of its runs are not submitted

    @property
    def label(self) -> str:
        return one_line(self.name, MAX_NAME_WIDTH) + ("*" if self.is_local else "") + (" (control)" if self.is_control else "")


@dataclass(frozen=True, slots=True)
class Board:
    """title, columns (after rank and row), rows in order, notes below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())


def markdown(board: Board) -> str:
    """A GitHub table with title and notes."""
    heads = ["rank", "row", *(column.head for column in board.columns)]
    rules = ["---", "---", *("---:" if column.numeric else "---" for column in board.columns)]
    lines = [f"**{_escape(board.title)}**", "", _pipe(heads), "|" + "|".join(rules) + "|"]
    lines += [_pipe([row.rank, row.label, *(_text(row, column) for column in board.columns)]) for row in board.rows]
    lines += ["", *(f"- {_escape(note)}" for note in board.notes)]
    return "\n".join(lines).rstrip() + "\n"


def print_board(board: Board, console: Console) -> None:
    """Print on a rich console; columns that do not fit its width follow in further tables under the same rows."""
    from rich.text import Text

    console.print(Text(one_line(board.title, 500), style="bold"))
    for page, folded in _pages(board, console.width):
        console.print(_table(board, page, folded))
    for note in board.notes:
        console.print(Text("- " + one_line(note, 2000)))


def to_text(board: Board, width: int = 80) -> str:
    """What `print_board` prints on a terminal of this width, without colours."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    print_board(board, console)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())


def _table(board: Board, columns: tuple[Column, ...], folded: bool) -> Table:
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    rule_below_head = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
    table = Table(box=rule_below_head, show_edge=False, padding=0, pad_edge=False)
    table.add_column("rank", no_wrap=True)
    table.add_column("row", overflow="fold")
    for column in columns:
        table.add_column(Text(column.head), justify="right" if column.numeric else "left", no_wrap=True)
    for row in board.rows:
        name = _fold(row.label) if folded else row.label
        style = "dim" if row.is_control else ""
        table.add_row(row.rank, Text(name), *(Text(_text(row, column)) for column in columns), style=style)
    return table


def _pages(board: Board, width: int) -> list[tuple[tuple[Column, ...], bool]]:
    """Columns that fit beside rank and name, and whether the names must be folded at their bracket for it."""
    rank = max(len(text) for text in ("rank", *(row.rank for row in board.rows))) + 1
    whole = rank + max(len(text) for text in ("row", *(row.label for row in board.rows)))
    narrow = rank + max(len(line) for text in ("row", *(row.label for row in board.rows)) for line in _fold(text).split("\n"))
    widths = [1 + max(len(text) for text in (c.head, *(_text(row, c) for row in board.rows))) for c in board.columns]
    if whole + sum(widths) <= width:
        return [(board.columns, False)]
    pages: list[list[Column]] = [[]]
    used = narrow
    for column, size in zip(board.columns, widths, strict=True):
        if pages[-1] and used + size > width:
            pages.append([])
            used = narrow
        pages[-1].append(column)
        used += size
    return [(tuple(page), True) for page in pages]


def _fold(name: str) -> str:
    return name.replace("[", "\n[", 1)


def _text(row: Row, column: Column) -> str:
    return one_line(row.cells.get(column.key, Cell("-")).text, 40)


def _pipe(parts: list[str]) -> str:
    return "| " + " | ".join(_escape(part) for part in parts) + " |"


def _escape(text: str) -> str:
    """Text of strangers as text: no Markdown, no HTML."""
    clean = one_line(text, 2000).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\`*|[":
        clean = clean.replace(sign, "\\" + sign)
    return clean
