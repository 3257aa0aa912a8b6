"""Reads the IDX files of the MNIST family, plain or gzipped. numpy only."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from ..errors import UsageError

_UINT8 = 0x08  # the only element type the family uses


def find_idx(root: Path, stem: str) -> Path:
    """The file `stem` or `stem.gz` in `root`; a UsageError names the folder when both are absent."""
    for path in (root / f"{stem}.gz", root / stem):
        if path.is_file():
            return path
    raise UsageError(f"{root}: neither {stem}.gz nor {stem} is there; data.root must be a folder with the four IDX files of Fashion-MNIST")


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array in an IDX file: bytes 0, 0, type, ndim, then ndim big-endian uint32 sizes, then the values."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    if len(raw) < 4 or raw[0] or raw[1] or raw[2] != _UINT8 or len(raw) < 4 + 4 * raw[3]:
        raise UsageError(f"{path}: not an IDX file of unsigned bytes")
    start = 4 + 4 * raw[3]
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", raw[3], offset=4))
    values = np.frombuffer(raw, np.uint8, offset=start)
    if values.size != int(np.prod(shape)):
        raise UsageError(f"{path}: truncated: {values.size} bytes for shape {shape}")
    return values.reshape(shape)
