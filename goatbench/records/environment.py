"""The machine and the libraries behind a number, without anything that names a person or a host. Imports none of the libraries."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "torchvision", "timm", "lightning", "torchmetrics", "numpy", "flash-attn")


def describe_environment(threads: int, gpu_name: str | None = None, gpu_count: int = 0) -> dict[str, str | int | bool | None]:
    """`RunRecord.environment`. threads: compute threads a process uses; gpu_count: GPUs that are visible, used or not. The caller
    knows the GPUs, and adds how many devices its run uses; a package that is absent is None."""
    described: dict[str, str | int | bool | None] = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",  # no release, no node: those carry local names
        "cpu": cpu_name(),
        "cores": visible_cores(),
        "threads": threads,
        "gpu": gpu_name,
        "gpu_count": gpu_count,
    }
    return described | {package: package_version(package) for package in PACKAGES}


def package_version(package: str) -> str | None:
    """Installed version by the package's metadata, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def visible_cores() -> int:
    """Cores this process may run on (affinity, not the machine's count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The model name the operating system gives, None where it gives none."""
    if platform.system() == "Darwin":
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or None
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.split(":")[0].strip() == "model name"]
    return names[0] if names and names[0] else platform.processor() or None
