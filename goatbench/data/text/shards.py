"""Documents as tokens on disk: one file a split, written once, read as a memory map.

    CACHE/text/<key>/lock, index.json, train.tokens, validation.tokens, test.tokens

A token is a byte, BOS = 256 stands before each document; little-endian uint16. index.json comes last and says that all is whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...errors import UsageError
from .. import cache_files

BOS = 256
SPLITS = ("train", "validation", "test")
EVERY = 8  # of eight documents the first is for validation, the fifth for test
FORMAT = "bytes-bos256-every8-1"  # part of every key: other tokens or another split are other files


@dataclass(frozen=True)
class TokenShard:
    """The documents of one split. offsets: [documents + 1], where each document's BOS is, and the number of tokens."""

    path: str
    names: tuple[str, ...]
    offsets: tuple[int, ...]
    sha256: str

    @property
    def tokens(self) -> np.ndarray:
        """uint16 [number of tokens], a memory map that each process opens for itself."""
        return _opened(self.path)

    @property
    def num_tokens(self) -> int:
        return self.offsets[-1]


@lru_cache(maxsize=16)
def _opened(path: str) -> np.ndarray:
    return np.memmap(path, "<u2", mode="r")


def split_of(index: int) -> str:
    """By the document's place in the order of the source."""
    return {0: "validation", EVERY // 2: "test"}.get(index % EVERY, "train")


def load_shards(key: str, documents: Iterable[tuple[str, bytes]], cache_dir: Path | None = None) -> dict[str, TokenShard]:
    """split -> its shard. key: names the documents' content; documents (name, text) are read only if the cache has no such key.

    UsageError with fewer than EVERY documents, and for a cache folder that cannot be written.
    """
    folder = cache_files.make_folder(cache_files.cache_root(cache_dir) / "text" / f"{key}-{FORMAT}")
    found = _read(folder)
    if found is None:
        with cache_files.locked(folder):
            found = _read(folder) or _write(folder, documents)
    return found


def _read(folder: Path) -> dict[str, TokenShard] | None:
    """None unless all files are there in full length."""
    mark = cache_files.read_json(folder / "index.json")
    try:
        rows = {split: mark["splits"][split] for split in SPLITS}
        shards = {
            split: TokenShard(str(folder / f"{split}.tokens"), tuple(row["names"]), tuple(row["offsets"]), row["sha256"])
            for split, row in rows.items()
        }
        is_whole = all(Path(shard.path).stat().st_size == 2 * shard.num_tokens for shard in shards.values())
    except (TypeError, KeyError, IndexError, OSError):
        return None
    return shards if is_whole else None


def _write(folder: Path, documents: Iterable[tuple[str, bytes]]) -> dict[str, TokenShard]:
    """Under the lock."""
    cache_files.remove_unfinished(folder)
    (folder / "index.json").unlink(missing_ok=True)
    rows = {split: {"names": [], "offsets": [0]} for split in SPLITS}
    sums = {split: hashlib.sha256() for split in SPLITS}
    count = 0
    with ExitStack() as stack:
        opened = {split: stack.enter_context(cache_files.written(folder / f"{split}.tokens")) for split in SPLITS}
        for name, text in documents:
            split = split_of(count)
            content = encode(text).astype("<u2").tobytes()
            opened[split].write(content)
            sums[split].update(content)
            rows[split]["names"].append(name)
            rows[split]["offsets"].append(rows[split]["offsets"][-1] + len(text) + 1)
            count += 1
        if count < EVERY:
            raise UsageError(f"the text has {count} documents, and at least {EVERY} are needed: every {EVERY}th is held out; cut it up")
    splits = {split: {**row, "sha256": sums[split].hexdigest()} for split, row in rows.items()}
    cache_files.write_json(folder / "index.json", {"format": cache_files.FORMAT_VERSION, "tokens": FORMAT, "splits": splits})
    shards = _read(folder)
    assert shards is not None, folder
    return shards


def encode(text: bytes) -> np.ndarray:
    """uint16 [len(text) + 1]: BOS and the bytes."""
    tokens = np.empty(len(text) + 1, np.uint16)
    tokens[0], tokens[1:] = BOS, np.frombuffer(text, np.uint8)
    return tokens
