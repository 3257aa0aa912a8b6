"""What `leaderboard` prints: the boards of a task, from published results and own runs. No torch."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UsageError
from .registry import broken_plugins, load_plugins, tasks, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .records.board import Board
    from .records.record import RunRecord, TaskCard


class PlotKind(StrEnum):
    """lines: the columns as curves. heatmap: a panel a row, depth by length."""

    LINES = "lines"
    HEATMAP = "heatmap"


def print_boards(
    names: list[str], scale: str | None, metric: str | None, runs_dir: str, results_dir: str | None, markdown: bool,
    plot: str | None = None, kind: PlotKind | None = None,
) -> None:  # fmt: skip
    """Every board of each task; only those of one scale if given. UsageError for an unknown task or metric, or if nothing is there.

    plot: where the first board is drawn as well, as kind says (None: lines).
    """
    if kind is not None and plot is None:
        raise UsageError(f"--kind {kind} says how --plot draws: add --plot PATH")
    from .records.board import markdown as to_markdown
    from .records.board import print_board
    from .records.leaderboard import build_boards
    from .records.store import interrupted, iter_records, results_root

    load_plugins()
    for name in (wanted := [task_name(name) for name in names]):
        if name not in tasks:
            raise UsageError(unknown("task", name, tasks.names()) + broken_plugins())
    if results_dir is not None and not Path(results_dir).is_dir():
        raise UsageError(f"--results-dir {results_dir}: no such folder")
    warnings: list[str] = []
    submitted = list(iter_records(results_dir or results_root(), warnings))
    local = list(iter_records(runs_dir, warnings))
    scales = sorted({record.scale for record in (*submitted, *local)} | {"smoke", "embedded", "paper"})
    if scale is not None and scale not in scales:
        raise UsageError(unknown("scale", scale, scales))
    if scale is not None:
        submitted, local = ([record for record in records if record.scale == scale] for records in (submitted, local))
    for marker in interrupted(runs_dir, warnings):
        if marker.task in wanted:
            print(f"interrupted: {marker.run_id} ({marker.task}, {marker.attention}, seed {marker.seed})", file=sys.stderr)
    for warning in warnings:
        print(f"goatbench: skipped: {warning}", file=sys.stderr)
    for name in wanted:
        boards = build_boards(tasks.get(name).card, submitted, local, metric)
        if not boards:
            at = f" at scale {scale}" if scale else ""
            raise UsageError(f"no results of {name}{at} yet; make one with: goatbench run task={name}{f' scale={scale}' if scale else ''}")
        for board in boards:
            if markdown:
                print(to_markdown(board))
            else:
                print_board(board, _console())
                print()
        if plot is not None:
            figure = _figure(kind, boards[0], tasks.get(name).card, submitted, local, metric)
            print(f"drawn: {', '.join(_save(figure, plot))}", file=sys.stderr)
            plot = None


def _figure(
    kind: PlotKind | None, board: Board, card: TaskCard, submitted: list[RunRecord], local: list[RunRecord], metric: str | None
) -> Figure:
    """Of the first board of these records."""
    if kind is not PlotKind.HEATMAP:
        from .plots.boards import plot_board

        return plot_board(board)
    from .plots.heat_map import plot_heat_map
    from .records.grouping import group_records

    return plot_heat_map(board, group_records(card, card.metric(metric or card.primary_metric), submitted, local)[0])


def _save(figure: Figure, plot: str) -> list[str]:
    from .plots import style

    try:
        return [str(path) for path in style.save(figure, plot)]
    except OSError as error:
        raise UsageError(f"--plot {plot}: {error.strerror or error}; name a file in a folder that can be written") from None


def task_name(text: str) -> str:
    """'task=NAME' or 'NAME' -> NAME."""
    key, equals, value = text.partition("=")
    if equals and key in ("scale", "metric", "runs_dir"):
        raise UsageError(f"'{text}': write --{key.replace('_', '-')} {value}")
    if equals and key != "task":
        raise UsageError(f"'{text}': a leaderboard is asked for with task=NAME")
    return value if equals else text


def _console():
    from rich.console import Console as RichConsole

    class Console(RichConsole):
        def on_broken_pipe(self) -> None:  # `goatbench leaderboard ... | head` is no failure
            raise BrokenPipeError

    return Console() if sys.stdout.isatty() else Console(width=160, color_system=None)
