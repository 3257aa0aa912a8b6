"""The verbs that read results: leaderboard, compare, report, submit. None of them imports torch."""

from __future__ import annotations

from typing import Annotated

import typer

from .boards import Format, PlotKind
from .completion import (
    complete_attention,
    complete_metric,
    complete_row_or_run,
    complete_scale,
    complete_task,
    complete_task_name,
)
from .options import ResultsDir, RunsDir
from .progress import tell


def leaderboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK]...", help="NAME or task=NAME; none: all that have results.", autocompletion=complete_task),
    ] = None,
    scale: Annotated[str | None, typer.Option(metavar="NAME", help="Only this scale.", autocompletion=complete_scale)] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another metric of the task than its primary one.", autocompletion=complete_metric)
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="ROW", help="Cells become differences to this row, paired by seed.", autocompletion=complete_attention),
    ] = None,
    overall: Annotated[bool, typer.Option("--overall", help="Mean rank and gain across tasks instead (scale embedded).")] = False,
    published: Annotated[bool, typer.Option("--published", help="Leave the runs of this machine out.")] = False,
    runs_dir: RunsDir = "runs",
    results_dir: ResultsDir = None,
    format_: Annotated[Format, typer.Option("--format", help="csv and json carry every number unrounded.")] = Format.TERMINAL,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write to this file instead of standard output.")] = None,
    plot: Annotated[str | None, typer.Option(metavar="PATH", help="Also draw the first board: PATH.png and PATH.svg.")] = None,
    kind: Annotated[
        PlotKind | None,
        typer.Option(help="What --plot draws: lines (the default), or heatmap: exact match by depth and length, a panel a row."),
    ] = None,
) -> None:
    """Published and own results of a task, best first; own, not yet submitted runs are marked.

    Example: goatbench leaderboard task=vit_resolution

    Against one row: goatbench leaderboard task=genome_nll --against rope

    As a file: goatbench leaderboard task=genome_nll --format csv --out genome_nll.csv

    Across tasks: goatbench leaderboard --overall

    As curves: goatbench leaderboard task=vit_resolution --plot resolution

    Depth by length: goatbench leaderboard task=needle --plot needle --kind heatmap
    """
    from .boards import Asked, Places, print_boards

    asked = Asked(names or (), scale, metric, against, overall)
    print_boards(asked, Places(None if published else runs_dir, results_dir), format_, out, plot, kind)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A row, a run, or a folder of runs.", autocompletion=complete_row_or_run)],
    b: Annotated[str, typer.Argument(metavar="B", help="What A is compared with.", autocompletion=complete_row_or_run)],
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only this task.", autocompletion=complete_task_name)] = None,
    scale: Annotated[str | None, typer.Option(metavar="NAME", help="Only this scale.", autocompletion=complete_scale)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All columns of a task, not only its headline.")] = False,
    published: Annotated[bool, typer.Option("--published", help="Leave the runs of this machine out.")] = False,
    runs_dir: RunsDir = "runs",
    results_dir: ResultsDir = None,
) -> None:
    """Paired differences of two rows or runs, a verdict in words, and what else is different between them.

    Example: goatbench compare goat rope

    One task, all columns: goatbench compare goat rope --task genome_length --all
    """
    from .boards import Places
    from .compare import compare_lines

    print("\n".join(compare_lines(a, b, Places(None if published else runs_dir, results_dir), task, scale, everything)))


def report(
    out: Annotated[str, typer.Option(metavar="PATH", help="The page; one that is there is replaced.")] = "report.html",
    scale: Annotated[str, typer.Option(metavar="NAME", help="Results of this scale.", autocompletion=complete_scale)] = "embedded",
    runs_dir: RunsDir = "runs",
    results_dir: ResultsDir = None,
) -> None:
    """One HTML page of all results, published and own: what to pick, how sure, tables, figures, runs. It opens offline.

    Example: goatbench report --out report.html
    """
    from .report.write import write_report

    print(write_report(out, scale, runs_dir, results_dir))


def submit(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run ids, run folders, record files, or last: the latest run.")],
    runs_dir: RunsDir = "runs",
    results_dir: ResultsDir = None,
    allow_dirty: Annotated[bool, typer.Option("--allow-dirty", help="Also runs of code with uncommitted changes.")] = False,
) -> None:
    """Check the records of finished runs and place them under the published results, by default those of this checkout.

    Example: goatbench submit last
    """
    from .records.layout import submission_root
    from .records.store import submit as place
    from .verify import verify

    done = place(runs, results_dir or submission_root(), runs_dir, allow_dirty=allow_dirty, verify=verify)
    print("\n".join(f"{placed.path}{' (was there already)' if placed.already else ''}" for placed in done))
    if not results_dir:
        tell("these are the results of this checkout: commit them, or choose another folder with --results-dir DIR")
