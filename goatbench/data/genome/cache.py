"""Encoded contigs on disk: made once, by one process, and trusted only if they were finished.

    CACHE/genome/STEM-<hash of the path>/lock, current.json
    CACHE/genome/STEM-<hash of the path>/<stamp>/index.fai, index.json, <contig>.codes, <contig>.json

A file is written under a temporary name, synced and renamed. The JSON beside it comes last and is the mark that it is whole: what
a killed process leaves has no mark, and is made again. A changed FASTA has another stamp, hence another folder; old folders stay,
since runs may still be reading them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ...errors import UsageError
from ...records.files import replace_atomic
from .codes import ENCODE, letter_counts, n_runs
from .fasta import letters
from .genome import ContigFile

if TYPE_CHECKING:
    from pyfaidx import Fasta

FORMAT_VERSION = 1
CHUNK = 16 * 2**20
_ENDS = 2**20  # bytes of head and tail that the stamp covers
TEMPORARY = ".unfinished-"


def cache_root(cache_dir: Path | None = None) -> Path:
    """cache_dir, else $GOATBENCH_CACHE, else $XDG_CACHE_HOME/goatbench, else ~/.cache/goatbench."""
    if cache_dir is not None:
        return Path(cache_dir)
    if own := os.environ.get("GOATBENCH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goatbench"


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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that is preparing {folder.name}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_lock(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except OSError as error:
        raise UsageError(f"cache folder {path.parent}: {error.strerror}; set GOATBENCH_CACHE to a folder that can be written") from None


def remove_unfinished(folder: Path) -> None:
    """What killed processes left behind. Only under the lock."""
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)


def write_json(path: Path, content: dict) -> None:
    replace_atomic(path, json.dumps(content, indent=1).encode() + b"\n")


def read_json(path: Path) -> dict | None:
    """None if the file is absent, cut off, or no JSON object of this format."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT_VERSION else None


def paths_of(folder: Path, contig: str) -> tuple[Path, Path]:
    """(codes, JSON) of a contig. Names may hold any character: the readable part is for people, the hash tells them apart."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", contig)[:60]
    stem = f"{readable}-{hashlib.sha256(contig.encode()).hexdigest()[:8]}"
    return folder / f"{stem}.codes", folder / f"{stem}.json"


def read_contig(folder: Path, contig: str) -> ContigFile | None:
    """The finished encoding, or None if it is absent, unfinished or damaged."""
    codes, mark = paths_of(folder, contig)
    content = read_json(mark)
    try:
        file = ContigFile(contig, str(codes), content["length"], content["m5"], content["counts"], tuple(map(tuple, content["n_runs"])))
        return file if content["name"] == contig and codes.stat().st_size == file.length else None
    except (TypeError, KeyError, OSError):
        return None


def encode_contig(folder: Path, fasta: Fasta, contig: str, advance: Callable[[int], None]) -> ContigFile:
    """Encode a contig in chunks, write its codes and then its mark. advance(n) is told of every n bases. Only under the lock."""
    codes, mark = paths_of(folder, contig)
    mark.unlink(missing_ok=True)
    length = len(fasta[contig])
    md5, counts, runs = hashlib.md5(usedforsecurity=False), letter_counts(b""), [np.zeros((0, 2), np.int64)]
    with written(codes) as file:
        for start in range(0, length, CHUNK):
            chunk = letters(fasta, contig, start, min(start + CHUNK, length))
            md5.update(chunk.upper())
            counts = {name: counts[name] + found for name, found in letter_counts(chunk).items()}
            encoded = ENCODE[np.frombuffer(chunk, np.uint8)]
            runs.append(n_runs(encoded) + start)
            file.write(encoded)
            advance(len(chunk))
    file = ContigFile(contig, str(codes), length, md5.hexdigest(), counts, _joined(np.concatenate(runs)))
    write_json(mark, {"format": FORMAT_VERSION, "alphabet": "A0 C1 G2 T3 N4, +8 soft-masked", **asdict(file)})
    return file


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name whole and synced, or not at all."""
    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; make room or set GOATBENCH_CACHE to another folder") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _joined(runs: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Runs that a chunk border cut in two, made one again."""
    first = np.ones(len(runs), bool)
    first[1:] = runs[1:, 0] != runs[:-1, 1]
    last = np.append(first[1:], True)[: len(runs)]
    return tuple(zip(runs[first, 0].tolist(), runs[last, 1].tolist(), strict=True))
