"""Runs the jobs of a suite one after the other in this process, so that they share one start of PyTorch and one warm machine.

The seeds are the outer loop and the first run of each task is made twice, the first time for nothing: what a process does once
(lazy imports, first calls of a kernel) is nobody's cost.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..compose import Composed, Composer
from ..doctor import check_data, check_genome, check_lightning, check_text
from ..errors import UsageError
from ..execute import execute
from ..progress import Progress
from ..records.canonical import canonical_json, digest
from ..records.environment import cpu_name
from ..records.record import Measurement, RunRecord, Status
from ..registry import tasks
from .golden import Measured
from .suite import Job, Suite

COSTS = ("train_cpu_seconds", "eval_cpu_seconds")


class BrokenEnvironmentError(Exception):
    """goatbench cannot run here, whatever is asked of it; one line."""


def machine() -> str:
    """What the last digits of a float32 sum depend on: 'torch 2.14, AVX512, AMD'. BrokenEnvironmentError if torch cannot be used.

    torch, oneDNN and MKL choose their kernels by the CPU's capability, MKL by its maker as well.
    """
    if (finding := check_lightning()).level == "broken":  # before anything imports it
        raise BrokenEnvironmentError(f"{finding.topic}: {finding.text}")
    try:
        import lightning  # noqa: F401
        import timm  # noqa: F401
        import torch
        import torchvision  # noqa: F401
    except Exception as error:  # a broken installation may fail in any way
        raise BrokenEnvironmentError(f"PyTorch and what comes with it cannot be imported: {type(error).__name__}: {error}") from None
    for finding in (check_data(), check_genome(), check_text()):
        if finding.level == "broken":
            raise BrokenEnvironmentError(f"{finding.topic}: {finding.text}")
    minor = ".".join(torch.__version__.split(".")[:2])
    maker = (cpu_name() or "unknown").split()[0].removesuffix("(R)")
    return f"torch {minor}, {torch.backends.cpu.get_cpu_capability()}, {maker}"


class Bench:
    """Measures jobs of a suite; their runs lie in runs_dir."""

    def __init__(self, suite: Suite, runs_dir: Path) -> None:
        self.suite, self.runs_dir = suite, runs_dir
        self._composer = Composer()

    def measure(self, jobs: list[Job], seeds: tuple[int, ...]) -> dict[str, Measured]:
        """Every job with every seed. UsageError before the first run if one of them cannot be composed."""
        composed = {job.name: self._compose(job) for job in jobs}
        planned = {(name, seed): _with_seed(one, seed) for name, one in composed.items() for seed in seeds}
        warmed: set[str] = set()
        runs: dict[str, list[RunRecord | str]] = {job.name: [] for job in jobs}
        total = len(planned) + len({job.task for job in jobs})
        with Progress("checking", total=total, unit="run") as bar:
            for seed in seeds:
                for job in jobs:
                    if job.task not in warmed:
                        warmed.add(job.task)
                        self._record(planned[job.name, seed])
                        bar.advance(1, now=job.name)
                    runs[job.name].append(self._record(planned[job.name, seed]))
                    bar.advance(1, now=job.name)
        return {job.name: measured_of(composed[job.name], dict(zip(seeds, runs[job.name], strict=True))) for job in jobs}

    def _compose(self, job: Job) -> Composed:
        chosen = [f"task={job.task}", f"attention={job.attention}", f"scale={self.suite.scale}"]
        return self._composer.compose([*chosen, f"runs_dir={self.runs_dir}", "retrain=true", *job.overrides])

    def _record(self, composed: Composed) -> RunRecord | str:
        """The record, or why there is none. KeyboardInterrupt if a signal ended the run."""
        with contextlib.redirect_stderr(io.StringIO()):  # its own progress bars
            try:
                record = execute(composed)
            except UsageError as error:
                return f"refused: {error}"
        assert record is not None, "a check is one process"
        if record.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return record


def _with_seed(composed: Composed, seed: int) -> Composed:
    return replace(composed, spec=composed.spec.model_copy(update={"seed": seed}), overrides=[*composed.overrides, f"seed={seed}"])


def measured_of(composed: Composed, records: dict[int, RunRecord | str]) -> Measured:
    """One job's records by seed, put together. The first one that failed is the failure of the job."""
    spec = composed.spec
    identity = {key: value for key, value in spec.identity.items() if key != "seed"}
    card = tasks.get(spec.task.name).card
    known = {"identity": digest(identity), "task_version": card.version}
    directions: dict[str, Any] = {}
    scores: dict[str, dict[int, float]] = {}
    for seed, record in records.items():
        if isinstance(record, str):
            return Measured(**known, failure=f"seed {seed}: {record}")
        if record.error is not None:
            return Measured(**known, failure=f"seed {seed}: {record.status}: {record.error.kind}: {record.error.message}")
        for one in record.measurements:
            if one.value is not None and "reference" not in one.conditions:  # a yardstick is the data's, not the row's
                scores.setdefault(cell_of(one), {})[seed] = one.value
                directions[cell_of(one)] = card.metric(one.metric).direction
    costs = tuple(sum(cost.value for cost in record.costs if cost.name in COSTS) for record in records.values())
    fingerprint = next(iter(records.values())).data.fingerprint
    return Measured(**known, data_fingerprint=fingerprint, directions=directions, scores=scores, costs=costs)


def cell_of(one: Measurement) -> str:
    """'nll_nats coords=raw nominal=512': the metric, then its conditions by name, as in a record that was read."""
    conditions = (f"{key}={value if isinstance(value, str) else canonical_json(value)}" for key, value in sorted(one.conditions.items()))
    return " ".join([one.metric, *conditions])
