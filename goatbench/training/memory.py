"""Peak memory of a part of a run, measured, with the name of the method: two methods are never comparable.

`cuda_allocator`: most bytes that torch's CUDA allocator had handed out (this process, one device) since `start`.
`rss_since_start`: peak resident set of the whole process since `start`, interpreter and libraries included (CPU runs on Linux).
`rss`:            the same since the process began: it can only rise from one part to the next (CPU runs elsewhere).
`allocations`:    torch's record of every allocation and release on the CPU: exact, the same on every run, slow.

The first and the last can tell the phases of a step apart (`cuda_levels`, `allocation_levels`).
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")

_HIGH_WATER = Path("/proc/self/clear_refs")  # proc(5): 5 sets VmHWM back


@dataclass(frozen=True, slots=True)
class PeakMemory:
    num_bytes: int
    method: str


def start(device: torch.device) -> None:
    """Sets the peak back to what is held now, where the system allows it: `peak` is then that of the part of the run that begins."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        _set_back()


def peak(device: torch.device) -> PeakMemory:
    """Since the last `start`, or where that could not set it back since the process began."""
    if device.type == "cuda":
        return PeakMemory(torch.cuda.max_memory_allocated(device), "cuda_allocator")
    if _can_set_back():
        return PeakMemory(_status_bytes("VmHWM"), "rss_since_start")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, KiB on Linux
    return PeakMemory(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "rss")


def is_out_of_memory(error: RuntimeError) -> bool:
    """cuBLAS and cuDNN report a failed workspace allocation as a plain RuntimeError, and so does the allocator of the CPU."""
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "ALLOC_FAILED" in said or "can't allocate memory" in said


def with_smaller_batches(run: Callable[[int], T], batch: int) -> tuple[T, int]:
    """run(batch), and where memory does not suffice again from the start with half of it, down to 1: (its result, the batch used)."""
    while True:
        try:
            return run(batch), batch
        except RuntimeError as error:
            if not is_out_of_memory(error) or batch == 1:
                raise
        batch //= 2
        torch.cuda.empty_cache()  # here, where the failed batch's tensors are no longer held by its exception


def resident_rise(run: Callable[[], object]) -> int:
    """How far the resident set rises above its present size while run() runs, in bytes. Linux; ValueError elsewhere.

    From the kernel's high-water mark, set back first: ru_maxrss would start with what the parent process had reached.
    """
    if not _set_back():
        raise ValueError("the peak of the resident set cannot be set back on this system (Linux with /proc can)")
    before = _status_bytes("VmRSS")
    run()
    return max(0, _status_bytes("VmHWM") - before)


def _set_back() -> bool:
    """The kernel's high-water mark of this process, to what is resident now; False where there is no way to."""
    try:
        _HIGH_WATER.write_text("5")
    except OSError:
        return False
    return True


def _can_set_back() -> bool:
    return os.access(_HIGH_WATER, os.W_OK)


def _status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes held in one phase: the most at one time, and at its end."""

    peak: int
    end: int


Phases = Mapping[str, Callable[[], object]]  # run one after the other


def cuda_levels(phases: Phases, device: torch.device) -> dict[str, Level]:
    """Levels of each phase as the CUDA allocator counts them; what stood before the first phase is included."""
    levels = {}
    for name, run in phases.items():
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        levels[name] = Level(torch.cuda.max_memory_allocated(device), torch.cuda.memory_allocated(device))
    return levels


def allocation_levels(phases: Phases) -> dict[str, Level]:
    """Levels of each phase above what stood before the first, from the profiler's record of CPU allocations, temporaries inside
    kernels included."""
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        for name, run in phases.items():
            with record_function(f"phase/{name}"):
                run()
    events = recorded.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), i, e.nbytes()) for i, e in enumerate(events) if e.name() == "[memory]")
    ends = {e.name().removeprefix("phase/"): e.start_ns() + e.duration_ns() for e in events if e.name().startswith("phase/")}
    levels, level, place = {}, 0, 0
    for name in phases:
        peak = level
        while place < len(changes) and changes[place][0] <= ends[name]:
            level += changes[place][2]
            peak = max(peak, level)
            place += 1
        levels[name] = Level(peak, level)
    return levels
