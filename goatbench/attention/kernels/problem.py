"""What a kernel is asked, and what a kernel is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from ..log_prior import LogPrior
from ..mask import BoundMask


@dataclass(frozen=True, slots=True)
class Problem:
    """One attention call.

    q: [B, H, Q, D]; k: [B, G, K, D]; v: [B, G, K, V] (G divides H); prior: nats, unscaled; mask: bound to positions;
    scale: factor of the content logit; needs_lse: the caller reads the log-sum-exp (then row terms count).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    prior: LogPrior
    mask: BoundMask
    scale: float
    needs_lse: bool = False


class Kernel(Protocol):
    """Computes out [B, H, Q, V] and lse [B, H, Q] in nats (None unless asked for).

    `objections` lists why this kernel cannot do the problem exactly; the list is the error message. A query without any
    allowed key gets out = 0 and lse = -inf. The sink, where the prior has one, is part of out and of lse.
    """

    name: ClassVar[str]

    def objections(self, problem: Problem) -> tuple[str, ...]: ...

    def describe(self, problem: Problem) -> str:
        """The name that goes into records, with the backend that really runs: 'sdpa-flash', 'sdpa-math', 'reference'."""
        ...

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]: ...


@dataclass(slots=True)
class Wrapped:
    """A kernel that does something beside the work of another. Subclasses call `self.kernel(problem)`."""

    kernel: Kernel

    @property
    def name(self) -> str:
        return self.kernel.name

    def objections(self, problem: Problem) -> tuple[str, ...]:
        return self.kernel.objections(problem)

    def describe(self, problem: Problem) -> str:
        return self.kernel.describe(problem)
