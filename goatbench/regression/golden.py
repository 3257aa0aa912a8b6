"""Golden records: what a suite measured when somebody looked at it and found it good, and how it came to be so. No torch here.

Scores are kept by the machine that made them (torch minor version, CPU capability, maker of the CPU): the same machine must give the
same numbers, another one numbers within the spread of the seeds. Costs are kept as ratios to the baseline of the same run.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import Field, ValidationError

from ..errors import UsageError
from ..records.files import one_line, read_bounded, replace_atomic
from ..records.record import HASH_PATTERN, Strict

MAX_HISTORY = 30
Direction = Literal["higher", "lower", "none"]
Scores = dict[str, dict[int, float]]  # cell -> seed -> value


class Measured(Strict):
    """What the runs of one job gave. A cell is a metric with its conditions; costs: CPU-seconds of each run, training and evaluation.

    failure: why there is nothing, else None.
    """

    identity: str  # hash of the configuration, seed apart
    task_version: int
    data_fingerprint: str = ""
    directions: dict[str, Direction] = Field(default_factory=dict)
    scores: Scores = Field(default_factory=dict)
    costs: tuple[float, ...] = ()
    failure: str | None = None


class GoldenJob(Strict):
    identity: str = Field(pattern=HASH_PATTERN)
    task_version: int = Field(ge=1)
    data_fingerprint: str = Field(pattern=HASH_PATTERN)
    directions: dict[str, Direction]
    scores: dict[str, Scores]  # machine -> cell -> seed -> value
    cost_ratios: tuple[float, ...]  # job's cost / baseline's, one a seed; none for the baseline

    def pooled(self, cell: str) -> list[float]:
        """One value a seed: the mean over the machines that have it."""
        by_seed: dict[int, list[float]] = {}
        for scores in self.scores.values():
            for seed, value in scores.get(cell, {}).items():
                by_seed.setdefault(seed, []).append(value)
        return [fmean(by_seed[seed]) for seed in sorted(by_seed)]


class Change(Strict):
    """One update: why, where, and every old -> new."""

    reason: str = Field(min_length=1)
    machine: str
    changes: tuple[str, ...]


class Golden(Strict):
    schema_version: Literal[1] = 1
    jobs: dict[str, GoldenJob] = Field(default_factory=dict)
    history: tuple[Change, ...] = ()  # newest last


def read_golden(path: Path) -> Golden:
    """The golden records of a file; none if there is no such file. UsageError in one line if it is damaged."""
    if not path.exists():
        return Golden()
    try:
        return Golden.model_validate_json(read_bounded(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(one_line(f"{path} holds no golden records: {field}: {first['msg']}")) from None


def write_golden(path: Path, golden: Golden) -> None:
    """Strict JSON, one line a cell, so that a changed score is one line of a diff."""
    replace_atomic(path, (_lines(golden.model_dump(mode="json"), 0) + "\n").encode())


def _lines(value: object, depth: int) -> str:
    """Indented JSON, but for lists of numbers and objects of numbers, which stay on their line."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not items or all(isinstance(item, int | float) for item in items):
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    pad, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(key), ensure_ascii=False)}: {_lines(item, depth + 1)}" for key, item in value.items()]
        return "{" + ",".join(pad + part for part in parts) + end + "}"
    return "[" + ",".join(pad + _lines(item, depth + 1) for item in items) + end + "]"
