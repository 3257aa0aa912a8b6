"""RoPE beyond its training length: the frequencies slowed down, for weights that were trained with the plain ones (or with these).

D head dim, P = D / 2 planes, plane p turning by base^(-2p/D) per token; s the factor, length / training length; L training length.
Each scaling is a multiplier of the frequencies, [P] float64, and a temperature of the logits. At s = 1 all are the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ladder:
    """The frequencies that are scaled: base^(-p/P) for p < P, trained on `train_length` tokens."""

    base: float
    num_planes: int
    train_length: int


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Unscaled RoPE, the null object. factor: s, at least 1."""

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"option factor = {self.factor}: a RoPE scaling needs length / training length, 1 or more")

    def multipliers(self, ladder: Ladder, last: Tensor) -> Tensor:
        """[P] or [B|1, 1, P] float64. last: [B|1] float64, the last coordinate of each row (only dynamic NTK reads it)."""
        return torch.ones(ladder.num_planes, dtype=torch.float64, device=last.device)

    @property
    def temperature(self) -> float:
        """Factor of the content logits."""
        return 1.0

    @property
    def reads_length(self) -> bool:
        """Whether the multipliers depend on `last`, so that shifting all tokens changes more than their phases."""
        return False


@dataclass(frozen=True, slots=True)
class PositionInterpolation(RopeScaling):
    """PI (Chen et al., arXiv 2306.15595): positions divided by s."""

    def multipliers(self, ladder: Ladder, last: Tensor) -> Tensor:
        return torch.full((ladder.num_planes,), 1 / self.factor, dtype=torch.float64, device=last.device)


@dataclass(frozen=True, slots=True)
class NtkAware(RopeScaling):
    """NTK-aware (bloc97; arXiv 2309.00071, section 3.1): base times s^(D/(D-2)). The first plane keeps its frequency, the last one
    is divided by s."""

    def multipliers(self, ladder: Ladder, last: Tensor) -> Tensor:
        return _ntk(ladder, torch.tensor(self.factor, dtype=torch.float64, device=last.device))


@dataclass(frozen=True, slots=True)
class DynamicNtk(RopeScaling):
    """Dynamic NTK (emozilla; arXiv 2309.00071, section 3.3): NTK-aware with s*l/L - (s - 1) for its factor, l the length so far, and
    unscaled up to L.

    At s = 1 it is NTK-aware with l/L: a pass over a whole window of that length gives the same numbers. It differs where l grows,
    token by token: each step turns all cached keys (they are kept unrotated) by the frequencies of its own length. So it is not
    causal: what a token sees depends on how much is read at once.
    """

    def multipliers(self, ladder: Ladder, last: Tensor) -> Tensor:
        ratio = (last + 1) / ladder.train_length
        return _ntk(ladder, (self.factor * ratio - (self.factor - 1)).clamp_min(1)[:, None, None])

    @property
    def reads_length(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Yarn(RopeScaling):
    """YaRN (Peng et al., arXiv 2309.00071): planes that turn more than 32 times in L tokens keep their frequency, those that turn
    less than once are divided by s, between them a ramp over the plane index; q and k times 0.1 ln(s) + 1.

    As the released code has it, whose ramp is linear in the index and ends at whole planes; the paper's is linear in the turns.
    """

    MANY_TURNS, FEW_TURNS = 32, 1  # beta and alpha for LLaMA, section 3.2

    def multipliers(self, ladder: Ladder, last: Tensor) -> Tensor:
        if ladder.base <= 1:
            raise ValueError(f"option base = {ladder.base}: YaRN needs a base above 1, so that planes slow down one by one")

        def plane_that_turns(times: float) -> float:
            return ladder.num_planes * math.log(ladder.train_length / (2 * math.pi * times)) / math.log(ladder.base)

        first, end = self.ends(plane_that_turns(self.MANY_TURNS), plane_that_turns(self.FEW_TURNS))
        first, end = max(first, 0), min(end, 2 * ladder.num_planes - 1)  # D - 1, as released
        planes = torch.arange(ladder.num_planes, dtype=torch.float64, device=last.device)
        slowed = ((planes - first) / (end - first if end != first else 1e-3)).clamp(0, 1)
        return slowed / self.factor + (1 - slowed)

    def ends(self, first: float, last: float) -> tuple[float, float]:
        """The ends of the ramp: whole planes around it."""
        return math.floor(first), math.ceil(last)

    @property
    def temperature(self) -> float:
        return (0.1 * math.log(self.factor) + 1) ** 2


@dataclass(frozen=True, slots=True)
class YarnGptOss(Yarn):
    """YaRN as in gpt-oss (arXiv 2508.10925, released code): the ramp ends between planes."""

    def ends(self, first: float, last: float) -> tuple[float, float]:
        return first, last


SCALINGS: dict[str, type[RopeScaling]] = {
    "none": RopeScaling,
    "pi": PositionInterpolation,
    "ntk": NtkAware,
    "ntk_dynamic": DynamicNtk,
    "yarn": Yarn,
    "yarn_gpt_oss": YarnGptOss,
}
LENGTH_VARIANTS = ("pi", "ntk", "yarn")  # what a model trained with plain RoPE is evaluated with; ntk_dynamic would repeat ntk


def rope_scaling(name: str, factor: float) -> RopeScaling:
    """ValueError for an unknown name or a factor below 1."""
    if name not in SCALINGS:
        raise ValueError(f"option scaling = {name!r}: RoPE has the scalings {', '.join(SCALINGS)}")
    return SCALINGS[name](factor)


def _ntk(ladder: Ladder, factor: Tensor) -> Tensor:
    """(base * factor^(D/(D-2)))^(-2p/D) over base^(-2p/D): factor^(-p/(P-1)). One plane alone is the first and keeps its frequency."""
    planes = torch.arange(ladder.num_planes, dtype=torch.float64, device=factor.device)
    return factor ** (-planes / max(ladder.num_planes - 1, 1))
