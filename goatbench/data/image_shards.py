"""Where the shards of an image data set lie, and which part each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
