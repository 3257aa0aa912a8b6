"""Where the shards of an image data set lie, and which part each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from pathlib import Path

from ..errors import UsageError
from .split import FileImages


class ShardImages(FileImages):
    """Shards in `root`/data if that is there, else in `root`. parts: part -> patterns that is_of(name, part) decides by; UsageError with
    them where a part has no file."""

    def __init__(self, root: str, suffix: str, parts: dict[str, Iterable[str]], is_of: Callable[[str, str], bool]) -> None:
        self._root = Path(root, "data") if Path(root, "data").is_dir() else Path(root)
        names = sorted(path.name for path in self._root.glob(f"*{suffix}"))
        self._shards = {part: tuple(name for name in names if is_of(name, part)) for part in parts}
        for part, found in self._shards.items():
            if not found:
                raise UsageError(f"{self._root}: no {' or '.join(parts[part])}")

    @property
    def files(self) -> list[Path]:
        return [self._root / shard for shards in self._shards.values() for shard in shards]

    def _sizes(self, part: str) -> bytes:
        return "".join(f"{part}\0{shard}\0{(self._root / shard).stat().st_size}\n" for shard in self._shards[part]).encode()


def check_numbering(folder: Path, train: Set[int], val: Set[int]) -> None:
    """Of the class indices that occur. UsageError where validation has the first ones alone, as in a subset that counts its own classes:
    ImageNet-A's 200 classes are others in ImageNet, and each image would be compared with a wrong one."""
    if len(val) < len(train) and max(val) + 1 == len(val):
        raise UsageError(
            f"{folder}: {len(train)} classes are in the training shards, classes 0 to {max(val)} alone in those of validation: a subset "
            "that counts its own classes would be scored as others; give it the training shards' indices, or images of every class"
        )
