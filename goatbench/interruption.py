"""A signal that arrives while torch.compile compiles comes out as a compiler's error: here it is the interruption again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import REQUEUES, PreemptedError


@contextmanager
def plain_stop() -> Iterator[None]:
    """What a signal has ended ends with the KeyboardInterrupt or PreemptedError that the signal means, whoever has wrapped it."""
    try:
        yield
    except Exception as failure:
        stop = _stop_behind(failure)
        if stop is None:
            raise
        raise stop from None


def _stop_behind(failure: BaseException) -> BaseException | None:
    """The first stop in the chain of causes, contexts and torch's inner exceptions; None if no signal is behind the failure."""
    waiting: list[BaseException | None] = [failure]
    seen: set[int] = set()  # of ids: a chain may be a ring
    while waiting:
        error = waiting.pop(0)
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, (KeyboardInterrupt, PreemptedError)):
            return error
        if isinstance(error, subprocess.CalledProcessError) and (stop := _stop_of(-error.returncode)) is not None:
            return stop
        waiting += [error.__cause__, error.__context__, getattr(error, "inner_exception", None)]
    return None


def _stop_of(number: int) -> BaseException | None:
    """Of a compiler that died by this signal: a terminal, and a sweep, send theirs to the whole process group."""
    if number == signal.SIGUSR1 or (number == signal.SIGTERM and REQUEUES in os.environ):
        return PreemptedError(f"stopped by {signal.Signals(number).name}; the same command goes on")
    return KeyboardInterrupt() if number in (signal.SIGINT, signal.SIGTERM) else None
