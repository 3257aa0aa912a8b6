"""The DNA inside the package as a plain FASTA in the cache, so that it is read like any other genome."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from ...errors import UsageError
from .. import cache_files
from .codes import LETTERS

LINE = 60
_FIXED_TIME = 1_700_000_000  # of the FASTA: two processes that unpack it at once then write the very same file


def pack(codes: np.ndarray) -> bytes:
    """Four bases a byte, the first in the low bits; the last byte is filled up with A. codes: uint8 [n], 0..3 only."""
    assert codes.max(initial=0) < 4
    quads = np.concatenate((codes, np.zeros(-len(codes) % 4, np.uint8))).reshape(-1, 4)
    return (quads << np.array([0, 2, 4, 6], np.uint8)).sum(1, dtype=np.uint8).tobytes()


def unpack(packed: bytes, length: int) -> np.ndarray:
    """uint8 codes [length] of what `pack` made."""
    quads = np.frombuffer(packed, np.uint8)[:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    return quads.reshape(-1)[:length]


@cache
def manifest() -> dict:
    return json.loads((_folder() / "manifest.json").read_text())


def embedded_fasta(cache_dir: Path | None = None) -> Path:
    """Path of the unpacked FASTA, made now if it is not there or is not whole. UsageError if the package's file is damaged."""
    content = manifest()
    folder = cache_files.make_folder(cache_files.cache_root(cache_dir) / "genome" / f"embedded-{content['sha256'][:12]}")
    path, beside = folder / "embedded.fa", folder / "embedded.fa.origins.json"
    names = ("assembly", "chromosome")
    origins = {
        row["name"]: {name: row[name] for name in names} | {"offset": row["start"], "length": row["chromosome_length"]}
        for row in content["contigs"]
    }
    text = json.dumps(origins, indent=1)
    if path.exists() and _sha256(path.read_bytes()) == content["sha256_fasta"] and beside.exists() and beside.read_text() == text:
        return path
    packed = (_folder() / content["file"]).read_bytes()
    if _sha256(packed) != content["sha256"]:
        raise UsageError(f"{content['file']} of the package is not the file that its manifest names; reinstall goatbench")
    with cache_files.written(path) as file:
        file.write(fasta_text(packed, content["contigs"]))
        file.flush()
        os.utime(file.fileno(), (_FIXED_TIME, _FIXED_TIME))
    with cache_files.written(beside) as file:
        file.write(text.encode())
    return path


def fasta_text(packed: bytes, contigs: list[dict]) -> bytes:
    """FASTA with lines of 60; soft-masked runs in lower case. contigs: rows of the manifest, in the order of the packed bytes."""
    parts, offset = [], 0
    upper = np.frombuffer(LETTERS.encode(), np.uint8)
    for row in contigs:
        length = row["end"] - row["start"]
        num_bytes = -(-length // 4)
        letters = upper[unpack(packed[offset : offset + num_bytes], length)]
        offset += num_bytes
        for start, end in np.array(row["masked_runs"], np.int64).reshape(-1, 2):
            letters[start:end] |= 0x20
        whole = length // LINE * LINE
        lines = np.full((whole // LINE, LINE + 1), ord("\n"), np.uint8)
        lines[:, :LINE] = letters[:whole].reshape(-1, LINE)
        rest = letters[whole:].tobytes() + b"\n" * (length > whole)
        parts += [f">{row['name']}\n".encode(), lines.tobytes(), rest]
    return b"".join(parts)


def _folder() -> Path:
    return Path(str(files("goatbench.data.genome.embedded")))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
