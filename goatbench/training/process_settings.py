"""What is set for the length of a training, in this process, and set back after it."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..spec import TrainerSpec


@contextmanager
def plain_interrupt() -> Iterator[None]:
    """Ctrl-C stays a KeyboardInterrupt: Lightning makes it a SystemExit and leaves the process deaf to the next one."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt(*error.__context__.args) from None
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def determinism() -> Iterator[None]:
    """Lightning turns torch's deterministic algorithms on for the whole process: here only for the training. Without the default
    filling of fresh memory, a debugging aid that costs time."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill


@contextmanager
def as_in_training() -> Iterator[None]:
    """torch's deterministic algorithms, as Lightning turns them on: they decide which backends serve attention on a GPU."""
    with determinism():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it strict determinism refuses cuBLAS
        torch.use_deterministic_algorithms(True)
        yield


@contextmanager
def cheap_device_checks(spec: TrainerSpec) -> Iterator[None]:
    """Importing Lightning makes every `torch.cuda.is_available()` open NVIDIA's management library (so that later forks may use CUDA),
    and torch's optimizers ask in each step: 0.35 ms a step without a GPU. A training on the CPU needs no such care."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    if spec.accelerator == "cpu":
        os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning's hints on things that are chosen here on purpose (devices, workers, loggers) are no use to our user; its errors are."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
