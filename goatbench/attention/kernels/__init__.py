"""Kernels: functions Problem -> (out, lse). `reference` is the specification; the others state objections."""

from .flash import Flash
from .flex import Flex
from .problem import Kernel, Problem
from .reference import Reference
from .sdpa import Sdpa
from .select import KERNELS, Auto, Recording, get_kernel

__all__ = ["KERNELS", "Auto", "Flash", "Flex", "Kernel", "Problem", "Recording", "Reference", "Sdpa", "get_kernel"]
