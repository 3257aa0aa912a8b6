"""Several processes make one run: whether it trains or takes weights that are there is decided once, by the first rank under its lock.

The others may look before or after another run has written these weights: they read what the first one has decided, in a file of the
run's folder, and so does a rank that Lightning starts later. A restart of the same run decides anew.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from .errors import RankError
from .records.files import replace_atomic
from .records.layout import RECORD

TRAIN, REUSE = "train", "reuse"
POLL_SECONDS = 0.2


def decide(folder: Path, decision: str) -> None:
    """The first rank's word, TRAIN or REUSE, to the others."""
    replace_atomic(_path(folder), decision.encode())


def decided(folder: Path) -> str:
    """The first rank's word. Waits for it as long as that one waits for the lock; RankError if it has ended without one."""
    is_there = False
    while not _path(folder).exists():
        if (folder / RECORD).exists() or (is_there and not folder.is_dir()):
            raise RankError("the first process of this run has ended: see its message")
        is_there = folder.is_dir()
        time.sleep(POLL_SECONDS)
    return _path(folder).read_text()


def forget(folder: Path) -> None:
    """Before a run starts again under the same run id, and when it stops for that."""
    for path in folder.glob("rank-0.decision*"):
        path.unlink(missing_ok=True)


def _path(folder: Path) -> Path:
    """By attempt, which Slurm counts: a rank may be there before the first one has forgotten an attempt that was killed."""
    return folder / f"rank-0.decision-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
