"""Which kernel runs: by name, or the first that can do the problem exactly."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .flash import Flash
from .flex import Flex
from .problem import Kernel, Problem, Wrapped
from .reference import Reference
from .sdpa import Sdpa


@dataclass(frozen=True, slots=True)
class Auto:
    """The first kernel without objection; never the dense reference above its size limit: then it raises.

    candidates: tried in order. SDPA is the fastest where it applies; flex serves biases that are too large to write out.
    """

    name: ClassVar[str] = "auto"
    candidates: tuple[Kernel, ...] = (Sdpa(), Flex(), Flash(), Reference())

    def objections(self, problem: Problem) -> tuple[str, ...]:
        found: list[str] = []
        for kernel in self.candidates:
            objections = kernel.objections(problem)
            if not objections:
                return ()
            found.append(f"{kernel.name}: {'; '.join(objections)}")
        return tuple(found)

    def describe(self, problem: Problem) -> str:
        return self._choose(problem).describe(problem)

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        return self._choose(problem)(problem)

    def _choose(self, problem: Problem) -> Kernel:
        for kernel in self.candidates:
            if not kernel.objections(problem):
                return kernel
        raise ValueError("no attention kernel can do this exactly. " + " | ".join(self.objections(problem)))


@dataclass(slots=True)
class Recording(Wrapped):
    """A kernel that notes in `used` what really ran (`describe`), for the record of a run; ValueError if it objects.

    The description is made once for each kind of problem (shapes, dtypes, what the prior holds), so that training does not pay
    for it. Inside torch.compile nothing is noted: run one batch eagerly.
    """

    used: set[str] = field(default_factory=set)
    _seen: set[tuple] = field(default_factory=set, repr=False)

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        if not torch.compiler.is_compiling():
            kind = _kind(problem)
            if kind not in self._seen:
                require(self.kernel, problem)
                self._seen.add(kind)
                self.used.add(self.kernel.describe(problem))
        return self.kernel(problem)


KERNELS: dict[str, Callable[[], Kernel]] = {"auto": Auto, "sdpa": Sdpa, "flash": Flash, "flex": Flex, "reference": Reference}


def get_kernel(name: str) -> Kernel:
    """The kernel of that name with its default limits; ValueError with the nearest name if there is none."""
    if name not in KERNELS:
        near = difflib.get_close_matches(name, KERNELS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown attention kernel {name!r}: {hint}known: {', '.join(sorted(KERNELS))}")
    return KERNELS[name]()


def require(kernel: Kernel, problem: Problem) -> None:
    """Raise ValueError with the kernel's objections, if it has any."""
    found = kernel.objections(problem)
    if found:
        raise ValueError(f"attention kernel {kernel.name!r} cannot do this exactly: {'; '.join(found)}")


def _kind(problem: Problem) -> tuple:
    prior, mask = problem.prior, problem.mask
    return (
        problem.q.shape,
        problem.k.shape,
        problem.v.shape[-1],
        problem.q.dtype,
        torch.is_grad_enabled(),
        prior.num_lanes,
        prior.k_term is None,
        len(prior.biases),
        prior.sink is None,
        problem.needs_lse,
        mask.is_full,
        mask.is_square_causal,
    )
