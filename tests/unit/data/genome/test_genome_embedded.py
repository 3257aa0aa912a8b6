"""The DNA inside the package: what its manifest, its README and its split say is what is read."""

import hashlib
import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goatbench.data.genome import embedded_genome
from goatbench.data.genome.codes import decode
from goatbench.data.genome.embedded_genome import embedded_fasta, manifest, pack, unpack
from goatbench.data.genome.genome import ucsc
from goatbench.data.genome.source import GenomeSource
from goatbench.data.genome.splits import chr20_blocks, contigs_of, load_split, of_split
from goatbench.errors import UsageError

FOLDER = Path(embedded_genome.__file__).parent / "embedded"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    source = GenomeSource(embedded_fasta(cache), cache)
    intervals = load_split("embedded", source.lengths)
    return source, source.genome(contigs_of(intervals)), intervals


@given(st.lists(st.integers(0, 3), max_size=50))
def test_packing_is_reversible(bases):
    codes = np.array(bases, np.uint8)
    packed = pack(codes)
    assert len(packed) == -(-len(bases) // 4) and unpack(packed, len(bases)).tolist() == bases


def test_packing_puts_the_first_base_lowest():
    assert pack(np.array([1, 2, 3, 0, 2], np.uint8)) == bytes([1 + 2 * 4 + 3 * 16, 2])


def test_the_sequence_is_the_one_that_the_readme_names(opened):
    """MD5s of the README, which were taken from the source files' blocks."""
    _, genome, intervals = opened
    rows = re.findall(r"^\| (GRCh\S+) \| ([\d,]+) \| (\w+) \| (\w+) \| (\w{32}) \|$", (FOLDER / "README.md").read_text(), re.M)
    assert len(rows) == 8
    report = genome.report()
    assert [(i.contig, f"{i.end:,}", i.split, i.region, report[i.contig]["m5"]) for i in intervals] == rows
    for row in report.values():
        assert row["N"] == row["other"] == 0
    masked = {contig: row["masked"] for contig, row in report.items() if row["masked"]}
    assert masked == {"GRCh38_chr16_186963-397118": 86_525}  # lower-case letters of the source file, counted with tr


def test_sizes_and_regions(opened):
    _, _, intervals = opened
    bases = {split: sum(i.end - i.start for i in of_split(intervals, split)) for split in ("train", "validation", "test", "masked")}
    assert bases == {"train": 6_000_000, "validation": 500_000, "test": 2_000_000, "masked": 210_155}
    assert [i.contig.split("_")[1] for i in of_split(intervals, "test", "chr3")] == ["chr3"]
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 4_000_000


def test_true_coordinates(opened):
    """Names, origins and chromosome lengths agree; blocks lie apart on the chromosome, and as in chr20_blocks."""
    _, genome, intervals = opened
    places = []
    for interval in intervals:
        assembly, chromosome, span = interval.contig.split("_")
        start, end = map(int, span.split("-"))
        origin = genome.origin(interval.contig)
        assert (origin.assembly, origin.chromosome, origin.offset) == (assembly, chromosome, start)
        assert genome.locus(interval.contig, 0, interval.end) == (chromosome, start, end) and end <= origin.length
        places.append((chromosome, start, end))
    for (c1, s1, e1), (c2, s2, e2) in combinations(places, 2):
        assert c1 != c2 or max(s1, s2) - min(e1, e2) > 65_536
    whole = chr20_blocks({"chr20": 63_025_520})
    for interval, (chromosome, start, end) in zip(intervals, places, strict=True):
        if chromosome == "chr20":
            assert [w.split for w in whole if w.start <= start and end <= w.end] == [interval.split]
    assert ucsc(*genome.locus(intervals[0].contig, 10, 20)) == "chr20:8,000,011-8,000,020"


def test_unpacked_once_and_again_when_damaged(tmp_path):
    path = embedded_fasta(tmp_path)
    time = path.stat().st_mtime_ns
    inode = path.stat().st_ino
    assert embedded_fasta(tmp_path) == path and path.stat().st_ino == inode
    content = path.read_bytes()
    path.write_bytes(content[:1000])
    assert embedded_fasta(tmp_path).read_bytes() == content
    assert path.stat().st_mtime_ns == time  # so that a source does not think it changed
    path.with_name("embedded.fa.origins.json").unlink()
    embedded_fasta(tmp_path)
    assert json.loads(path.with_name("embedded.fa.origins.json").read_text())["GRCh38_chr16_186963-397118"]["offset"] == 186_963


def test_a_damaged_package_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "genome.packed").write_bytes(b"x")
    manifest()
    monkeypatch.setattr(embedded_genome, "_folder", lambda: tmp_path)
    with pytest.raises(UsageError, match=r"genome\.packed.*reinstall goatbench"):
        embedded_fasta(tmp_path / "cache")


def test_the_fasta_is_plain(tmp_path):
    lines = embedded_fasta(tmp_path).read_bytes().splitlines()
    assert max(map(len, lines)) == 60 and sum(line.startswith(b">") for line in lines) == 8
    letters = b"".join(lines[1 : lines.index(b">GRCh37_chr20_16000000-17500000")])
    assert hashlib.md5(letters).hexdigest() == "a80442de81be25942869050b59e7aac6"
    assert set(decode(np.arange(8, dtype=np.uint8) % 4)) <= set(letters)
