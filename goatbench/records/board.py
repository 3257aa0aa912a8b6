"""One table in memory, and its two forms: text for a terminal, Markdown for a README. Equal boards give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .files import one_line
from .labels import cut_in_the_middle, shortened
from .statistics import PairedDifference, Summary

if TYPE_CHECKING:
    from rich.console import Console

MAX_NAME = 2000  # a stranger's could be of any length
MIN_NAME_WIDTH = 16
MAX_NAME_WIDTH = 120  # where a table does not fit


@dataclass(frozen=True, slots=True)
class Column:
    """key: what the column holds ('512', 'params'); head: what is printed above it; is_score: cells of the metric, not of a cost."""

    key: str
    head: str
    numeric: bool = True
    is_score: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """text as printed; summary: the numbers behind it, unrounded and in the metric's own unit, if there are any.

    number: what a column beside the scores holds, unrounded. difference: row minus baseline, with Holm's p, on a board against one.
    """

    text: str = ""
    summary: Summary | None = None
    number: float | None = None
    difference: PairedDifference | None = None
    p_adjusted: float | None = None
    interval: tuple[float, float] | None = None  # where it is no t interval of summary or difference
    interval_method: str | None = None  # of `interval`


@dataclass(frozen=True, slots=True)
class Row:
    """name without marks; rank: the places it can have, such as '1-3', empty if not ranked; cells by column key."""

    name: str
    cells: dict[str, Cell]
    rank: str = ""
    is_plain: bool = True  # the attention as it comes: no variant of training or evaluation
    is_control: bool = False
    is_local: bool = False  # some of its runs are not submitted
    is_reference: bool = False  # a yardstick that trained no attention
    is_unlearned: bool = False  # failed the card's test of having learned the task
    is_reported: bool = False  # quoted from a paper, not measured here
    is_baseline: bool = False  # what the others are compared with
    is_pareto: bool | None = None  # no other row is better and cheaper; None: not asked (no score, no cost, not a rival)

    @property
    def label(self) -> str:
        mark = "".join(f" ({name})" for name in self.marks)
        return one_line(self.name, MAX_NAME) + ("*" if self.is_local else "") + mark

    @property
    def marks(self) -> list[str]:
        flags = {
            "control": self.is_control, "reference": self.is_reference, "not learned": self.is_unlearned, "reported": self.is_reported,
            "baseline": self.is_baseline,
        }  # fmt: skip
        return [name for name, holds in flags.items() if holds]


@dataclass(frozen=True, slots=True)
class Board:
    """title, columns (after rank and row), rows in order, notes below; facts: what the title says and more, as data.

    detailed: makes the rows with intervals over single examples, which takes files and time; None: there are none.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())
    facts: Mapping[str, Any] = field(default_factory=dict)
    detailed: Callable[[], Sequence[Row]] | None = field(default=None, compare=False)

    def rows_in_detail(self) -> Sequence[Row]:
        """For the formats that a program reads."""
        return self.rows if self.detailed is None else self.detailed()


def markdown(board: Board) -> str:
    """A GitHub table with title, and the notes folded below it."""
    heads = ["rank", "row", *(column.head for column in board.columns)]
    rules = ["---", "---", *("---:" if column.numeric else "---" for column in board.columns)]
    lines = [f"**{_escape(board.title)}**", "", _pipe(heads), "|" + "|".join(rules) + "|"]
    lines += [_pipe([row.rank, row.label, *(_text(row, column) for column in board.columns)]) for row in board.rows]
    lines += ["", "<details><summary>what is significant, n, data, budget, protocol</summary>", ""]
    lines += [*(f"- {_escape(note)}" for note in board.notes), "", "</details>"]
    return "\n".join(lines).rstrip() + "\n"


