"""Progress with an ETA: a live bar on a terminal, elsewhere a plain line at most every ten seconds. Always on stderr.

    with Progress("training", total=steps, unit="step") as bar:
        bar.advance(1, loss=0.53)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

LINE_EVERY_SECONDS = 10.0


class Progress:
    """Counts `total` units of work. `advance(n, **values)` moves on and shows the values (floats with four digits).

    after: seconds that pass before anything is shown; work that takes less says nothing.
    stream, interval and clock are for tests. On leaving the context a plain stream gets one last line, so that a log always
    tells how far the work came and how long it took.
    """

    def __init__(
        self,
        label: str,
        total: int,
        unit: str = "step",
        *,
        after: float = 0.0,
        stream: TextIO | None = None,
        interval: float = LINE_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._values: dict[str, Any] = {}
        self._stream = stream if stream is not None else sys.stderr
        self._after, self._interval, self._clock = after, interval, clock
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        self._start = self._last = self._clock()
        if not self._after:
            self._start_bar()
        return self

    def advance(self, count: int = 1, **values: Any) -> None:
        self.done += count
        self._values.update(values)
        if self._clock() - self._start < self._after:
            return
        if self._bar is None:
            self._start_bar()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, values=_show(self._values))
        elif self._clock() - self._last >= self._interval and self.done < self.total:  # the last line comes with the end
            self._last = self._clock()
            self._line()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._clock() - self._start >= self._after:
            self._line()

    def _start_bar(self) -> None:
        if self._stream.isatty():
            self._bar = _bar(self._stream)
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, values="")

    def _line(self) -> None:
        elapsed = self._clock() - self._start
        if self.done >= self.total:
            timing = f"took {duration(elapsed)}"
        elif self.done:
            timing = f"{duration(elapsed)} elapsed, {duration(elapsed / self.done * (self.total - self.done))} left"
        else:
            timing = f"{duration(elapsed)} elapsed"
        values = f", {_show(self._values)}" if self._values else ""
        print(f"{self.label}: {self.done}/{self.total} {self.unit}s, {timing}{values}", file=self._stream, flush=True)


def tell(message: str) -> None:
    """A word to whoever waits, in a log too: until the first progress line it may take ten seconds."""
    print(message, file=sys.stderr, flush=True)


def counted(number: int, word: str) -> str:
    """1 job, 3 jobs."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """42 s, 3 min 07 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _show(values: dict[str, Any]) -> str:
    return " ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items())


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[values]}"),
        console=Console(file=stream),
    )
