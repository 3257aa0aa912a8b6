"""Several processes make one run: whether it trains or takes weights that are there is decided once, by the first rank under its lock.

The others may look before or after another run has written these weights: they read what the first one has decided, in a file of the
run's folder, and so does a rank that Lightning starts later. A restart of the same run decides anew.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from .errors import RankError
from .records.files import replace_atomic
from .records.layout import RECORD

TRAIN, REUSE = "train", "reuse"
POLL_SECONDS = 0.2
TELL_AFTER_SECONDS = 10.0


def decide(folder: Path, decision: str, training: str) -> None:
    """The first rank's word, TRAIN or REUSE, to the others. training: the hash of what is trained."""
    replace_atomic(_path(folder), f"{decision} {training}".encode())


def decided(folder: Path, training: str) -> str:
    """The first rank's word. Waits for it as long as that one waits for the lock; RankError if it has ended without one, and if it trains
    something else: with other code or data, ranks would hang in each other's collectives, or train a mixture."""
    is_there, began, is_told = False, time.monotonic(), False
    while not _path(folder).exists():
        if (folder / RECORD).exists() or (is_there and not folder.is_dir()):
            raise RankError("the first process of this run has ended: see its message")
        is_there = folder.is_dir()
        if not is_told and time.monotonic() - began > TELL_AFTER_SECONDS:
            is_told = True
            print(f"waiting for the first process of this run, in {folder}: runs_dir must be one folder for all machines", file=sys.stderr)
        time.sleep(POLL_SECONDS)
    decision, _, theirs = _path(folder).read_text().partition(" ")
    if theirs != training:
        raise RankError("this process has other code, data or settings than the first of its run: give all machines the same")
    return decision


def forget(folder: Path) -> None:
    """Before a run starts again under the same run id, and when it stops for that."""
    for path in folder.glob("rank-0.decision*"):
        path.unlink(missing_ok=True)


def _path(folder: Path) -> Path:
    """By attempt, which Slurm counts: a rank may be there before the first one has forgotten an attempt that was killed."""
    return folder / f"rank-0.decision-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
