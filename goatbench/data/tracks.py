"""Track files for genome browsers: bedGraph, bigWig, BED and FASTA, on true coordinates.

Coordinates are 0-based and half-open, contig names are those of the FASTA that was read; `ucsc` is the form for eyes (1-based, closed).
Windows whose value is NaN are absent from a track: a gap is not 0. Files appear whole or not at all.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..records.files import replace_atomic, replacing
from .genome.genome import ucsc

BIGWIG_BYTES = 64 * 2**10, 64  # more than a file needs: in all, and for each window
FASTA_COLUMNS = 60  # as in the reference files of Ensembl and the 1000 Genomes Project
LETTERS = np.frombuffer(b"ACGTNNNNacgtnnnn", np.uint8)  # by code: bit 3 is the soft mask


class Window(NamedTuple):
    """One value of a track over contig[start:end]."""

    contig: str
    start: int
    end: int
    value: float


class Interval(NamedTuple):
    """A named stretch contig[start:end], for instance a prompt."""

    contig: str
    start: int
    end: int
    name: str = "."


class FastaRecord(NamedTuple):
    """codes uint8 [n] of a true or generated sequence that belongs at contig[start:end]; the name is unique in its file."""

    name: str
    contig: str
    start: int
    end: int
    codes: NDArray[np.uint8]


def write_bedgraph(path: Path | str, rows: Iterable[Window], chrom_sizes: Mapping[str, int] | None = None) -> None:
    """Text track, six digits, sorted by contig and start; the last window is cut at the contig end where `chrom_sizes` has it.

    ValueError, as for bigWig: overlapping windows, a window outside its contig, an infinite value, or no value at all (readers choke on
    an empty track).
    """
    kept = _kept(rows, chrom_sizes)
    text = "".join(f"{row.contig}\t{row.start}\t{row.end}\t{row.value:.6g}\n" for row in kept)
    replace_atomic(Path(path), text.encode())


def has_bigwig() -> bool:
    """Whether pyBigWig is installed: the extra `tracks`."""
    return importlib.util.find_spec("pyBigWig") is not None


def write_bigwig(path: Path | str, rows: Iterable[Window], chrom_sizes: Mapping[str, int]) -> None:
    """Binary track (float32, with zoom levels) of the same rows. UsageError without pyBigWig, or where nothing can be written."""
    open_bigwig = _pybigwig().open
    kept = _kept(rows, chrom_sizes)
    with replacing(Path(path)) as temporary:
        temporary.write(bytes(BIGWIG_BYTES[0] + BIGWIG_BYTES[1] * len(kept)))  # on a full disk pyBigWig crashes or says nothing
        temporary.flush()
        try:
            _write_entries(open_bigwig(temporary.name, "w"), kept, chrom_sizes)
        except RuntimeError as error:
            raise OSError(str(error)) from error


def _write_entries(file: Any, kept: list[Window], chrom_sizes: Mapping[str, int]) -> None:
    try:
        file.addHeader(sorted(chrom_sizes.items()))  # header and entries in one order, or readers and the writer fail
        for contig, group in groupby(kept, key=lambda row: row.contig):
            of_contig = list(group)
            starts, ends, values = (list(column) for column in list(zip(*of_contig, strict=True))[1:])
            file.addEntries([contig] * len(of_contig), starts, ends=ends, values=values)
    finally:
        file.close()


def write_bed(path: Path | str, intervals: Iterable[Interval]) -> None:
    """Four columns, sorted by contig and start; intervals may overlap. No interval: an empty file, which is valid BED."""
    ordered = sorted(Interval(*interval) for interval in intervals)
    for interval in ordered:
        _check_range(interval)
        if any(letter in interval.name for letter in "\t\n\r"):
            raise ValueError(f"the name {interval.name!r} of {ucsc(*interval[:3])} has a tab or a line break, which separate BED fields")
    text = "".join(f"{contig}\t{start}\t{end}\t{name}\n" for contig, start, end, name in ordered)
    replace_atomic(Path(path), text.encode())


def write_fasta(path: Path | str, records: Iterable[FastaRecord]) -> None:
    """60 columns, soft-masked bases in lower case, headers `>name chr20:50,000,001-50,010,000`, in the order given."""
    seen: set[str] = set()
    with replacing(Path(path)) as file:
        for record in records:
            _check_range(record[1:])
            if not record.name or any(letter.isspace() for letter in record.name) or record.name in seen:
                raise ValueError(f"FASTA name {record.name!r}: a name is not empty, has no blanks and occurs once in its file")
            if len(record.codes) != record.end - record.start:
                length = record.end - record.start
                raise ValueError(f"{record.name} has {len(record.codes)} bases for {ucsc(*record[1:4])}, which are {length}")
            seen.add(record.name)
            letters = LETTERS[record.codes & 15].tobytes()
            lines = [letters[at : at + FASTA_COLUMNS] for at in range(0, len(letters), FASTA_COLUMNS)]
            file.write(b"\n".join([f">{record.name} {ucsc(*record[1:4])}".encode(), *lines]) + b"\n")


def _kept(rows: Iterable[Window], chrom_sizes: Mapping[str, int] | None) -> list[Window]:
    """Rows with a value, clipped, sorted and shown to be in order."""
    kept = sorted(_clipped(Window(*row), chrom_sizes) for row in rows if not math.isnan(row[3]))
    if not kept:
        raise ValueError("a track needs at least one window with a value: every window given is a gap")
    for row in kept:
        if math.isinf(row.value):
            raise ValueError(f"the value of {ucsc(*row[:3])} is {row.value}: a track holds finite values, NaN for a gap")
    for before, after in pairwise(kept):
        if before.contig == after.contig and after.start < before.end:
            raise ValueError(f"windows {ucsc(*before[:3])} and {ucsc(*after[:3])} overlap: a track has one value a base")
    return kept


def _clipped(row: Window, chrom_sizes: Mapping[str, int] | None) -> Window:
    _check_range(row)
    if chrom_sizes is None:
        return row
    if row.contig not in chrom_sizes:
        raise ValueError(f"contig {row.contig!r} of a window is not among the {len(chrom_sizes)} contig sizes given")
    size = chrom_sizes[row.contig]
    if row.start >= size:
        raise ValueError(f"window {ucsc(*row[:3])} begins after the end of {row.contig}, which has {size:,} bases")
    return row._replace(end=min(row.end, size))


def _check_range(place: Sequence[Any]) -> None:
    contig, start, end = place[:3]
    if not 0 <= start < end:
        raise ValueError(f"{contig} [{start}, {end}) is no range: coordinates are 0-based, the end is after the start")


def _pybigwig() -> Any:
    try:
        import pyBigWig
    except ImportError as error:
        raise UsageError(f"bigWig files need pyBigWig: pip install 'goatbench[tracks]' (bedGraph needs nothing); {error}") from error
    return pyBigWig
