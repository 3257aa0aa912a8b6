"""Where the shards of an image data set lie, and which part each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from pathlib import Path

from ..errors import UsageError


def find_shards(
    root: str, suffix: str, parts: dict[str, Iterable[str]], is_of: Callable[[str, str], bool]
) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """(`root`/data if it is there, else `root`; part -> file names in order). parts: part -> patterns that is_of(name, part) decides by;
    UsageError with them where a part has no file."""
    folder = Path(root, "data") if Path(root, "data").is_dir() else Path(root)
    names = sorted(path.name for path in folder.glob(f"*{suffix}"))
    shards = {part: tuple(name for name in names if is_of(name, part)) for part in parts}
    for part, found in shards.items():
        if not found:
            raise UsageError(f"{folder}: no {' or '.join(parts[part])}")
    return folder, shards


def check_numbering(folder: Path, train: Set[int], val: Set[int]) -> None:
    """Of the class indices that occur. UsageError where validation has the first ones alone, as in a subset that counts its own classes:
    ImageNet-A's 200 classes are others in ImageNet, and each image would be compared with a wrong one."""
    if len(val) < len(train) and max(val) + 1 == len(val):
        raise UsageError(
            f"{folder}: {len(train)} classes are in the training shards, classes 0 to {max(val)} alone in those of validation: a subset "
            "that counts its own classes would be scored as others; give it the training shards' indices, or images of every class"
        )
