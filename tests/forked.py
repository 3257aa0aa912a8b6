"""Processes for tests that start at once: forked from one server that has imported everything already.

The test process itself is not forked: that would carry over its threads and, on a machine with a GPU, a CUDA that cannot be used.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

CONTEXT = multiprocessing.get_context("forkserver")
MODULES = ("cli", "compose", "execute", "training.fit", "training.classifier", "training.causal_lm")
CONTEXT.set_forkserver_preload(["hydra", "timm", *(f"goatbench.{name}" for name in MODULES)])
LIMIT_SECONDS = 600  # a hang fails, a loaded machine does not


def start(function: Callable, *args: object) -> BaseProcess:
    process = CONTEXT.Process(target=function, args=args)
    process.start()
    return process


def wait(processes: list[BaseProcess], limit_seconds: float = LIMIT_SECONDS) -> list[int | None]:
    """Exit codes, in order; None for what had to be ended at the limit."""
    deadline = time.monotonic() + limit_seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
    return codes
