"""A sweep: one child process a job, so that memory peaks are clean, a crash stays alone, and DDP relaunches one job only.

Every job is composed and checked before the first one starts. Jobs that are finished in their runs_dir (equal configuration,
task version, data and source) are skipped; what another sweep is doing there waits for it. Children write to runs_dir/<run_id>/log.txt.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from .compose import Composed, Composer
from .elsewhere import Key, finished_keys, finished_run, lock_job
from .errors import PREEMPTED, UsageError
from .overrides import job_label
from .progress import counted, tell
from .records.record import RunRecord, Status
from .records.store import check_run_id, check_runs_dir, iter_records, new_run_id, read_record
from .spec import RunSpec
from .sweep_display import SweepDisplay

GRACE_SECONDS = (15.0, 5.0)  # after SIGTERM, after a second SIGTERM; then SIGKILL
POLL_SECONDS = 0.2


@dataclass(slots=True)
class Job:
    """One run of a sweep. state: waiting, running, or how it ended (a record's status, 'refused' or 'crashed')."""

    overrides: list[str]
    label: str  # the overrides that tell it from the other jobs
    run_id: str
    runs_dir: str
    num_threads: int
    key: Key
    spec: RunSpec | None = field(default=None, repr=False)
    state: str = "waiting"
    seconds: float = 0.0
    detail: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    output: BinaryIO | None = field(default=None, repr=False)  # the log, open: a run that refuses its input removes its folder
    started: float = 0.0

    @property
    def folder(self) -> Path:
        return Path(self.runs_dir) / self.run_id

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def last_line(self, limit: int = 4096) -> str:
        """The last line with text of the log ('' before the first)."""
        if self.output is None or self.output.closed:
            return ""
        number = self.output.fileno()
        tail = os.pread(number, limit, max(0, os.fstat(number).st_size - limit))  # leaves the child's write position alone
        lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""


def launch(
    overrides: list[str], jobs: int = 1, config_dir: str | None = None, dry_run: bool = False, run_id: str | None = None
) -> int:
    """Run the sweep, `jobs` at a time; with launch=slurm submit it. dry_run: only print what would be started. run_id: of the one job,
    which goes on; None: new ones.

    Exit code: 0 all finished (submitted), 1 some failed, 130 interrupted.
    """
    planned, skipped = plan(overrides, config_dir)
    if run_id is not None:
        check_run_id(run_id)
        if len(planned) + skipped > 1:
            raise UsageError(f"--run-id {run_id} is one run, these are {len(planned) + skipped} jobs: give it with the one that goes on")
        for job in planned:
            job.run_id = run_id
    if skipped:
        total = skipped + len(planned)
        print(f"skipped {skipped} of {total} jobs: finished already (same configuration, task version, data and source)", flush=True)
    if not planned:
        return 0
    sweep_id = new_run_id("0" * 8)

    def command_of(job: Job) -> list[str]:
        return command(job, sweep_id, config_dir)

    kinds = {job.spec.launch.kind for job in planned if job.spec is not None}
    if len(kinds) > 1:
        raise UsageError("a sweep is launched in one way: launch=local or launch=slurm for all of its jobs")
    if kinds == {"slurm"}:
        from .slurm import submit

        return submit(planned, command_of, dry_run)
    if dry_run:
        print("\n".join(shlex.join(command_of(job)) for job in planned))
        return 0
    return Sweep(planned, jobs, command_of).run()


def plan(overrides: list[str], config_dir: str | None = None, key_of: Callable[[Any], Key] | None = None) -> tuple[list[Job], int]:
    """The jobs to run and how many are finished already. UsageError if any of them cannot run: then none starts."""
    composer = Composer(config_dir)
    lines = composer.split_sweep(overrides)
    composed: list[Composed] = []
    for job in lines:
        try:
            composed.append(composer.compose(job))
            composed[-1].check_paths()
        except UsageError as error:
            raise UsageError(f"{error} (job: {' '.join(job)})" if len(lines) > 1 else str(error)) from None
    folders = {one.spec.runs_dir: None for one in composed}
    for folder in folders:
        check_runs_dir(folder)
    tell(f"{counted(len(lines), 'job')}: looking for finished ones ...")
    key_of = key_of or _job_key
    finished = {folder: finished_keys(iter_records(folder, [])) for folder in folders}
    planned, skipped, seen = [], 0, set()
    for job, one in zip(lines, composed, strict=True):
        spec = one.spec
        key = key_of(spec)
        if key in seen:
            raise UsageError(f"two jobs of the sweep are the same run: {' '.join(job)}")
        seen.add(key)
        if key in finished[spec.runs_dir] and not spec.retrain:
            skipped += 1
            continue
        run_id, label = new_run_id(spec.config_hash), job_label(job, overrides)
        planned.append(Job(job, label, run_id, spec.runs_dir, spec.trainer.num_threads, key, spec))
    return planned, skipped


def command(job: Job, sweep_id: str, config_dir: str | None) -> list[str]:
    """What a child is started with; -P keeps the working directory off its import path."""
    config = ["--config-dir", config_dir] if config_dir else []
    overrides = [line for line in job.overrides if not line.lstrip("+").startswith(("launch=", "launch."))]  # it is launched by now
    return [sys.executable, "-P", "-m", "goatbench", "run", *config, "--run-id", job.run_id, "--sweep-id", sweep_id, *overrides]


def _job_key(spec: Any) -> Key:
    from .execute import job_key

    return job_key(spec)


class Sweep:
    """Starts children, watches them, and on Ctrl-C, SIGTERM, a closed terminal or an error ends them, each by its own process group."""

    def __init__(self, jobs: list[Job], parallel: int, command_of: Callable[[Job], list[str]]) -> None:
        self.jobs, self.parallel, self.command_of = jobs, parallel, command_of

    def run(self) -> int:
        handlers = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        interrupted = False
        try:
            with SweepDisplay(self.jobs, self.parallel) as display:
                try:
                    self._work(display)
                except BaseException as stop:
                    for number in handlers:  # ending them takes a moment that must not be cut short
                        signal.signal(number, signal.SIG_IGN)
                    self._end_children()
                    if not isinstance(stop, KeyboardInterrupt):
                        raise
                    interrupted = True
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        display.summary()
        if interrupted:
            return 130
        return 0 if all(job.state == Status.OK for job in self.jobs) else 1

    def _work(self, display: SweepDisplay) -> None:
        while any(job.state in ("waiting", "running") for job in self.jobs):
            for job in self._running():
                if job.process is not None and job.process.poll() is not None:
                    _close(job)
                    display.finished(job)
            for job in self.jobs:
                if job.state == "waiting" and len(self._running()) < self.parallel:
                    self._take(job, display)
            display.tick()
            time.sleep(POLL_SECONDS)

    def _take(self, job: Job, display: SweepDisplay) -> None:
        """Start the job, unless another process is doing it, then it goes on waiting, or has done it since it was planned."""
        lock = lock_job(job.runs_dir, job.key)
        if lock is None:
            if not job.detail:
                job.detail = "another process is doing it"
                display.held(job)
            return
        with lock:  # the child keeps it, also when this process is killed
            is_anew = job.spec is not None and job.spec.retrain
            record = None if is_anew else finished_run(job.runs_dir, job.key)
            if record is None:
                _start(job, self.command_of(job), lock)
                display.started(job)
            else:
                job.run_id, job.state, job.detail = record.run_id, record.ending, f"{headline(record)}, done by another process"
                display.finished(job)

    def _running(self) -> list[Job]:
        return [job for job in self.jobs if job.state == "running"]

    def _end_children(self) -> None:
        for number, grace in zip((signal.SIGTERM, signal.SIGTERM, signal.SIGKILL), (*GRACE_SECONDS, 5.0), strict=True):
            for job in self._running():
                _signal(job, number)
            deadline = time.monotonic() + grace
            while self._running() and time.monotonic() < deadline:
                for job in self._running():
                    if job.process is not None and job.process.poll() is not None:
                        _signal(job, signal.SIGKILL)  # what it may have left behind: workers, other ranks
                        _close(job)
                time.sleep(0.05)
        for job in self.jobs:
            if job.state == "waiting":
                job.state, job.detail = "not started", ""


def _start(job: Job, arguments: list[str], lock: BinaryIO) -> None:
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {job.folder}: {error.strerror}; set runs_dir=PATH to a folder you can write") from None
    environment = {**os.environ, "OMP_NUM_THREADS": str(job.num_threads), "PYTHONUNBUFFERED": "1"}
    job.output = open(job.log, "ab+")  # noqa: SIM115 (closed in _close)
    job.process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=job.output, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        pass_fds=(lock.fileno(),),
    )  # fmt: skip
    job.state, job.detail, job.started = "running", "", time.monotonic()


