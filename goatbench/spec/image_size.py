"""The size of an image in pixels as a configuration gives it: one side for a square, else [height, width]."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator


def _checked(value: Any) -> int | tuple[int, int]:
    """A square given as [n, n] is n, so that equal runs have equal configurations."""
    given = value if isinstance(value, list | tuple) and len(value) == 2 else (value, value)
    if any(type(side) is not int or side < 1 for side in given):
        raise ValueError(f"{json.dumps(value)} is no size in pixels: write a side, such as 224, or [height,width], such as [288,320]")
    height, width = given
    return height if height == width else (height, width)


ImageSize = Annotated[int | tuple[int, int], BeforeValidator(_checked)]


def sides(size: ImageSize) -> tuple[int, int]:
    """(height, width)."""
    return (size, size) if isinstance(size, int) else size


def size_label(size: ImageSize) -> int | str:
    """As a record and a board name it: 28, '20x28' (height x width)."""
    return size if isinstance(size, int) else f"{size[0]}x{size[1]}"


def misfit(size: ImageSize, patch: int) -> str:
    """The first side that is no multiple of the patch: '27 px', 'height 21 of 21x28 px'; '' if both are."""
    if isinstance(size, int):
        return f"{size} px" if size % patch else ""
    odd = [f"{name} {side} of {size_label(size)} px" for name, side in zip(("height", "width"), size, strict=True) if side % patch]
    return odd[0] if odd else ""
