"""Records of tests that are too long for every run: written where GOATBENCH_TEST_RECORDS names a folder, and nowhere else."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

from goatbench.bench.attention import now
from goatbench.records.environment import describe_environment
from goatbench.records.files import replace_atomic
from goatbench.records.source import code_info

SCHEMA_VERSION = 1


class Kept:
    """Begun with the work, so that its start and its seconds are those of the work.

    cpu_seconds: of this process and of its own children; processes of `forked.start` belong to the fork server and are not in it.
    """

    def __init__(self, name: str, test: str) -> None:
        self.name, self.test, self.started = name, test, now()
        self._wall, self._cpu = time.perf_counter(), _cpu_seconds()

    def write(self, **results: object) -> None:
        """Called behind the last assertion: a record says that the test passed."""
        folder = os.environ.get("GOATBENCH_TEST_RECORDS")
        if not folder:
            return
        record = {
            "schema_version": SCHEMA_VERSION,
            "bench": self.name,
            "test": self.test,
            "started_at": self.started,
            "finished_at": now(),
            "code": code_info().model_dump(),
            "environment": describe_environment(threads=1),
            "cpu_seconds": round(_cpu_seconds() - self._cpu, 1),
            "wall_seconds": round(time.perf_counter() - self._wall, 1),
            "results": results,
        }
        replace_atomic(Path(folder, f"{self.name}.json"), json.dumps(record, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n")


def _cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)
