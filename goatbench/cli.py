"""The command line: verbs, one line an error, exit codes 0 ok, 1 a run failed, 2 usage, 3 broken installation, 75 stopped by SIGUSR1,
130 interrupted.

Nothing heavy is imported up here: `goatbench --help` and `goatbench list` answer at once, without torch and Hydra.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from . import __version__
from .bench_verbs import bench
from .complaints import complain, one_line, usage_error
from .completion import complete_job, complete_name_or_run, complete_override
from .errors import PREEMPTED, REQUEUES, PreemptedError, RankError, UsageError
from .options import ConfigDir, ResultsDir, RunsDir, check_given_once, check_names
from .progress import tell
from .result_verbs import compare, leaderboard, report, submit
from .work_verbs import data, export, plan

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="A fair referee for attention mechanisms: one command runs one task with one attention and writes one record.",
)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")


def _version(is_asked: bool) -> None:
    if is_asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _app(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    pass


class Cfg(StrEnum):
    JOB = "job"


class Section(StrEnum):
    TASKS = "tasks"
    ATTENTIONS = "attentions"
    MODELS = "models"
    SCALES = "scales"
    DATA = "data"
    EVALUATIONS = "evaluations"
    TRAINERS = "trainers"
    LAUNCHERS = "launchers"
    RECIPES = "recipes"


@app.command()
def run(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="What to run.", autocompletion=complete_override)
    ] = None,
    multirun: Annotated[
        bool, typer.Option("-m", "--multirun", help="A sweep: every combination of a,b and range(0,3), one process each.")
    ] = False,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Jobs of a sweep at a time.")] = 1,
    cfg: Annotated[Cfg | None, typer.Option(help="Print the resolved configuration as YAML and stop.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be started (launch=slurm: the sbatch script).")] = False,
    config_dir: ConfigDir = None,
    run_id: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this run, which was stopped; else a new id.")] = None,
    sweep_id: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a task with an attention; -m runs a sweep, and skips jobs that are finished in this runs_dir.

    Example: goatbench run task=vit_res512 attention=goat scale=smoke seed=0

    Sweep: goatbench run -m -j 2 task=vit_res512 attention=goat,nope scale=smoke seed=0,1

    What is not given is task=vit_res512 attention=goat scale=embedded seed=0.
    """
    overrides = overrides or []
    check_given_once(overrides)
    check_names(overrides, config_dir)
    if jobs > 1 and not multirun:
        raise UsageError(f"-j {jobs} needs -m: a single run is one process")
    if multirun and (run_id or cfg):
        raise UsageError("-m goes with neither --cfg nor --run-id")
    if dry_run and cfg:
        raise UsageError("--cfg prints the configuration, --dry-run what would be started: give one of them")
    if multirun or dry_run:
        from .launch import launch

        raise typer.Exit(launch(overrides, jobs=jobs, config_dir=config_dir, dry_run=dry_run, run_id=run_id))
    from .compose import compose
    from .records.store import check_runs_dir

    composed = compose(overrides, config_dir)
    if cfg is not None:
        import yaml

        print(yaml.safe_dump(composed.spec.model_dump(mode="json"), sort_keys=False, default_flow_style=None), end="")
        return
    if composed.spec.launch.kind == "slurm":
        from .launch import launch

        raise typer.Exit(launch(overrides, config_dir=config_dir, run_id=run_id))
    _handle_signals()
    spec = composed.spec
    check_runs_dir(spec.runs_dir)
    composed.check_paths()
    from .execute import execute, rank

    if rank() == 0:
        tell(f"{spec.task.name} with {spec.attention.name}, scale {spec.scale}, seed {spec.seed}: loading PyTorch and the data ...")
    record = execute(composed, run_id, sweep_id)
    if record is None:
        return  # not the first of several processes
    if record.error is None:
        from pathlib import Path

        from .outcome import outcome_lines
        from .registry import tasks

        path = Path(composed.spec.runs_dir) / record.run_id / "record.json"
        print("\n".join(outcome_lines(record, tasks.get(record.task.name).card, path)))
    if record.error is not None:
        print(f"goatbench: {record.status}: {one_line(record.error.message)}", file=sys.stderr)
        sys.exit(130 if record.status == "interrupted" else 1)  # past main's own word for an interruption


