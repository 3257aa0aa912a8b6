"""Runs on disk: a folder a run, a marker at its start, one record at its end, written once. How they lie: `layout`."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ..errors import UsageError
from .canonical import digest
from .files import create_exclusive, one_line, read_bounded, read_record, record_bytes, replace_atomic
from .layout import MARKER, RECORD, folders, placed_at, record_paths, results_root
from .record import HASH_PATTERN, RUN_ID_PATTERN, RunRecord, Strict
from .submission import Placed, submit

__all__ = [
    "Marker",
    "Placed",
    "RunFolder",
    "interrupted",
    "iter_records",
    "new_run_id",
    "placed_at",
    "read_record",
    "results_root",
    "say_unread",
    "submit",
]

MAX_MARKER_BYTES = 64 * 2**10
NAMED = 3  # files that a warning names


class Marker(Strict):
    """Who is running: local, never submitted. A recycled pid has another start time, another machine another `machine`."""

    run_id: str = Field(pattern=RUN_ID_PATTERN)
    pid: int
    process_started: str
    machine: str  # hash of boot and pid namespace: tells machines apart, names none
    task: str
    attention: str
    scale: str
    seed: int
    config_hash: str = Field(pattern=HASH_PATTERN)
    data_fingerprint: str | None = None
    source_hash: str | None = None
    started_at: str

    @property
    def is_here(self) -> bool:
        """Whether it was started on this machine since it booted: only then can we know that its process is gone."""
        return self.machine == machine_token()

    @property
    def is_alive(self) -> bool:
        return self.is_here and process_started(self.pid) == self.process_started


def new_run_id(config_hash: str) -> str:
    """UTC second, 8 hex digits of the configuration, 6 random ones: sorts by time, and two writers never collide."""
    if not re.fullmatch(HASH_PATTERN, config_hash):
        raise ValueError(f"a config hash has 8 to 64 hex digits, got {config_hash!r}")
    return f"{datetime.now(UTC):%Y%m%dt%H%M%S}-{config_hash[:8]}-{secrets.token_hex(3)}"


def check_run_id(run_id: str) -> None:
    """UsageError if it is none."""
    if not re.fullmatch(RUN_ID_PATTERN, run_id):
        raise UsageError(f"run id {run_id!r} does not look like 20260131t120000-0123abcd-45ef67")


def check_runs_dir(runs_dir: str) -> None:
    """UsageError if a file stands where the folder is or would be made."""
    path = next((path for path in (Path(runs_dir), *Path(runs_dir).parents) if os.path.lexists(path)), None)
    if path is not None and not os.path.isdir(path):
        raise UsageError(f"runs_dir={runs_dir}: {path} is a file; name a folder with runs_dir=PATH")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run. `start` before the work, `finish` once after it. Only the first rank of a run holds one."""

    runs_dir: Path
    run_id: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs_dir", Path(self.runs_dir))
        check_run_id(self.run_id)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {self.path}: {error.strerror}; set runs_dir=PATH to a folder you can write") from None

    @property
    def path(self) -> Path:
        return self.runs_dir / self.run_id

    def start(self, **fields: Any) -> Marker:
        """Write the marker; fields: task, attention, scale, seed, config_hash, and if known data_fingerprint, source_hash.

        A requeued run may start again in the folder of its dead predecessor; UsageError if that one lives or has finished.
        """
        marker = Marker(
            run_id=self.run_id,
            pid=os.getpid(),
            process_started=process_started(os.getpid()) or "",
            machine=machine_token(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            **fields,
        )
        content = json.dumps(marker.model_dump(mode="json"), indent=1, sort_keys=True).encode() + b"\n"
        if (self.path / RECORD).exists():
            raise UsageError(f"run {self.run_id} has finished: {self.path / RECORD} is never written again, start a new run")
        try:
            create_exclusive(self.path / MARKER, content)
        except FileExistsError:
            before = read_marker(self.path / MARKER)
            if before.is_alive and before.pid != os.getpid():
                raise UsageError(f"run {self.run_id} is being run by process {before.pid}: wait for it, or start a new run") from None
            replace_atomic(self.path / MARKER, content)
        return marker

    def finish(self, record: RunRecord) -> Path:
        """Write the record, once. UsageError if there is one already or the disk refuses; then nothing is half-written."""
        assert record.run_id == self.run_id, (record.run_id, self.run_id)
        path = self.path / RECORD
        try:
            create_exclusive(path, record_bytes(record))
        except FileExistsError:
            raise UsageError(f"{path} exists and is never overwritten") from None
        return path


def read_marker(path: Path) -> Marker:
    try:
        return Marker.model_validate_json(read_bounded(path, MAX_MARKER_BYTES))
    except ValidationError as error:
        raise UsageError(one_line(f"{path} is not a run marker: {error.errors()[0]['msg']}")) from None


def interrupted(runs_dir: Path | str, warnings: list[str]) -> list[Marker]:
    """Markers without a record and without a live process, by run id. Those of another machine or boot count: nobody here can tell."""
    found = []
    for folder in folders(Path(runs_dir)):
        if re.fullmatch(RUN_ID_PATTERN, folder.name) and (folder / MARKER).exists() and not (folder / RECORD).exists():
            try:
                marker = read_marker(folder / MARKER)
            except UsageError as error:
                warnings.append(str(error))
                continue
            if not marker.is_alive:
                found.append(marker)
    return found


def iter_records(root: Path | str, warnings: list[str], tasks: Container[str] | None = None) -> Iterator[RunRecord]:
    """Every record below a runs_dir or a results folder, in the order of paths. A missing root holds none.

    A file that cannot be read or lies in the wrong place is skipped and named in `warnings`; other folders (reported/,
    checkpoints/) are not looked at. tasks: of a results folder only their records.
    """
    for path, is_run in record_paths(Path(root), tasks):
        try:
            record = read_record(path)
            expected = path.parent.name if is_run else None
            if is_run and record.run_id != expected:
                raise UsageError(f"{path} holds the record of another run, {record.run_id}")
            if not is_run and path.parts[-4:] != placed_at(record).parts:
                raise UsageError(f"{path} is in the wrong place: its record belongs at {placed_at(record)}")
        except UsageError as error:
            warnings.append(str(error))
            continue
        yield record


def say_unread(warnings: Sequence[str]) -> None:
    """One line on standard error for all records that could not be read, the first of them by name."""
    if warnings:
        count = f"{len(warnings)} record{'s' if len(warnings) != 1 else ''} could not be read"
        more = f"; and {len(warnings) - NAMED} more" if len(warnings) > NAMED else ""
        print(f"goatbench: skipped: {count}: {'; '.join(warnings[:NAMED])}{more}", file=sys.stderr)


def machine_token() -> str:
    """Tells boots of machines and pid namespaces (containers) apart without naming any."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux: the node name, hashed
        boot, namespace = os.uname().nodename, ""
    return digest([boot, namespace])


def process_started(pid: int) -> str | None:
    """When the process with this pid started, in the system's own notation; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[19]  # field 22, clock ticks since boot; the name in field 2 may hold spaces
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10)
    return done.stdout.strip() or None
