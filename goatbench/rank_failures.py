"""Several processes make one run. A rank that fails says why in the run's folder, and the first ends the run with that reason,
even if it hangs in a collective that the other will never join; none of the others outlives the first.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel

from .errors import UsageError
from .records.files import read_bounded, replace_atomic
from .records.record import ErrorInfo, Status

RUN_ID = "GOATBENCH_RUN_ID"  # environment variable: the run id, for the processes that the first one starts
POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0  # between a broken connection and the word of the rank that broke it
MAX_BYTES = 64 * 2**10
LOST = ("by peer", "remote process exited")  # gloo's and NCCL's words for a connection whose other end is gone


class Word(BaseModel):
    """What a rank says of its end: the status that the run has by it, and the reason."""

    status: Status
    error: ErrorInfo


def say_why(folder: Path, rank: int, word: Word) -> None:
    """Leave word in the run's folder; without a folder (each rank started by hand, without a common run id) on no disk."""
    if folder.is_dir():
        replace_atomic(folder / f"rank-{rank}.error", word.model_dump_json().encode())


def forget(folder: Path) -> None:
    for path in folder.glob("rank-*.error"):
        path.unlink()


def why(folder: Path, wait_seconds: float = 0.0) -> Word | None:
    """The first word that another rank has left, waiting for one at most so long."""
    deadline = time.monotonic() + wait_seconds
    while True:
        for path in sorted(folder.glob("rank-*.error")):
            said = Word.model_validate_json(read_bounded(path, MAX_BYTES))
            message = f"{path.stem.replace('-', ' ')}: {said.error.message}"
            return Word(status=said.status, error=ErrorInfo(kind=said.error.kind, message=message))
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)


def without_a_word(error: ErrorInfo) -> ErrorInfo:
    """The error of a connection that broke, where no rank has said why: a process that is killed cannot."""
    if not any(words in error.message for words in LOST):
        return error
    said = "another process of this run ended without a word, killed perhaps for the memory it took"
    return ErrorInfo(kind=error.kind, message=f"{said}: {error.message}")


class Watch:
    """While the first rank works: end(word) is called as soon as another rank has failed, from a thread. end must not return."""

    def __init__(self, folder: Path, end: Callable[[Word], None]) -> None:
        self.folder, self.end = folder, end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="rank-failures", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            try:
                word = why(self.folder)
            except (UsageError, ValueError):  # somebody removed the file again
                continue
            if word is not None:
                self.end(word)


def end_with_parent() -> None:
    """End this process when the one that started it is gone: it would wait for it in a collective for ever."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=look, name="parent", daemon=True).start()
