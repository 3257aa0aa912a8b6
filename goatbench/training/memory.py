"""Peak memory of a part of a run, measured, with the name of the method: the two methods are never comparable.

`cuda_allocator`: most bytes that torch's CUDA allocator had handed out (this process, one device) since `start`.
`rss`:            peak resident set of the whole process since it began, interpreter and libraries included (CPU runs).
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PeakMemory:
    num_bytes: int
    method: str


def start(device: torch.device) -> None:
    """Resets the peak where the method allows it (CUDA); the resident peak of a process cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> PeakMemory:
    if device.type == "cuda":
        return PeakMemory(torch.cuda.max_memory_allocated(device), "cuda_allocator")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, KiB on Linux
    return PeakMemory(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "rss")


def is_out_of_memory(error: RuntimeError) -> bool:
    """cuBLAS and cuDNN report a failed workspace allocation as a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or "ALLOC_FAILED" in str(error)