def print_board(board: Board, console: Console) -> None:
    """Print on a rich console; columns that do not fit its width follow in further tables under the same rows."""
    from rich.text import Text

    console.print(Text(one_line(board.title, 500), style="bold"))
    board, shared = _narrowed(board, console.width)
    if shared:
        console.print(Text(one_line(f"all rows: {', '.join(shared)}", 500)))
    for page, name_width in _pages(board, console.width):
        for line, style in _table(board, page, name_width):
            console.print(Text(line, style=style), no_wrap=True, overflow="ignore", crop=False)
    for note in board.notes:
        console.print(Text("- " + one_line(note, 2000)))


def to_text(board: Board, width: int = 80) -> str:
    """What `print_board` prints on a terminal of this width, without colours."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    print_board(board, console)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())


def _narrowed(board: Board, width: int) -> tuple[Board, list[str]]:
    """(the board, if it does not fit with short names of rows; the options that every row has and no name has any more)."""
    pages = _pages(board, width)
    if len(pages) == 1 and all(len(row.label) <= pages[0][1] for row in board.rows):
        return board, []
    names, shared = shortened([row.name for row in board.rows if not row.is_reference])
    cut = [cut_in_the_middle(one_line(name, MAX_NAME), MAX_NAME_WIDTH) for name in names]
    short = iter(cut if len(set(cut)) == len(set(names)) else names)
    rows = tuple(row if row.is_reference else replace(row, name=next(short)) for row in board.rows)
    return replace(board, rows=rows), shared


def _table(board: Board, columns: tuple[Column, ...], name_width: int) -> Iterator[tuple[str, str]]:
    """Lines and their style. Laid out here: rich's own tables take most of a second for some hundred rows."""
    rank_width = _rank_width(board)
    widths = [_width(board, column) for column in columns]

    def line(rank: str, name: str, texts: Iterable[str]) -> str:
        cells = (text.rjust(n) if column.numeric else text.ljust(n) for text, n, column in zip(texts, widths, columns, strict=True))
        return rank.ljust(rank_width) + " ".join((name.ljust(name_width), *cells)).rstrip()

    yield line("rank" if rank_width else "", "row", (column.head for column in columns)), "bold"
    yield "─" * (rank_width + name_width + sum(widths) + len(widths)), ""
    for row in board.rows:
        style = "dim" if row.is_control or row.is_reference or row.is_unlearned else ""
        first, *more = _fold(row.label, name_width)
        yield line(row.rank, first, (_text(row, column) for column in columns)), style
        for part in more:
            yield line("", part, ("" for _ in columns)), style


def _rank_width(board: Board) -> int:
    """Of the first column and the space after it; 0 where no row has a rank: a terminal is narrow."""
    ranks = [row.rank for row in board.rows if row.rank]
    return max(map(len, ("rank", *ranks))) + 1 if ranks else 0


def _pages(board: Board, width: int) -> list[tuple[tuple[Column, ...], int]]:
    """Columns that fit beside rank and name, page by page, each with the width of the names: whole if all fits, else folded."""
    labels = ["row", *(row.label for row in board.rows)]
    rank = _rank_width(board)
    widths = [_width(board, column) + 1 for column in board.columns]
    whole = max(map(len, labels))
    if rank + whole + sum(widths) <= width:
        return [(board.columns, whole)]
    folded = min(max(len(part) for label in labels for part in label.replace("[", "\n[", 1).split("\n")), max(MIN_NAME_WIDTH, width // 3))
    pages: list[list[Column]] = [[]]
    used = rank + folded
    for column, size in zip(board.columns, widths, strict=True):
        if pages[-1] and used + size > width:
            pages.append([])
            used = rank + folded
        pages[-1].append(column)
        used += size
    return [(tuple(page), folded) for page in pages]


def _fold(name: str, width: int) -> list[str]:
    """The name in lines of at most `width`: broken before its bracket, else anywhere."""
    if len(name) <= width:
        return [name]
    parts = name.replace("[", "\n[", 1).split("\n")
    return [part[start : start + width] for part in parts for start in range(0, len(part), width)]


def _width(board: Board, column: Column) -> int:
    return max(len(column.head), *(len(_text(row, column)) for row in board.rows), 0)


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
