"""Which task a run has, and where it evaluates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..records.record import NAME_PATTERN
from .strict import Strict


class VisionTaskSpec(Strict):
    """resolutions: nominal resolutions to evaluate, base first or not; base is always measured."""

    name: str = Field(pattern=NAME_PATTERN)
    resolutions: list[int] = []
    split: Literal["test", "validation"] = "test"


class SequenceTaskSpec(Strict):
    """multiples: lengths to evaluate, in training lengths (genome_length, lm_length, needle)."""

    name: str = Field(pattern=NAME_PATTERN)
    multiples: list[Annotated[int, Field(gt=0)]] = []
    split: Literal["test", "validation"] = "test"
