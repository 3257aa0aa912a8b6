"""What `leaderboard` prints: the boards of tasks, from published results and own runs, in six formats. No torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UsageError
from .records.collection import collection_paused
from .registry import broken_plugins, load_plugins, tasks, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .records.board import Board
    from .records.over_examples import ExampleFiles
    from .records.record import RunRecord, TaskCard


RUNS = "runs"  # the default of --runs-dir


class PlotKind(StrEnum):
    """lines: the columns as curves. heatmap: a panel a row, depth by length."""

    LINES = "lines"
    HEATMAP = "heatmap"


class Format(StrEnum):
    TERMINAL = "terminal"
    MD = "md"
    CSV = "csv"
    LATEX = "latex"
    HTML = "html"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which boards: of these tasks (none: all that have results), only of one scale, of another metric, against a row."""

    names: Sequence[str] = ()
    scale: str | None = None
    metric: str | None = None
    against: str | None = None
    overall: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """runs_dir: own runs, None for published ones only; results_dir: published ones, None for those of this installation."""

    runs_dir: str | None = RUNS
    results_dir: str | None = None

    def root(self) -> Path:
        from .records.store import results_root

        return results_root() if self.results_dir is None else _folder("--results-dir", self.results_dir)

    def own(self) -> Path | None:
        """Where own runs lie; UsageError if a folder that was named is not there. The default one comes with the first run."""
        if self.runs_dir is None or (self.runs_dir == RUNS and not Path(RUNS).exists()):
            return None
        return _folder("--runs-dir", self.runs_dir)


