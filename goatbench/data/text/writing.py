"""Documents to the files of shards.py, in steps: what a killed process has finished is kept, and the next one goes on there.

    CACHE/text/<key>/progress.json      sizes and hashes of all files, documents read, the last of them; while there is no index.json

The files grow in place: nobody trusts them before index.json is there, which comes last. After every STEP_BYTES of text they are synced,
and progress.json, replaced atomically, says how far they are whole. Going on reads them once, to compare the hashes and to hash on.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...errors import UsageError
from ...progress import Progress
from ...records.canonical import digest
from .. import cache_files
from .readers import QUIET_SECONDS, Document
from .tokenizers import Tokenizer, check_lossless, id_dtype

SPLITS = ("train", "validation", "test")
EVERY = 8  # of eight documents the first is for validation, the fifth for test
LAYOUT = "every8-2"  # part of every key, as the tokenizer is: another split or other files are another folder
PARTS = ("tokens", "offsets", "lengths", "names")
INDEX, PROGRESS = "index.json", "progress.json"
BATCH_BYTES = 2**22  # of text that is encoded at once
STEP_BYTES = 2**26  # of text between two versions of progress.json: what a kill costs at most
_CHUNK = 2**20  # bytes that are hashed at once


def split_of(index: int) -> str:
    """By the document's place in the order of the source."""
    return {0: "validation", EVERY // 2: "test"}.get(index % EVERY, "train")


def write_files(folder: Path, documents: Iterable[Document], tokenizer: Tokenizer) -> None:
    """All files of the folder, with the bytes of a writing that nothing interrupted. Under the lock.

    UsageError as for shards.load_shards, and where documents that were written already are no longer those of the source.
    """
    cache_files.remove_unfinished(folder)
    cache_files.remove(folder / INDEX)
    with _kept_or_removed(folder), ExitStack() as stack:
        mark, hashes = _kept(folder) or _begun(folder)
        rest = _behind(folder, mark, documents) if mark["documents"] else documents
        writers = {
            split: _Writer(
                tokenizer.bos,
                *(_File(stack.enter_context((folder / f"{split}.{part}").open("ab")), *hashes[f"{split}.{part}"]) for part in PARTS),
                **mark["splits"][split],
            )
            for split in SPLITS
        }
        count, waiting = mark["documents"], 0
        for batch in _batches(rest):
            encoded = tokenizer.encode_batch([text for _, text in batch])
            for (name, text), ids in zip(batch, encoded, strict=True):
                check_lossless(tokenizer, name, text, ids)
                writers[split_of(count)].add(name, len(text), ids)
                count += 1
                waiting += len(text)
            if waiting >= STEP_BYTES:
                _keep(folder, writers, {"documents": count, "place": getattr(documents, "place", None), "last": _name_of(batch[-1])})
                waiting = 0
        if count < EVERY:
            raise UsageError(f"the text has {count} documents, and at least {EVERY} are needed: every {EVERY}th is held out; cut it up")
        for writer in writers.values():
            writer.sync()
        rows = {split: writer.row() for split, writer in writers.items()}
        cache_files.write_json(folder / INDEX, {"format": cache_files.FORMAT_VERSION, "layout": LAYOUT, "splits": rows})
    cache_files.remove(folder / PROGRESS)


@contextmanager
def _kept_or_removed(folder: Path) -> Iterator[None]:
    """Files that no JSON file vouches for do not stay."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        cure = "make room and give the same command, which goes on with what is kept, or set GOATBENCH_CACHE to another folder"
        raise UsageError(f"cannot write {folder}: {reason}; {cure}") from None
    finally:
        if not (folder / INDEX).exists() and not (folder / PROGRESS).exists():
            _remove_files(folder)


def _remove_files(folder: Path) -> None:
    cache_files.remove(folder / PROGRESS, *(folder / f"{split}.{part}" for split in SPLITS for part in PARTS))


def _begun(folder: Path) -> tuple[dict, dict[str, tuple[Any, int]]]:
    """As `_kept`, of empty files."""
    _remove_files(folder)
    mark = {"documents": 0, "splits": {split: {} for split in SPLITS}}
    return mark, {f"{split}.{part}": (hashlib.sha256(), 0) for split in SPLITS for part in PARTS}


def _keep(folder: Path, writers: dict[str, _Writer], read: dict[str, Any]) -> None:
    for writer in writers.values():
        writer.sync()
    mark = {
        "format": cache_files.FORMAT_VERSION,
        "key": folder.name,
        **read,
        "splits": {split: writer.counts() for split, writer in writers.items()},
        "files": {
            f"{split}.{part}": [file.size, file.sha256.hexdigest()]
            for split, writer in writers.items()
            for part, file in zip(PARTS, writer.files(), strict=True)
        },
    }
    cache_files.write_json(folder / PROGRESS, mark | {"digest": digest(mark)})


def _kept(folder: Path) -> tuple[dict, dict[str, tuple[Any, int]]] | None:
    """progress.json, and file -> (sha256 so far, size), each file cut to that size. None without it, or if a file is another one."""
    if not (folder / PROGRESS).exists():
        return None
    mark = cache_files.read_json(folder / PROGRESS) or {}
    hashes = {}
    if mark.pop("digest", None) == digest(mark) and mark.get("key") == folder.name:
        with Progress("comparing what is kept", sum(size for size, _ in mark["files"].values()), "byte", after=QUIET_SECONDS) as bar:
            hashes = {name: (_sha256(folder / name, size, bar), size) for name, (size, _) in mark["files"].items()}
    if not hashes or any(found is None or found.hexdigest() != mark["files"][name][1] for name, (found, _) in hashes.items()):
        print(f"what was kept of {folder.name} is damaged: it is made anew", file=sys.stderr, flush=True)
        return None
    for name, (_, size) in hashes.items():
        os.truncate(folder / name, size)
    print(f"going on behind document {mark['documents']:,} of {folder.name}, where another call stopped", file=sys.stderr, flush=True)
    return mark, hashes


def _sha256(path: Path, size: int, bar: Progress) -> Any:
    """Of the first `size` bytes, or of all if there are fewer; None if the file is absent."""
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while size and (chunk := file.read(min(size, _CHUNK))):
                whole.update(chunk)
                size -= len(chunk)
                bar.advance(len(chunk))
    except FileNotFoundError:
        return None
    return whole


def _behind(folder: Path, mark: dict, documents: Iterable[Document]) -> Iterable[Document]:
    """The documents that are still to be written. A source with `place` goes there at once, another one is read again up to there."""
    if hasattr(documents, "place"):
        documents.place = tuple(mark["place"])
    else:
        documents = islice(documents, mark["documents"] - 1, None)
    rest = iter(documents)
    if (last := next(rest, None)) is None or _name_of(last) != mark["last"]:
        _remove_files(folder)
        raise UsageError(f"the text has changed: its document {mark['documents']:,} is another one than before; the same call begins anew")
    return rest


def _name_of(document: Document) -> str:
    name, text = document
    return hashlib.sha256(json.dumps(name).encode() + b"\n" + text).hexdigest()


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
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
class _File:
    """sha256 and size: of all that is in it."""

    stream: BinaryIO
    sha256: Any
    size: int

    def write(self, content: bytes) -> None:
        self.stream.write(content)
        self.sha256.update(content)
        self.size += len(content)


@dataclass
class _Writer:
    """The files of one split while they grow."""

    bos: int
    tokens: _File
    offsets: _File
    lengths: _File
    names: _File
    num_documents: int = 0
    num_tokens: int = 0
    num_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.offsets.size:
            self.offsets.write(np.int64(0).astype("<i8").tobytes())

    def files(self) -> tuple[_File, ...]:
        """In the order of PARTS."""
        return self.tokens, self.offsets, self.lengths, self.names

    def add(self, name: str, num_bytes: int, ids: np.ndarray) -> None:
        """One document, BOS before its ids."""
        tokens = np.empty(len(ids) + 1, id_dtype(self.bos + 1))
        tokens[0], tokens[1:] = self.bos, ids
        self.num_documents += 1
        self.num_tokens += len(ids) + 1
        self.num_bytes += num_bytes
        self.tokens.write(tokens.tobytes())
        self.offsets.write(np.int64(self.num_tokens).astype("<i8").tobytes())
        self.lengths.write(np.int64(num_bytes).astype("<i8").tobytes())
        self.names.write(json.dumps(name).encode() + b"\n")

    def sync(self) -> None:
        for file in self.files():
            file.stream.flush()
            os.fsync(file.stream.fileno())

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("num_documents", "num_tokens", "num_bytes")}

    def row(self) -> dict[str, int | str]:
        return self.counts() | {"name_bytes": self.names.size, "sha256": self.tokens.sha256.hexdigest()}
