"""`goatbench bench attention`: what GOAT costs in time and memory beside plain attention, RoPE and its published package."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from ..errors import UsageError
from ..progress import Progress
from ..records.environment import describe_environment, package_version
from ..records.files import create_exclusive
from ..records.source import code_info
from . import arguments as parse
from . import parts, table
from .parts import PARTS, Settings

SCHEMA_VERSION = 1


def main(argv: list[str]) -> int:
    """Measure, print, and with --out write one JSON record. UsageError in one line for what a user can cause."""
    arguments = parse.attention(argv)
    out = writable(arguments.out)
    settings = Settings.quick() if arguments.quick else Settings.full()
    chosen = _chosen(arguments.only)
    started = now()
    measured = measure(settings, chosen)
    print(table.render(measured, settings))
    if out is not None:
        create_exclusive(out, record_bytes(measured, settings, chosen, started))
        print(f"\nrecord: {arguments.out}")
    return 0


def measure(settings: Settings, chosen: tuple[str, ...]) -> parts.Measured:
    """Run the chosen parts, in the order of PARTS, with one progress display whose unit is the estimated work."""
    measured = parts.Measured()
    work = [job for part in chosen for job in PARTS[part](settings)]
    with Progress("bench attention", total=sum(job.cost for job in work), unit="work unit") as bar:
        for job in work:
            job.run(measured, lambda cost, label=job.label: bar.advance(cost, now=label))
    return measured


def record_bytes(measured: parts.Measured, settings: Settings, chosen: tuple[str, ...], started: str) -> bytes:
    """Strict JSON: environment, code, settings, every round's seconds, and the judged ratios."""
    record = {
        "schema_version": SCHEMA_VERSION,
        "bench": "attention",
        "started_at": started,
        "finished_at": now(),
        "code": code_info().model_dump(),
        "environment": describe_environment(threads=1) | {"goat-attention": package_version("goat-attention")},
        "settings": settings.as_json() | {"parts": list(chosen)},
        **measured.as_json(),
    }
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"


def _chosen(only: str | None) -> tuple[str, ...]:
    if only is None:
        return tuple(PARTS)
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown or not wanted:
        wrong = f"unknown part {unknown[0]!r}" if unknown else "no part named"
        raise UsageError(f"--only {only!r}: {wrong}; allowed are {', '.join(PARTS)}")
    return tuple(name for name in PARTS if name in wanted)


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
