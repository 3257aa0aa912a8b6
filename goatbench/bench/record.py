"""What a benchmark keeps with --out: one JSON record, with the same head for all of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..records.files import create_exclusive
from ..records.source import code_info

SCHEMA_VERSION = 1


def writable(out: Path | None) -> Path | None:
    """Refused before half an hour of measuring, not after."""
    if out is None:
        return None
    if out.exists():
        raise UsageError(f"--out {out}: the file exists, and records are never overwritten; choose another name or remove it")
    if not out.resolve().parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}; make it first")
    return out


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_bytes(bench: str, started: str, environment: dict[str, Any], **values: Any) -> bytes:
    """Strict JSON that ends now: the name, times, code and environment of this benchmark, and its own values (settings, results, ...)."""
    head = {"schema_version": SCHEMA_VERSION, "bench": bench, "started_at": started, "finished_at": now()}
    record = {**head, "code": code_info().model_dump(), "environment": environment, **values}
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"


def write(out: Path, content: bytes) -> None:
    create_exclusive(out, content)
    print(f"\nrecord: {out}")