def _folder(option: str, name: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        raise UsageError(f"{option} {name}: {'is no folder' if path.exists() else 'no such folder'}")
    return path


@collection_paused()
def print_boards(
    asked: Asked, places: Places, form: Format = Format.TERMINAL, out: str | None = None, plot: str | None = None,
    kind: PlotKind | None = None,
) -> None:  # fmt: skip
    """Every board asked for, on standard output or in the file `out`. UsageError for an unknown name, or if nothing is there.

    plot: where the first board is drawn as well, as kind says (None: lines).
    """
    _refuse(asked, out, plot, kind)
    load_plugins()
    wanted = [task_name(name) for name in asked.names]
    for name in wanted:
        if name not in tasks:
            raise UsageError(unknown("task", name, tasks.names()) + broken_plugins())
    submitted, local = _records(wanted, asked.scale, places)
    warnings: list[str] = []
    if asked.overall:
        from .records.overall import overall_boards

        cards = [tasks.get(name).card for name in wanted or tasks.names()]
        boards = overall_boards(cards, submitted, local, asked.scale or "embedded", asked.against)
    else:
        boards = _boards(asked, wanted, submitted, local, places, warnings)
    if plot is not None:  # before the boards: what cannot be drawn is refused before a page of output
        if boards[0].facts["kind"] != "measured":
            raise UsageError("--plot draws what was measured: name a task with results of its own")
        card = tasks.get(boards[0].facts["task"]).card
        figure = _figure(kind, boards[0], card, submitted, local, asked.metric)
        print(f"drawn: {', '.join(_save(figure, plot))}", file=sys.stderr)
    _put(boards, form, out, is_page=not wanted and not asked.overall)
    for warning in warnings:  # some formats read more of the single examples than the boards themselves
        print(f"goatbench: {warning}", file=sys.stderr)


def _refuse(asked: Asked, out: str | None, plot: str | None, kind: PlotKind | None) -> None:
    """What can be refused before anything is read."""
    from .records.files import refuse_missing_folder, refuse_output

    if kind is not None and plot is None:
        raise UsageError(f"--kind {kind} says how --plot draws: add --plot PATH")
    if plot is not None and (asked.overall or asked.against is not None):
        raise UsageError("--plot draws the scores of one task: it goes with neither --overall nor --against")
    if asked.metric is not None and (asked.overall or not asked.names):
        raise UsageError(f"--metric {asked.metric} belongs to a task: name it, without --overall")
    if out is not None:
        refuse_output(out)
    if plot is not None:
        refuse_missing_folder(Path(plot), "--plot")


def _records(wanted: list[str], scale: str | None, places: Places) -> tuple[list[RunRecord], list[RunRecord]]:
    """Published and own records, of one scale if given; what is interrupted or unreadable is named on standard error."""
    from .records.store import interrupted, iter_records, say_unread

    warnings: list[str] = []
    root, own = places.root(), places.own()
    submitted = list(iter_records(root, warnings, wanted or None))
    local = list(iter_records(own, warnings)) if own is not None else []
    scales = sorted({record.scale for record in (*submitted, *local)} | {"smoke", "embedded", "paper"})
    if scale is not None and scale not in scales:
        raise UsageError(unknown("scale", scale, scales))
    for marker in interrupted(own, warnings) if own is not None else []:
        if not wanted or marker.task in wanted:
            print(f"interrupted: {marker.run_id} ({marker.task}, {marker.attention}, seed {marker.seed})", file=sys.stderr)
    say_unread(warnings)
    kept = ([record for record in records if scale in (None, record.scale)] for records in (submitted, local))
    return next(kept), next(kept)


def _boards(
    asked: Asked, wanted: list[str], submitted: list[RunRecord], local: list[RunRecord], places: Places, warnings: list[str]
) -> list[Board]:
    """Measured boards, task by task, each followed by what papers report of the task if paper scale is not ruled out.

    warnings: where unreadable scores of single examples are named, now and when a format asks for more.
    """
    from .records.leaderboard import build_boards, row_names
    from .records.reported import read_reported, reported_boards

    unread: list[str] = []
    tables = read_reported(places.root(), unread) if asked.scale in (None, "paper") else []
    for warning in unread:
        print(f"goatbench: skipped: {warning}", file=sys.stderr)
    boards: list[Board] = []
    examples = example_files([*submitted, *local], places, warnings)
    for name in wanted or tasks.names():
        card = tasks.get(name).card
        found = build_boards(card, submitted, local, asked.metric, asked.against, examples)
        quoted = reported_boards(name, tables) if asked.against is None and asked.metric is None else []
        if not (found or quoted) and wanted:
            if asked.against is not None and (rows := row_names(card, submitted, local)):
                raise UsageError(unknown("row", asked.against, rows))
            at = f" at scale {asked.scale}" if asked.scale else ""
            hint = f"goatbench run task={name}{f' scale={asked.scale}' if asked.scale else ''}"
            raise UsageError(f"no results of {name}{at} yet; make one with: {hint}")
        if not found and wanted:
            print(f"no measured results of {name}{f' at scale {asked.scale}' if asked.scale else ''} yet", file=sys.stderr)
        boards += [*found, *quoted]
    if not boards:
        cards = [tasks.get(name).card for name in tasks.names()] if asked.against is not None else []
        if rows := {row for card in cards for row in row_names(card, submitted, local)}:
            raise UsageError(unknown("row", asked.against, sorted(rows)))
        raise UsageError("no results of any task yet; make one with: goatbench run")
    return boards


def example_files(records: list[RunRecord], places: Places, warnings: list[str]) -> ExampleFiles | None:
    """Where the per-example scores of these records lie; None if none of them has any, so that numpy is not imported in vain."""
    if all(record.examples is None for record in records):
        return None
    from .records.over_examples import ExampleFiles

    return ExampleFiles(places.runs_dir, places.root(), warnings)


def _put(boards: list[Board], form: Format, out: str | None, is_page: bool) -> None:
    from .records.board import print_board
    from .records.formats import page, render

    if form is Format.TERMINAL and out is None:
        for board in boards:
            print_board(board, _console())
            print()
        return
    text = page(boards) if is_page and form is Format.MD else render(boards, form.value)
    if out is None:
        sys.stdout.write(text)
        return
    from .records.files import write_output

    write_output(out, text)
    print(f"written: {out}", file=sys.stderr)


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
