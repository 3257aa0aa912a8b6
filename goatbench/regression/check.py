"""The whole of `goatbench check`: run the suite, compare, tell, and with --update-golden write what was measured."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..progress import counted, tell
from ..records.files import write_output
from .comparing import Finding, compare_job, slow_jobs
from .golden import Golden, Measured, read_golden, write_golden
from .suite import SMOKE, Job, golden_path, read_suite
from .summary import Outcome, junit, markdown, terminal_lines
from .updating import updated

OK, REGRESSION, ENVIRONMENT = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the verb. keep: a folder that the runs stay in; None: a temporary one."""

    only: tuple[str, ...] = ()
    suite: Path = SMOKE
    markdown: str | None = None
    junit: str | None = None
    keep: str | None = None
    update: bool = False
    reason: str | None = None


def check(asked: Asked) -> int:
    """Exit code: 0 nothing is worse, 1 a regression or nothing compared, 3 goatbench cannot run here. UsageError before any run."""
    if asked.update != bool(asked.reason and asked.reason.strip()):
        raise UsageError("--update-golden needs --reason TEXT, and --reason belongs to it: why are other numbers right now?")
    if asked.update and asked.junit is not None:
        raise UsageError("--junit tells what a check found; --update-golden compares nothing")
    for option, path in (("--markdown", asked.markdown), ("--junit", asked.junit)):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {Path(path).parent}; make it, or name another file")
    suite, golden = read_suite(asked.suite), read_golden(golden_path(asked.suite))
    jobs = suite.jobs(list(asked.only))
    start = time.monotonic()
    from .measure import Bench, BrokenEnvironmentError, machine

    tell(f"checking {counted(len(jobs), 'job')}: loading PyTorch ...")
    try:
        here = machine()
    except BrokenEnvironmentError as error:
        found = [Finding("environment", "environment", "regression", str(error))]
        _tell(asked, Outcome(asked.suite.stem, tuple(found), "unknown machine", time.monotonic() - start))
        print(f"goatbench: {' '.join(str(error).split())} (goatbench doctor says more)", file=sys.stderr)
        return ENVIRONMENT
    with _runs_dir(asked.keep) as folder:
        bench = Bench(suite, folder)
        if asked.update:
            return _update(asked, golden, bench.measure(jobs, suite.golden_seeds), jobs, suite.seeds, here)
        measured = bench.measure(jobs, suite.seeds)
        findings = _compare(golden, measured, jobs, here)
        if again := slow_jobs(findings):  # a second opinion: whatever else ran at that moment made it slower, never faster
            slow = [job for job in jobs if job.name in again]
            baselines = [job for job in jobs if job.name in {one.baseline for one in slow}]
            measured = _with_more_costs(measured, bench.measure([*baselines, *slow], suite.seeds))
            findings = _compare(golden, measured, jobs, here)
    flat = tuple(one for found in findings.values() for one in found)
    outcome = Outcome(asked.suite.stem, flat, here, time.monotonic() - start)
    _tell(asked, outcome)
    return REGRESSION if outcome.is_regression else OK


def _compare(golden: Golden, measured: dict[str, Measured], jobs: list[Job], here: str) -> dict[str, list[Finding]]:
    return {
        job.name: compare_job(job.name, golden.jobs.get(job.name), measured[job.name], measured[job.baseline], job.metrics, here)
        for job in jobs
    }


def _with_more_costs(measured: dict[str, Measured], more: dict[str, Measured]) -> dict[str, Measured]:
    """The first scores, with the costs of both rounds."""
    joined = dict(measured)
    for name, extra in more.items():
        joined[name] = measured[name].model_copy(update={"costs": (*measured[name].costs, *extra.costs)})
    return joined


def _update(asked: Asked, golden: Golden, measured: dict[str, Measured], jobs: list[Job], seeds: tuple[int, ...], here: str) -> int:
    """Writes the golden records and prints every old -> new; writes nothing if a job failed."""
    failed = [f"{name}: {one.failure}" for name, one in measured.items() if one.failure is not None]
    if failed:
        print("\n".join([*failed, "golden records are as they were: a job failed"]))
        return REGRESSION
    assert asked.reason is not None
    reason = asked.reason.strip()
    baselines, gated = {job.name: job.baseline for job in jobs}, {job.name: job.metrics for job in jobs}
    new = updated(golden, measured, baselines, gated, seeds, here, reason)
    path = golden_path(asked.suite)
    write_golden(path, new)
    lines = [f"golden records of {len(measured)} jobs written to {path.name}: {reason}", *new.history[-1].changes]
    print("\n".join(lines))
    if asked.markdown is not None:
        write_output(asked.markdown, "\n".join([f"### {lines[0]}", "", *(f"- {line}" for line in lines[1:])]) + "\n", "--markdown")
    return OK


def _tell(asked: Asked, outcome: Outcome) -> None:
    print("\n".join(terminal_lines(outcome)))
    if asked.markdown is not None:
        write_output(asked.markdown, markdown(outcome), "--markdown")
    if asked.junit is not None:
        write_output(asked.junit, junit(outcome), "--junit")


@contextlib.contextmanager
def _runs_dir(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="goatbench-check-") as folder:
        yield Path(folder)
