"""Documents as tokens on disk: a few files a split, written once, read as memory maps.

    CACHE/text/<key>/lock, index.json, and for each split
        train.tokens    little-endian uint16, or uint32 from 65,536 ids on: BOS before each document
        train.offsets   int64 [documents + 1]: where each document's BOS is, and the number of tokens
        train.lengths   int64 [documents]: bytes of text
        train.names     a JSON string a line

index.json comes last and says that all is whole. Memory does not grow with the number of documents. How they are written: writing.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from .. import cache_files
from .tokenizers import BOS as BOS
from .tokenizers import BYTES, Tokenizer, id_dtype
from .writing import INDEX, LAYOUT, PARTS, SPLITS, write_files
from .writing import split_of as split_of


@dataclass(frozen=True)
class TokenShard:
    """The documents of one split. unit: what a token is called, 'bytes' or 'tokens'. The arrays are memory maps that each process
    opens for itself."""

    folder: str
    split: str
    num_documents: int
    num_tokens: int
    num_bytes: int
    name_bytes: int
    sha256: str  # of the tokens
    bos: int = BOS
    unit: str = BYTES.unit

    @property
    def path(self) -> str:
        return self.path_of("tokens")

    def path_of(self, part: str) -> str:
        return f"{self.folder}/{self.split}.{part}"

    @property
    def tokens(self) -> np.ndarray:
        """uint16 or uint32 [num_tokens]."""
        return _opened(self.path, id_dtype(self.bos + 1))

    @property
    def offsets(self) -> np.ndarray:
        """int64 [num_documents + 1], where each document's BOS is, and the number of tokens."""
        return _opened(self.path_of("offsets"), "<i8")

    @property
    def lengths(self) -> np.ndarray:
        """int64 [num_documents], bytes of text."""
        return _opened(self.path_of("lengths"), "<i8")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the documents, in memory: for small shards and messages."""
        with open(self.path_of("names"), "rb") as lines:
            return tuple(map(json.loads, lines))

    def is_whole(self) -> bool:
        """Whether all files have their full length. OSError if one is absent."""
        width = np.dtype(id_dtype(self.bos + 1)).itemsize
        sizes = (width * self.num_tokens, 8 * (self.num_documents + 1), 8 * self.num_documents, self.name_bytes)
        return all(Path(self.path_of(part)).stat().st_size == size for part, size in zip(PARTS, sizes, strict=True))


@lru_cache(maxsize=16)
def _opened(path: str, dtype: str) -> np.ndarray:
    return np.memmap(path, dtype, mode="r")


def load_shards(
    key: str, documents: Iterable[tuple[str, bytes]], cache_dir: Path | None = None, tokenizer: Tokenizer = BYTES
) -> dict[str, TokenShard]:
    """split -> its shard. key: names the documents' content; documents (name, text) are read only if the cache has no such key, and
    from where an interrupted call had come to.

    UsageError with fewer than eight documents, for a document that its tokens do not give back, and for a cache folder that cannot
    be written.
    """
    folder = cache_files.make_folder(cache_files.cache_root(cache_dir) / "text" / f"{key}-{tokenizer.fingerprint}-{LAYOUT}")
    found = _read(folder, tokenizer)
    if found is None:
        with cache_files.locked(folder):
            found = _read(folder, tokenizer)
            if found is None:
                write_files(folder, documents, tokenizer)
                found = _read(folder, tokenizer)
                assert found is not None, folder
    return found


def _read(folder: Path, tokenizer: Tokenizer) -> dict[str, TokenShard] | None:
    """None unless all files are there in full length."""
    mark = cache_files.read_json(folder / INDEX)
    try:
        rows = {split: {**mark["splits"][split], "bos": tokenizer.bos, "unit": tokenizer.unit} for split in SPLITS}
        shards = {split: TokenShard(str(folder), split, **row) for split, row in rows.items()}
        return shards if all(shard.is_whole() for shard in shards.values()) else None
    except (TypeError, KeyError, IndexError, OSError):
        return None
