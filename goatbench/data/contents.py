"""Contents of files that are too many to hash at every start: noted by the first `data check`, compared by each later one."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..progress import Progress
from .cache_files import cache_root, locked, make_folder, remove_unfinished, written

DIGEST_BYTES = 16
THREADS = 8  # files on a network lie far: several are asked for at once
SAVE_EVERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Contents:
    """whole: hex hash of all contents in order, equal wherever the files are. noted: the file of the cache that they were compared with,
    or that this call wrote (is_new). changed: the files whose contents are others."""

    whole: str
    noted: Path
    is_new: bool
    changed: list[Path]


def compare_contents(files: Sequence[Path]) -> Contents:
    """Reads all files. Those that are called alike below their common folder, wherever that is, are taken for copies of the same data.

    A call that is stopped while it notes is gone on with by the next. UsageError for a file that cannot be read.
    """
    names = [os.path.relpath(path, os.path.commonpath(files)) for path in files]
    key = hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
    path = make_folder(cache_root() / "images" / key[:24]) / "contents.npy"
    with locked(path.parent):
        remove_unfinished(path.parent)
        noted = _read(path, len(files))
        if len(noted) != len(files):
            digests = _digests(files, noted, lambda found: _write(path, found))
            return Contents(_hex(digests), path, True, [])
    digests = _digests(files)
    changed = np.flatnonzero((digests != noted).any(axis=1))
    return Contents(_hex(digests), path, False, [files[k] for k in changed])


def _digests(files: Sequence[Path], known: np.ndarray | None = None, save: Callable[[np.ndarray], None] | None = None) -> np.ndarray:
    """uint8 [n, 16]. known: those of the first files. save: called with all so far, now and then and at the end, however that comes."""
    found = bytearray() if known is None else bytearray(known.tobytes())
    saved = time.monotonic()
    left = files[len(found) // DIGEST_BYTES :]
    with ThreadPoolExecutor(THREADS) as pool, Progress("reading contents", len(left), "file", after=2.0) as progress:
        try:
            for digest in pool.map(_digest, left):
                found += digest
                progress.advance(1)
                if save and time.monotonic() - saved > SAVE_EVERY_SECONDS:
                    save(_rows(found))
                    saved = time.monotonic()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if save and found:
                save(_rows(found))
    return _rows(found)


def _rows(digests: bytearray) -> np.ndarray:
    return np.frombuffer(bytes(digests), np.uint8).reshape(-1, DIGEST_BYTES)


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).digest()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; restore it, and give the same command again") from None


def _hex(digests: np.ndarray) -> str:
    return hashlib.blake2b(digests.tobytes(), digest_size=DIGEST_BYTES).hexdigest()


def _read(path: Path, most: int) -> np.ndarray:
    """What was noted, which may be of the first files alone; nothing if the file is absent or damaged."""
    try:
        noted = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        noted = np.empty(0)
    is_whole = noted.dtype == np.uint8 and noted.ndim == 2 and noted.shape[1] == DIGEST_BYTES and len(noted) <= most
    return noted if is_whole else np.empty((0, DIGEST_BYTES), np.uint8)


def _write(path: Path, digests: np.ndarray) -> None:
    with written(path) as file:
        np.save(file, digests)
