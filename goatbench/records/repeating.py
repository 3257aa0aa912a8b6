"""The command line that makes a record again."""

from __future__ import annotations

import shlex

from .record import RunRecord

NO_RESULT = ("runs_dir", "retrain")  # overrides that say nothing about the result


def overrides_of(record: RunRecord) -> list[str]:
    """Task, attention, scale and seed spelled out (defaults may change), then the run's other overrides."""
    chosen = {"task": record.task.name, "attention": record.row.attention, "scale": record.scale, "seed": record.seed}
    given = [line for line in record.overrides if line.partition("=")[0] not in (*chosen, *NO_RESULT)]
    return [*(f"{key}={value}" for key, value in chosen.items()), *given]


def command(record: RunRecord, *more: str) -> str:
    """`goatbench run ...`, quoted for a shell; `more`: further overrides."""
    return shlex.join(["goatbench", "run", *overrides_of(record), *more])
