"""Made `genome.packed`, `manifest.json` and `split.tsv` from four FASTA files; README.md says where they come from.

    python -m goatbench.data.genome.embedded.build 20.fa chr3.42M.fa chr5.124M.fa hg38.fa [FOLDER]

genome.packed: the blocks below one after the other, each at four bases a byte (embedded_genome.pack) and starting on a byte.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..codes import MASK, TOKEN, decode, true_runs
from ..embedded_genome import fasta_text, pack
from ..source import GenomeSource
from ..splits import Interval, write_split


class Slice(NamedTuple):
    """What an input file holds: base 0 of its only record is base `offset` of the chromosome (`length` bases), 0-based."""

    assembly: str
    chromosome: str
    offset: int
    length: int


FILES = (
    Slice("GRCh37", "chr20", 0, 63_025_520),
    Slice("GRCh37", "chr3", 41_999_999, 198_022_430),
    Slice("GRCh37", "chr5", 123_999_999, 180_915_260),
    Slice("GRCh38", "chr16", 186_963, 90_338_345),
)

BLOCKS = (  # (file, start, end, split, region), on the chromosome
    (0, 8_000_000, 9_500_000, "train", "chr20"),
    (0, 16_000_000, 17_500_000, "train", "chr20"),
    (0, 32_000_000, 33_500_000, "train", "chr20"),
    (0, 42_000_000, 43_500_000, "train", "chr20"),
    (0, 48_000_000, 48_500_000, "validation", "chr20"),
    (1, 42_000_000, 43_000_000, "test", "chr3"),
    (2, 124_000_000, 125_000_000, "test", "chr5"),
    (3, 186_963, 397_118, "masked", "hg38"),
)


def build(fastas: list[Path], folder: Path) -> None:
    packed, rows, intervals = b"", [], []
    with tempfile.TemporaryDirectory() as scratch:
        sources = [GenomeSource(path, Path(scratch)) for path in fastas]
        genomes = [source.genome(source.lengths) for source in sources]
        for index, start, end, split, region in BLOCKS:
            origin, genome = FILES[index], genomes[index]
            codes = genome.codes(genome.contigs[0], start - origin.offset, end - origin.offset)
            name = f"{origin.assembly}_{origin.chromosome}_{start}-{end}"
            rows.append(
                {
                    "name": name,
                    "assembly": origin.assembly,
                    "chromosome": origin.chromosome,
                    "chromosome_length": origin.length,
                    "start": start,
                    "end": end,
                    "md5": hashlib.md5(decode(codes & TOKEN), usedforsecurity=False).hexdigest(),
                    "masked_runs": true_runs((codes & MASK) != 0).ravel().tolist(),
                }
            )
            packed += pack(codes & TOKEN)
            intervals.append(Interval(name, 0, end - start, split, region=region))
    (folder / "genome.packed").write_bytes(packed)
    content = {
        "file": "genome.packed",
        "sha256": hashlib.sha256(packed).hexdigest(),
        "sha256_fasta": hashlib.sha256(fasta_text(packed, rows)).hexdigest(),
        "coordinates": "0-based half-open, on the chromosome; masked_runs: start, end, start, end, .. within the block",
        "contigs": rows,
    }
    (folder / "manifest.json").write_text(json.dumps(content) + "\n")
    write_split(folder / "split.tsv", intervals)


if __name__ == "__main__":
    build([Path(path) for path in sys.argv[1:5]], Path(sys.argv[5]) if len(sys.argv) > 5 else Path(__file__).parent)
