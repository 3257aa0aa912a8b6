"""What other processes do in the same runs_dir: finished runs that stand for a job, and a lock a job, so that one process does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from .errors import UsageError
from .records.canonical import digest
from .records.files import lock
from .records.layout import RECORD
from .records.record import RunRecord, Status
from .records.store import read_record

LOCKS = "locks"

Key = tuple[str, int, str, str]  # config hash, task version, data fingerprint, source hash


def finished_keys(records: Iterable[RunRecord]) -> set[Key]:
    """What is done: the keys of all records with status ok."""
    return {
        (record.config_hash, record.task.version, record.data.fingerprint, record.code.source_hash)
        for record in records
        if record.status is Status.OK and record.data is not None
    }


def finished_run(runs_dir: str, key: Key) -> RunRecord | None:
    """A finished run of this key, if there is one. Only folders with the first digits of the configuration's hash are read."""
    for path in sorted(Path(runs_dir).glob(f"*-{key[0][:8]}-*/{RECORD}")):
        with contextlib.suppress(UsageError):
            record = read_record(path)
            if key in finished_keys([record]):
                return record
    return None


def lock_job(runs_dir: str, key: Key) -> BinaryIO | None:
    """The job's lock file, open and locked (records.files.lock); None while another process has it."""
    path = Path(runs_dir) / LOCKS / digest(list(key))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise UsageError(f"cannot create {path}: {error.strerror}; set runs_dir=PATH to a folder you can write") from None
    if not lock(file, wait=False):
        file.close()
        return None
    return file