def _close(job: Job) -> None:
    """Read off how the job ended: from its record, or, if it left none, from its exit code and the end of its log."""
    assert job.process is not None and job.output is not None
    job.seconds = time.monotonic() - job.started
    code, said = job.process.returncode, job.last_line()
    job.output.close()
    try:
        record = read_record(job.folder / "record.json")
    except (UsageError, OSError):
        if code == 2:
            job.state, job.detail = "refused", said.removeprefix("goatbench: ")
        else:
            job.state = "interrupted" if code in (130, PREEMPTED, -signal.SIGTERM, -signal.SIGINT) else "crashed"
            job.detail = f"exit code {code}" + (f": {said}" if said else "")
        return
    job.state = record.ending
    job.detail = headline(record) if record.error is None else f"{record.error.kind}: {record.error.message}"


def headline(record: RunRecord) -> str:
    """'top1 73.8' for the task's headline cell, the first one if there are several variants."""
    from .registry import tasks

    card = tasks.get(record.task.name).card
    metric = card.metric(card.primary_metric)
    for one in record.measurements:
        if one.metric == metric.name and one.value is not None and card.primary_conditions.items() <= one.conditions.items():
            return f"{metric.name} {metric.text(one.value)}"
    return ""


def _signal(job: Job, number: int) -> None:
    """To the job's process group, which start_new_session made its own."""
    assert job.process is not None
    try:
        os.killpg(job.process.pid, number)
    except (ProcessLookupError, PermissionError):  # gone already
        return
