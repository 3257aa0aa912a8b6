"""What a sweep shows while it runs: a live table on a terminal, elsewhere one line for each job that starts or ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from .progress import duration

if TYPE_CHECKING:
    from .launch import Job

REFRESH_SECONDS = 1.0


def seconds_left(jobs: list[Job], parallel: int, now: float) -> float | None:
    """Expected time to the end: the median of the finished jobs for each job that waits, what is missing to it for those that
    run, shared by `parallel` workers. None before the first job has finished; what other processes have done tells nothing."""
    done = sorted(job.seconds for job in jobs if job.state not in ("waiting", "running") and job.seconds)
    if not done:
        return None
    middle = len(done) // 2
    median = done[middle] if len(done) % 2 else (done[middle - 1] + done[middle]) / 2
    running = [max(median - (now - job.started), 0.0) for job in jobs if job.state == "running"]
    waiting = sum(job.state == "waiting" for job in jobs)
    return max([(sum(running) + waiting * median) / parallel, *running])


class SweepDisplay:
    """Reads the jobs, never changes them. Everything but the summary goes to stderr."""

    def __init__(self, jobs: list[Job], parallel: int, stream: TextIO | None = None) -> None:
        self._jobs, self._parallel = jobs, parallel
        self._stream = stream if stream is not None else sys.stderr
        self._live: Any = None
        self._last = 0.0

    def __enter__(self) -> SweepDisplay:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, job: Job) -> None:
        if self._live is None:
            self._line(f"started {job.label} (log: {job.log})")

    def held(self, job: Job) -> None:
        if self._live is None:
            self._line(f"{job.state} {job.label}: {job.detail}")

    def finished(self, job: Job) -> None:
        if self._live is None:
            self._line(f"{job.state} {job.label} in {duration(job.seconds)}{f': {job.detail}' if job.detail else ''}")

    def tick(self) -> None:
        if self._live is not None and time.monotonic() - self._last >= REFRESH_SECONDS:
            self._last = time.monotonic()
            self._live.update(self._table(), refresh=True)

    def summary(self) -> None:
        """To stdout: every job, how it ended, its time, its headline or error, its folder."""
        width = max(len(job.label) for job in self._jobs)
        states = max(len(job.state) for job in self._jobs)
        for job in self._jobs:
            took = duration(job.seconds) if job.seconds else ""
            print(f"{job.state:{states}}  {job.label:{width}}  {took:>12}  {job.folder}  {job.detail[:200]}".rstrip())
        finished = sum(job.state == "ok" for job in self._jobs)
        print(f"{finished} of {len(self._jobs)} jobs finished{'' if finished == len(self._jobs) else '; the same command runs the others'}")

    def _status(self) -> str:
        ended = sum(job.state not in ("waiting", "running") for job in self._jobs)
        left = seconds_left(self._jobs, self._parallel, time.monotonic())
        return f"{ended}/{len(self._jobs)} jobs{'' if left is None else f', about {duration(left)} left'}"

    def _line(self, text: str) -> None:
        print(f"[{self._status()}] {text}", file=self._stream, flush=True)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self._status(), title_justify="left", box=None)
        for head in ("job", "state", "time", ""):
            table.add_column(head, no_wrap=True, overflow="ellipsis")
        for job in self._jobs:
            if job.state == "waiting" and not job.detail:
                continue
            seconds = time.monotonic() - job.started if job.state == "running" else job.seconds
            detail = job.last_line() if job.state == "running" else job.detail
            table.add_row(Text(job.label), job.state, duration(seconds), Text(detail[:100]))
        return table