@app.command("list")
def list_(
    section: Annotated[Section | None, typer.Argument(help="What to list; default: everything.")] = None, config_dir: ConfigDir = None
) -> None:
    """Names that a run can choose from, with one line each.

    Example: goatbench list attentions
    """
    from .listing import SECTIONS, fitted, list_lines, terminal_width

    print("\n".join(fitted(list_lines([section.value] if section else SECTIONS, config_dir), terminal_width())))


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME|RUN", help="A name that list prints, or a run.", autocompletion=complete_name_or_run)
    ],
    config_dir: ConfigDir = None,
    repro: Annotated[bool, typer.Option("--repro", help="Run it again and compare, measurement by measurement.")] = False,
    runs_dir: RunsDir = "runs",
    results_dir: ResultsDir = None,
) -> None:
    """Everything about one name (a task's card, an attention's values and source, a scale's recipe) or one run.

    Example: goatbench show vit_res512

    A run, by its id (or the beginning of it), folder or record file, or the latest one: goatbench show last

    Repeat it, in --runs-dir (exit code 1 if a measurement differs): goatbench show last --repro
    """
    from .records.finding import is_run

    if not is_run(name):
        if repro:
            raise UsageError(f"--repro repeats a run: '{name}' is no run id, run folder or record file")
        from .listing import show_lines

        print("\n".join(show_lines(name, config_dir)))
        return
    from .boards import Places
    from .records.repeating import command
    from .show_run import load_run, repeat, reproduction_lines, run_lines

    path, record = load_run(name, Places(runs_dir, results_dir))
    if not repro:
        print("\n".join(run_lines(path, record)))
        return
    tell(f"repeating {record.run_id}: {command(record)} ...")
    lines, is_equal = reproduction_lines(record, repeat(record, runs_dir, config_dir))
    print("\n".join(lines))
    raise typer.Exit(0 if is_equal else 1)


for verb in (plan, leaderboard, compare, report, submit, export):
    app.command()(verb)


@app.command()
def check(
    only: Annotated[
        list[str] | None, typer.Option(metavar="JOB", help="TASK or TASK/ATTENTION; may be repeated.", autocompletion=complete_job)
    ] = None,
    markdown: Annotated[str | None, typer.Option(metavar="FILE", help="Also write the findings as Markdown.")] = None,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Also write them as JUnit XML.")] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="FILE", help="A suite of your own; golden records lie beside it, NAME.golden.json.")
    ] = None,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Keep the runs in this folder.")] = None,
    update_golden: Annotated[bool, typer.Option("--update-golden", help="Write what is measured now as the golden records.")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why other numbers are right now; kept with them.")] = None,
) -> None:
    """The CI gate: small runs of every domain, compared with golden records: equal on a known machine, within the spread of seeds on
    any, and no row twice as slow beside the plain one of the same run. Exit codes: 0 ok, 1 worse, 2 usage, 3 cannot run here.

    Example: goatbench check

    One job: goatbench check --only needle/goat --markdown check.md --junit check.xml

    New numbers on purpose: goatbench check --update-golden --reason "initialisation follows the paper now"
    """
    from pathlib import Path

    from .regression.check import Asked
    from .regression.check import check as check_all
    from .regression.suite import SMOKE

    _handle_signals()
    chosen = SMOKE if suite is None else Path(suite)
    raise typer.Exit(check_all(Asked(tuple(only or ()), chosen, markdown, junit, keep, update_golden, reason)))


@app.command()
def doctor(runs_dir: RunsDir = "runs") -> None:
    """Check this installation: versions, backends that really work, data, write access, plug-ins.

    Example: goatbench doctor
    """
    from .doctor import diagnose
    from .doctor import report as report_of

    tell("trying out every backend: about 15 seconds ...")
    findings = diagnose(runs_dir)
    print(report_of(findings))
    if any(finding.level == "broken" for finding in findings):
        raise typer.Exit(3)


def main(argv: list[str] | None = None) -> None:
    """Entry point: every error that a user can cause is one line on stderr."""
    click_error = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
    try:
        code = app(args=argv, prog_name="goatbench", standalone_mode=False)
    except UsageError as error:
        code = complain(str(error), 2)
    except PreemptedError as error:
        code = complain(str(error), PREEMPTED)
    except RankError as error:
        code = complain(str(error), 1)
    except click_error as error:
        code = usage_error(error)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:  # `goatbench list | head`
        sys.stderr.close()
        code = 0
    except OSError as error:  # a full disk under standard output, a folder that vanished
        code = complain(f"{error.filename or 'output'}: {error.strerror or error}", 1)
    if code == 130:
        complain("interrupted", code)
    sys.exit(code if isinstance(code, int) else 0)


def _handle_signals() -> None:
    """SIGTERM ends a run the way Ctrl-C does: with a record that says so. SIGUSR1, the word of a cluster that will start the same
    command again, ends it without a record; so does SIGTERM in such a job. Training takes both between two steps, after a checkpoint."""
    import os
    import signal

    def preempt(number: int, frame: object) -> None:
        raise PreemptedError(f"stopped by {signal.Signals(number).name}; the same command goes on")

    signal.signal(signal.SIGTERM, preempt if REQUEUES in os.environ else signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell job inherits 'ignore'
    signal.signal(signal.SIGUSR1, preempt)
