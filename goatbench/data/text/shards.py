"""Documents as tokens on disk: a few files a split, written once, read as memory maps.

    CACHE/text/<key>/lock, index.json, and for each split
        train.tokens    little-endian uint16, or uint32 from 65,536 ids on: BOS before each document
        train.offsets   int64 [documents + 1]: where each document's BOS is, and the number of tokens
        train.lengths   int64 [documents]: bytes of text
        train.names     a JSON string a line

index.json comes last and says that all is whole. Memory does not grow with the number of documents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...errors import UsageError
from .. import cache_files
from .tokenizers import BOS as BOS
from .tokenizers import BYTES, Tokenizer, check_lossless, id_dtype

SPLITS = ("train", "validation", "test")
EVERY = 8  # of eight documents the first is for validation, the fifth for test
LAYOUT = "every8-2"  # part of every key, as the tokenizer is: another split or other files are another folder
PARTS = ("tokens", "offsets", "lengths", "names")
BATCH_BYTES = 2**22  # of text that is encoded at once


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


def split_of(index: int) -> str:
    """By the document's place in the order of the source."""
    return {0: "validation", EVERY // 2: "test"}.get(index % EVERY, "train")


def load_shards(
    key: str, documents: Iterable[tuple[str, bytes]], cache_dir: Path | None = None, tokenizer: Tokenizer = BYTES
) -> dict[str, TokenShard]:
    """split -> its shard. key: names the documents' content; documents (name, text) are read only if the cache has no such key.

    UsageError with fewer than EVERY documents, for a document that its tokens do not give back, and for a cache folder that cannot
    be written.
    """
    folder = cache_files.make_folder(cache_files.cache_root(cache_dir) / "text" / f"{key}-{tokenizer.fingerprint}-{LAYOUT}")
    found = _read(folder, tokenizer)
    if found is None:
        with cache_files.locked(folder):
            found = _read(folder, tokenizer) or _write(folder, documents, tokenizer)
    return found


def _read(folder: Path, tokenizer: Tokenizer) -> dict[str, TokenShard] | None:
    """None unless all files are there in full length."""
    mark = cache_files.read_json(folder / "index.json")
    try:
        rows = {split: {**mark["splits"][split], "bos": tokenizer.bos, "unit": tokenizer.unit} for split in SPLITS}
        shards = {split: TokenShard(str(folder), split, **row) for split, row in rows.items()}
        return shards if all(shard.is_whole() for shard in shards.values()) else None
    except (TypeError, KeyError, IndexError, OSError):
        return None


def _write(folder: Path, documents: Iterable[tuple[str, bytes]], tokenizer: Tokenizer) -> dict[str, TokenShard]:
    """Under the lock."""
    cache_files.remove_unfinished(folder)
    (folder / "index.json").unlink(missing_ok=True)
    count = 0
    with ExitStack() as stack:
        writers = {
            split: _Writer(tokenizer.bos, *(stack.enter_context(cache_files.written(folder / f"{split}.{part}")) for part in PARTS))
            for split in SPLITS
        }
        for batch in _batches(documents):
            encoded = tokenizer.encode_batch([text for _, text in batch])
            for (name, text), ids in zip(batch, encoded, strict=True):
                check_lossless(tokenizer, name, text, ids)
                writers[split_of(count)].add(name, len(text), ids)
                count += 1
        if count < EVERY:
            raise UsageError(f"the text has {count} documents, and at least {EVERY} are needed: every {EVERY}th is held out; cut it up")
    splits = {split: writer.row() for split, writer in writers.items()}
    cache_files.write_json(folder / "index.json", {"format": cache_files.FORMAT_VERSION, "layout": LAYOUT, "splits": splits})
    shards = _read(folder, tokenizer)
    assert shards is not None, folder
    return shards


def _batches(documents: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document[1])
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass
class _Writer:
    """The files of one split while they grow."""

    bos: int
    tokens: BinaryIO
    offsets: BinaryIO
    lengths: BinaryIO
    names: BinaryIO
    num_documents: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    name_bytes: int = 0
    sha256: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.offsets.write(np.int64(0).astype("<i8").tobytes())

    def add(self, name: str, num_bytes: int, ids: np.ndarray) -> None:
        """One document, BOS before its ids."""
        tokens = np.empty(len(ids) + 1, id_dtype(self.bos + 1))
        tokens[0], tokens[1:] = self.bos, ids
        content = tokens.tobytes()
        line = json.dumps(name).encode() + b"\n"
        self.sha256.update(content)
        self.num_documents += 1
        self.num_tokens += len(ids) + 1
        self.num_bytes += num_bytes
        self.name_bytes += len(line)
        self.tokens.write(content)
        self.offsets.write(np.int64(self.num_tokens).astype("<i8").tobytes())
        self.lengths.write(np.int64(num_bytes).astype("<i8").tobytes())
        self.names.write(line)

    def row(self) -> dict[str, int | str]:
        names = ("num_documents", "num_tokens", "num_bytes", "name_bytes")
        return {name: getattr(self, name) for name in names} | {"sha256": self.sha256.hexdigest()}
