"""Which mechanism a run has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ..records.record import NAME_PATTERN
from .strict import Strict

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
NAMES_PATTERN = rf"{NAME_PATTERN[:-1]}(\+{NAME_PATTERN[1:-1]})*$"


class AttentionSpec(Strict):
    """options go to the scheme's constructor, options_1d / options_2d on top of them by the number of axes.
    axes: for how many axes of position the mechanism is defined (1 text and genome, 2 images).
    position: name of the position scheme, or several joined by '+'; None: the row's own name. gate: of attention's output.
    inner: registry name of the inner attention; inner_options go to its constructor."""

    name: str = Field(pattern=NAME_PATTERN)
    position: str | None = Field(default=None, pattern=NAMES_PATTERN)
    gate: Literal["none", "headwise", "elementwise"] = "none"
    inner: str = Field(default="softmax", pattern=NAME_PATTERN)
    inner_options: dict[str, Any] = {}
    axes: list[Literal[1, 2]] = Field(default=[1, 2], min_length=1)
    lanes: Literal["carve", "append"] = "carve"
    options: dict[str, Any] = {}
    options_1d: dict[str, Any] = {}
    options_2d: dict[str, Any] = {}
    tuned: dict[Name, dict[Name, float]] = {}  # domain -> {scale: learning rate}, from the committed sweep

    @field_validator("options", "options_1d", "options_2d", "inner_options")
    @classmethod
    def _names_no_path(cls, options: dict[str, Any]) -> dict[str, Any]:
        if paths := [text for text in _texts(options) if "/" in text or "\\" in text]:
            raise ValueError(f"'{paths[0]}' looks like a path; options are part of a record, which holds none")
        return options

    @property
    def schemes(self) -> list[str]:
        """Registry names of the position schemes that the row takes."""
        return (self.position or self.name).split("+")


def _texts(value: Any) -> list[str]:
    """The texts in a JSON value, names of keys too."""
    if isinstance(value, str):
        return [value]
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]
