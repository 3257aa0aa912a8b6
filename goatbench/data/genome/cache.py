"""Encoded contigs on disk: made once, by one process, and trusted only if they were finished.

    CACHE/genome/STEM-<hash of the path>/lock, current.json
    CACHE/genome/STEM-<hash of the path>/<stamp>/index.fai, index.json, <contig>.codes, <contig>.json

A file is written under a temporary name, synced and renamed. The JSON beside it comes last and is the mark that it is whole: what
a killed process leaves has no mark, and is made again. A changed FASTA has another stamp, hence another folder; old folders stay,
since runs may still be reading them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..cache_files import FORMAT_VERSION, read_json, remove, write_json, written
from .codes import ENCODE, letter_counts, n_runs, odd_letters
from .fasta import check_letters, letters
from .genome import ContigFile

if TYPE_CHECKING:
    from pyfaidx import Fasta

CHUNK = 16 * 2**20


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
        length, counts, runs = content["length"], content["counts"], np.array(content["n_runs"]).reshape(-1, 2)
        whole = content["name"] == contig and isinstance(content["m5"], str) and codes.stat().st_size == length
        if not whole or not _consistent(runs, {name: counts[name] for name in letter_counts(b"")}, length):
            return None
        return ContigFile(contig, str(codes), length, content["m5"], counts, tuple(map(tuple, runs.tolist())))
    except (TypeError, KeyError, ValueError, OverflowError, OSError):
        return None


def _consistent(runs: np.ndarray, counts: dict[str, int], length: int) -> bool:
    """Whether the letters add up to the length, and the runs of N are in order, apart and as long as there are N."""
    letters = {name: count for name, count in counts.items() if name != "masked"}
    if not all(type(number) is int and 0 <= number <= length for number in (length, *counts.values())) or sum(letters.values()) != length:
        return False
    if not len(runs):
        return letters["N"] + letters["other"] == 0
    edges = np.concatenate(([-1], runs.ravel(), [length + 1]))
    ordered = runs.dtype == np.int64 and bool((np.diff(edges) > 0).all())
    return ordered and int((runs[:, 1] - runs[:, 0]).sum()) == letters["N"] + letters["other"]


def encode_contig(folder: Path, fasta: Fasta, contig: str, advance: Callable[[int], None]) -> ContigFile:
    """Encode a contig in chunks, write its codes and then its mark. advance(n) is told of every n bases. Only under the lock.

    UsageError if it is no DNA.
    """
    codes, mark = paths_of(folder, contig)
    remove(mark)
    length = len(fasta[contig])
    md5, counts, runs = hashlib.md5(usedforsecurity=False), letter_counts(b""), [np.zeros((0, 2), np.int64)]
    odd = b""
    with written(codes) as file:
        for start in range(0, length, CHUNK):
            chunk = letters(fasta, contig, start, min(start + CHUNK, length))
            md5.update(chunk.upper())
            counts = {name: counts[name] + found for name, found in letter_counts(chunk).items()}
            odd += odd_letters(chunk)
            encoded = ENCODE[np.frombuffer(chunk, np.uint8)]
            runs.append(n_runs(encoded) + start)
            file.write(encoded)
            advance(len(chunk))
        check_letters(fasta.filename, contig, odd, length)
    file = ContigFile(contig, str(codes), length, md5.hexdigest(), counts, _joined(np.concatenate(runs)))
    write_json(mark, {"format": FORMAT_VERSION, "alphabet": "A0 C1 G2 T3 N4, +8 soft-masked", **asdict(file)})
    return file


def _joined(runs: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Runs that a chunk border cut in two, made one again."""
    first = np.ones(len(runs), bool)
    first[1:] = runs[1:, 0] != runs[:-1, 1]
    last = np.append(first[1:], True)[: len(runs)]
    return tuple(zip(runs[first, 0].tolist(), runs[last, 1].tolist(), strict=True))
