"""Which mechanism a run has."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ..records.record import NAME_PATTERN
from .strict import Strict


class AttentionSpec(Strict):
    """options go to the scheme's constructor, options_1d / options_2d on top of them by the number of axes.
    axes: for how many axes of position the mechanism is defined (1 text and genome, 2 images).
    position: name of the position scheme, or several joined by '+'; None: the row's own name. gate: of attention's output.
    inner: registry name of the inner attention; inner_options go to its constructor."""

    name: str = Field(pattern=NAME_PATTERN)
    position: str | None = Field(default=None, min_length=1)
    gate: Literal["none", "headwise", "elementwise"] = "none"
    inner: str = Field(default="softmax", pattern=NAME_PATTERN)
    inner_options: dict[str, Any] = {}
    axes: list[Literal[1, 2]] = Field(default=[1, 2], min_length=1)
    lanes: Literal["carve", "append"] = "carve"
    options: dict[str, Any] = {}
    options_1d: dict[str, Any] = {}
    options_2d: dict[str, Any] = {}
    tuned: dict[str, dict[str, float]] = {}  # domain -> {scale: learning rate}, from the committed sweep

    @property
    def schemes(self) -> list[str]:
        """Registry names of the position schemes that the row takes."""
        return (self.position or self.name).split("+")
