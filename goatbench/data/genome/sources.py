"""From the data part of a specification to DNA: which FASTA, which of its bases, and the name of exactly that. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ... import registry
from ...errors import UsageError
from ...records.canonical import digest
from ...spec import GenomeDataSpec
from .genome import Genome
from .source import GenomeSource
from .splits import Interval, contigs_of, load_split


class Embedded:
    """Human DNA inside the package: slices of GRCh37 chromosomes 20, 3 and 5 and of GRCh38 chromosome 16."""

    origin = "real: GRCh37 and GRCh38 reference sequence, slices (Debian vt-examples and augustus-doc)"

    def __init__(self, fasta: str | None) -> None:
        from .embedded_genome import embedded_fasta

        if fasta is not None:
            raise UsageError("data.fasta: genome_embedded brings its own sequence; use data=fasta data.fasta=PATH for another")
        self.path = embedded_fasta()


class LocalFasta:
    """A FASTA file of the user's: a chromosome, an assembly, anything."""

    origin = "real: a local FASTA file, named by its fingerprint"

    def __init__(self, fasta: str | None) -> None:
        if not (fasta or "").strip():
            raise UsageError("data.fasta is not set: give the file with data.fasta=PATH (plain text; gunzip a .gz first)")
        self.path = Path(fasta)


@dataclass(frozen=True)
class RunSequence:
    """The bases of a run: codes by contig, and which of them belong to which split."""

    genome: Genome
    intervals: tuple[Interval, ...]
    origin: str

    def fingerprint(self, splits: Sequence[str] | None = None) -> str:
        """64 hex digits over the sequence and the intervals of these splits (None: all)."""
        chosen = [i for i in self.intervals if splits is None or i.split in splits]
        m5 = {name: self.genome.files[name].m5 for name in contigs_of(chosen)}
        rows = [[m5[i.contig], i.start, i.end, i.split, i.core_start, i.core_end, i.region] for i in chosen]
        return digest(rows)


def load_sequence(data: GenomeDataSpec) -> RunSequence:
    """Opens the FASTA (encoding it on first use) and reads the split. UsageError if either is wrong."""
    return _load(data.name, data.fasta, data.split_file or data.split)


@lru_cache(maxsize=4)  # a sweep asks once a job
def _load(name: str, fasta: str | None, split: str) -> RunSequence:
    origin = registry.genome_sources.get(name)(fasta)
    source = GenomeSource(origin.path)
    intervals = load_split(split, source.lengths)
    return RunSequence(source.genome(contigs_of(intervals)), tuple(intervals), origin.origin)


def fingerprint_of(data: GenomeDataSpec, splits: Sequence[str] | None = None) -> str:
    """Names what a run reads: sequence, intervals, and how many windows are taken of each."""
    counts = {"train": data.num_train, "validation": data.num_validation, "test": data.num_test}
    return digest([load_sequence(data).fingerprint(splits), {k: v for k, v in counts.items() if splits is None or k in splits}])
