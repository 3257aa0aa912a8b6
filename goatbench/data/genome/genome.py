"""The encoded contigs of a run: paths and integers only, so that it can be pickled; each process maps the files for itself.

A memory map has no shared file position, so that worker processes cannot disturb each other's reads, forked or spawned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import UsageError
from .contigs import canonical, resolve, short


@dataclass(frozen=True, slots=True)
class Origin:
    """Where base 0 of a contig lies: a slice of a chromosome has an offset. length: of the whole chromosome, None if not known."""

    assembly: str | None
    chromosome: str
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True, slots=True)
class ContigFile:
    """One encoded contig. m5: MD5 of its upper-case letters (the SAM specification's M5). counts: as codes.letter_counts."""

    name: str
    path: str
    length: int
    m5: str
    counts: Mapping[str, int]
    n_runs: tuple[tuple[int, int], ...]


class Genome:
    """Codes of ranges, 0-based half-open. A contig may be asked for by any name that contigs.resolve understands.

    fasta: the file that it came from, for messages. origins: of contigs that are slices.
    """

    def __init__(self, contigs: Mapping[str, ContigFile], fasta: str, origins: Mapping[str, Origin] | None = None) -> None:
        self.files, self.fasta, self._origins = dict(contigs), fasta, dict(origins or {})
        self._codes: dict[str, np.ndarray] = {}

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_codes": {}}

    @property
    def contigs(self) -> tuple[str, ...]:
        return tuple(self.files)

    @property
    def lengths(self) -> dict[str, int]:
        return {name: file.length for name, file in self.files.items()}

    def name_of(self, contig: str) -> str:
        return contig if contig in self.files else resolve(contig, self.files, self.fasta)

    def length(self, contig: str) -> int:
        return self.files[self.name_of(contig)].length

    def codes(self, contig: str, start: int, end: int) -> np.ndarray:
        """uint8 [end - start], read-only. ValueError unless 0 <= start <= end <= length."""
        whole = self._codes.get(contig)
        if whole is None:
            whole = self._open(contig)
        if not 0 <= start <= end <= len(whole):
            raise ValueError(f"{short(contig)}: bases {start} to {end} (0-based, half-open) are not within 0 to {len(whole)}")
        return whole[start:end]

    def segments(self, contig: str) -> np.ndarray:
        """int64 [k, 2]: start and end of the maximal stretches without N."""
        file = self.files[self.name_of(contig)]
        edges = np.array([0, *(edge for run in file.n_runs for edge in run), file.length], np.int64).reshape(-1, 2)
        return edges[edges[:, 0] < edges[:, 1]]

    def origin(self, contig: str) -> Origin:
        name = self.name_of(contig)
        return self._origins.get(name) or Origin(None, name, 0, self.files[name].length)

    def locus(self, contig: str, start: int, end: int) -> tuple[str, int, int]:
        """(chromosome, start, end) on the true coordinates, 0-based half-open."""
        origin = self.origin(contig)
        return origin.chromosome, origin.offset + start, origin.offset + end

    @property
    def fingerprint(self) -> str:
        """sha256 over chromosome names, lengths and M5s: what the sequence is, wherever and under whatever alias it lies."""
        lines = sorted(f"{canonical(file.name)}\t{file.length}\t{file.m5}\n" for file in self.files.values())
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def report(self) -> dict[str, dict[str, object]]:
        """contig -> length, m5, counts of A C G T N, of other letters (read as N), share of N and of soft-masked bases."""
        rows = {}
        for name, file in self.files.items():
            unknown, length = file.counts["N"] + file.counts["other"], max(1, file.length)
            shares = {"n_fraction": unknown / length, "masked_fraction": file.counts["masked"] / length}
            rows[name] = {"length": file.length, "m5": file.m5, **file.counts, **shares}
        return rows

    def _open(self, contig: str) -> np.ndarray:
        file = self.files[self.name_of(contig)]
        try:
            whole = np.asarray(np.memmap(file.path, np.uint8, "r")) if file.length else np.zeros(0, np.uint8)
        except (OSError, ValueError) as error:
            raise UsageError(f"{file.path}: cannot be read ({error}); it belongs to the cache, start again to make it anew") from None
        if len(whole) != file.length:
            raise UsageError(f"{file.path}: {len(whole)} bytes instead of {file.length}; start again to make it anew")
        self._codes[contig] = whole
        return whole


def ucsc(chromosome: str, start: int, end: int) -> str:
    """chr20:50,000,001-50,010,000 for 0-based half-open 50000000 to 50010000: for people, never to compute with."""
    return f"{chromosome}:{start + 1:,}-{end:,}"
