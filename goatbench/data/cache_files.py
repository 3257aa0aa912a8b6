"""Files in the cache folder: made once, by one process, under a temporary name until they are whole."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError
from ..records.files import lock, replacing

FORMAT_VERSION = 1
TEMPORARY = ".unfinished-"
_ENDS = 2**20  # bytes of head and tail that the stamp covers


def cache_root(cache_dir: Path | None = None) -> Path:
    """cache_dir, else $GOATBENCH_CACHE, else $XDG_CACHE_HOME/goatbench, else ~/.cache/goatbench."""
    if cache_dir is not None:
        return Path(cache_dir)
    if own := os.environ.get("GOATBENCH_CACHE"):
        return Path(os.path.expanduser(own))
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "goatbench"


def make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cache folder {folder}: {error.strerror}; set GOATBENCH_CACHE to a folder that can be written") from None
    return folder


def stamp(path: Path) -> str:
    """Hex hash of size, modification time in ns, and the first and last MiB: quick to check again at every start."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        whole = hashlib.sha256(f"{FORMAT_VERSION} {status.st_size} {status.st_mtime_ns}\n".encode())
        whole.update(file.read(_ENDS))
        file.seek(max(0, status.st_size - _ENDS))
        whole.update(file.read(_ENDS))
    return whole.hexdigest()[:24]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time; the system releases the lock when its holder dies."""
    with _open_lock(folder / "lock") as file:
        if not lock(file, wait=False):
            print(f"waiting for another process that is preparing {folder.name}", file=sys.stderr, flush=True)
            lock(file)
        yield


def _open_lock(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except OSError as error:
        raise UsageError(f"cache folder {path.parent}: {error.strerror}; set GOATBENCH_CACHE to a folder that can be written") from None


def remove_unfinished(folder: Path) -> None:
    """What killed processes left behind. Only under the lock."""
    remove(*folder.glob(f"{TEMPORARY}*"))


def remove(*paths: Path) -> None:
    """Files of the cache that are there no longer. UsageError if the folder cannot be written."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot remove {path}: {error.strerror}; set GOATBENCH_CACHE to a folder that can be written") from None


def write_json(path: Path, content: dict) -> None:
    with written(path) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")


def read_json(path: Path) -> dict | None:
    """None if the file is absent, cut off, or no JSON object of this format."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT_VERSION else None


def written(path: Path) -> AbstractContextManager[BinaryIO]:
    """A file that appears under its name whole and synced, or not at all."""
    return replacing(path, prefix=TEMPORARY, advice="nothing was left there: make room or set GOATBENCH_CACHE to another folder")
