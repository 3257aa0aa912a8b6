"""Splits: the published chunks reproduced, no base in two splits, files read back and checked."""

import os
from itertools import pairwise

import numpy as np
import pytest

from goatbench.data.genome.splits import (
    GUARD,
    PRESETS,
    Interval,
    check_disjoint,
    contigs_of,
    load_split,
    of_split,
    read_split,
    write_split,
)
from goatbench.errors import UsageError

CHR20 = 63_025_520  # bases of GRCh37 chromosome 20
HUMAN = {f"chr{name}": 100_000 + 1_000 * index for index, name in enumerate([*range(1, 23), "X", "Y"])}


def published_chunks(length, chunk_length, overlap=100):
    """What InstaDeepAI/human_reference_genome yields for a record, by its rule: whole chunks of the record less both overlaps."""
    num_chunks = (length - 2 * overlap) // chunk_length
    usable = chunk_length * num_chunks + 2 * overlap
    return [(i * chunk_length, min(usable, (i + 1) * chunk_length + 2 * overlap)) for i in range(num_chunks)]


@pytest.mark.parametrize(("name", "chunk"), [("instadeep_6kbp", 6_000), ("instadeep_12kbp", 12_000)])
def test_instadeep_chunks(name, chunk):
    intervals = load_split(name, HUMAN)
    for contig, length in HUMAN.items():
        of_contig = [interval for interval in intervals if interval.contig == contig]
        assert [(i.start, i.end) for i in of_contig] == published_chunks(length, chunk)
        assert {i.end - i.start for i in of_contig} == {chunk + 200}
        assert all(b.start == a.end - 200 and b.core_start == a.core_end for a, b in pairwise(of_contig))
    assert [(i.start, i.end, i.core_start, i.core_end) for i in intervals[:2]] == [
        (0, chunk + 200, 100, chunk + 100),
        (chunk, 2 * chunk + 200, chunk + 100, 2 * chunk + 100),
    ]
    check_disjoint(intervals, 16_384)


def test_a_record_of_the_published_data_set():
    """GRCh38 chromosome 22 (50,818,468 bases) and 21 (46,709,983): the rule worked out by hand."""
    lengths = HUMAN | {"chr21": 46_709_983, "chr22": 50_818_468}
    intervals = load_split("instadeep_6kbp", lengths)
    test, validation = of_split(intervals, "test"), of_split(intervals, "validation")
    assert len(test) == 8_469 and (test[-1].start, test[-1].end) == (50_808_000, 50_814_200)  # 50,818,268 / 6,000 = 8,469.7
    assert len(validation) == 7_784 and (validation[-1].start, validation[-1].end) == (46_698_000, 46_704_200)  # 7,784.96


@pytest.mark.parametrize(
    ("name", "train", "validation", "test"),
    [
        ("instadeep", {*map(str, range(1, 21)), "X", "Y"}, {"21"}, {"22"}),
        ("bionemo", {*map(str, range(1, 20))}, {"20", "21"}, {"22"}),
    ],
)
def test_whole_chromosomes(name, train, validation, test):
    bare = {contig.removeprefix("chr"): length for contig, length in HUMAN.items()}  # Ensembl's names
    intervals = load_split(name, bare)
    for split, wanted in (("train", train), ("validation", validation), ("test", test)):
        assert {interval.contig for interval in of_split(intervals, split)} == wanted
    assert all((interval.start, interval.end) == (0, bare[interval.contig]) for interval in intervals)
    with pytest.raises(UsageError, match="no contig 'chr7'"):
        load_split(name, {contig: length for contig, length in bare.items() if contig != "7"})


def test_chr20_blocks():
    intervals = load_split("chr20_blocks", {"20": CHR20})
    assert [(i.split, i.start, i.end) for i in intervals] == [
        ("train", 0, 45_000_000 - 65_536),
        ("validation", 45_000_000, 50_000_000 - 65_536),
        ("test", 50_000_000, 56_000_000),
        ("train", 56_000_000 + 65_536, CHR20),
    ]
    check_disjoint(intervals, GUARD)
    with pytest.raises(UsageError, match=r"65536 bases apart.*at least 65537"):
        check_disjoint(intervals, GUARD + 1)
    with pytest.raises(UsageError, match="not a whole chromosome 20"):
        load_split("chr20_blocks", {"chr20": 2_000_000})


@pytest.mark.parametrize("name", ["instadeep", "instadeep_6kbp", "instadeep_12kbp", "bionemo"])
def test_no_base_is_in_two_splits(name):
    """Base by base, and no base is a target twice."""
    intervals = load_split(name, HUMAN)
    for contig, length in HUMAN.items():
        readers = {split: np.zeros(length, bool) for split in ("train", "validation", "test")}
        scored = np.zeros(length, int)
        for interval in intervals:
            if interval.contig == contig:
                readers[interval.split][interval.start : interval.end] = True
                scored[interval.core_start : interval.core_end] += 1
        assert sum(mask.astype(int) for mask in readers.values()).max() <= 1 and scored.max() <= 1


def test_overlaps_are_refused():
    """As published intervals extended to 2^20 bases did: across splits, and across one that lies between."""
    train, inside = Interval("c", 0, 1_000, "train"), Interval("c", 500, 600, "train", 590, 600)
    with pytest.raises(UsageError, match=r"c:591-600 is scored twice"):
        check_disjoint([train, inside], 0)
    context_only = Interval("c", 900, 1_200, "test", 1_000, 1_200)
    with pytest.raises(UsageError, match="'train' and 'test' are -100 bases apart at c:901-1,200"):
        check_disjoint([train, context_only], 0)
    check_disjoint([train, Interval("c", 1_100, 1_200, "test"), Interval("d", 0, 9, "test")], 100)
    with pytest.raises(UsageError, match=r"100 bases apart.*at least 101"):
        check_disjoint([train, Interval("c", 1_100, 1_200, "test"), Interval("c", 1_200, 1_300, "test")], 101)
    long = Interval("c", 0, 1_000, "train", 0, 10)
    middle, late = Interval("c", 20, 30, "train"), Interval("c", 999, 1_010, "test", 1_001, 1_010)
    with pytest.raises(UsageError, match="'train' and 'test' are -1 bases"):
        check_disjoint([long, middle, late], 0)


def test_a_split_file_is_read_as_it_was_written(tmp_path):
    intervals = [*load_split("chr20_blocks", {"20": CHR20}), Interval("x", 5, 90, "test", 10, 80, "end")]
    write_split(tmp_path / "split.tsv", intervals)
    assert load_split(str(tmp_path / "split.tsv"), {"20": CHR20, "x": 90}) == intervals
    assert (tmp_path / "split.tsv").read_text().splitlines()[0].split("\t") == [
        "contig", "start", "end", "split", "core_start", "core_end", "region",
    ]  # fmt: skip
    assert contigs_of(intervals) == ["20", "x"]


def test_a_short_split_file_and_aliases(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("# my split\ncontig\tstart\tend\tsplit\nchr20\t0\t100\ttrain\n\nchr20\t200\t300\ttest\n")
    assert read_split(path, {"20": 1_000}) == [
        Interval("20", 0, 100, "train", 0, 100, "20"),
        Interval("20", 200, 300, "test", 200, 300, "20"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty; the first line names .*the last three are optional"),
        ("contig\tstart\tend\n20\t0\t5\n", "first line: column 'split' is missing"),
        ("20\t0\t5\ttrain\n", "names no column .'20.*; the first line names"),
        ("contig\tstart\tend\tsplits\n", "unknown column 'splits'; did you mean 'split'"),
        ("contig\tstart\tend\tsplit\t\n", "unknown column ''; the first line names"),
        ("contig\tstart\tend\tsplit\tsplit\n20\t0\t5\ttrain\ttest\n", "column 'split' is there 2 times"),
        ("contig start end split\n20 0 5 train\n", "blanks stand between the columns; put tabs"),
        ("contig,start,end,split\n20,0,5,train\n", "commas stand between the columns; put tabs"),
        ("contig\tstart\tend\tsplit\n20\t0\t1_0\ttrain\n", "line 2: end '1_0' is not a whole number"),
        ("contig\tstart\tend\tsplit\n20\t0\t\u0665\ttrain\n", "line 2: end '\u0665' is not a whole number"),
        (f"contig\tstart\tend\tsplit\n20\t0\t{'9' * 5000}\ttrain\n", r"line 2: end '9{58}\.\.' is not a whole number"),
        (f"contig\tstart\tend\tsplit\n{'q' * 5000}\t0\t5\ttrain\n", r"line 2: no contig 'q{58}\.\.'"),
        ("contig\tstart\tend\tsplit\n20\t0\t5\t \n", "line 2: .*the name of a split"),
        ("contig\tstart\tend\tsplit\n", "lists no interval"),
        ("contig\tstart\tend\tsplit\n20\t0\t5\n", "line 2: 3 tab-separated fields instead of 4"),
        ("contig\tstart\tend\tsplit\n20\t0\tx\ttrain\n", "line 2: end 'x' is not a whole number"),
        ("contig\tstart\tend\tsplit\n20\t5\t5\ttrain\n", "line 2: .*core_start < core_end"),
        ("contig\tstart\tend\tsplit\n20\t-1\t5\ttrain\n", "line 2: start '-1' is not a whole number"),
        ("contig\tstart\tend\tsplit\n20\t0\t1001\ttrain\n", "line 2: end 1001 is beyond 20, which has 1000"),
        ("contig\tstart\tend\tsplit\n2O\t0\t5\ttrain\n", "line 2: no contig '2O'; did you mean '20'"),
        ("contig\tstart\tend\tsplit\n20\t0\t50\ttrain\n20\t40\t60\ttest\n", r"s\.tsv: .*is scored twice"),
    ],
)
def test_what_is_wrong_with_a_split_file(tmp_path, text, expected):
    (tmp_path / "s.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=expected):
        read_split(tmp_path / "s.tsv", {"20": 1_000})


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfcontig\tstart\tend\tsplit\n20\t0\t5\ttrain\n",  # a byte-order mark
        b"contig\tstart\tend\tsplit\r\n20\t0\t5\ttrain\r\n",
        b"contig\tstart\tend\tsplit\r20\t0\t5\ttrain\r",
        b" contig\tstart \tend\tsplit\n  # comment\n 20 \t 0\t5 \ttrain \n \n",
    ],
)
def test_marks_line_ends_and_blanks_do_not_matter(tmp_path, content):
    (tmp_path / "s.tsv").write_bytes(content)
    assert read_split(tmp_path / "s.tsv", {"20": 1_000}) == [Interval("20", 0, 5, "train")]


def test_split_files_that_are_no_text(tmp_path):
    path = tmp_path / "s.tsv"
    for content, expected in (("contig\t".encode("utf-16"), "UTF-16 text"), (b"contig\xff", "no UTF-8 text .byte 7.")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=expected) as error:
            read_split(path, {"20": 1_000})
        assert "codec" not in str(error.value)
    with pytest.raises(UsageError, match="Is a directory"):
        load_split(str(tmp_path), {"20": 1_000})
    with pytest.raises(UsageError, match="File name too long"):
        load_split("x" * 300 + ".tsv", {"20": 1_000})
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is a pipe or a device"):
        load_split(str(path), {"20": 1_000})


def test_unknown_names():
    with pytest.raises(UsageError, match="unknown split 'instadep'; did you mean 'instadeep'"):
        load_split("instadep", HUMAN)
    with pytest.raises(UsageError, match="cannot be read"):
        load_split("absent.tsv", HUMAN)
    with pytest.raises(UsageError, match="unknown split 'tset'; did you mean 'test'"):
        of_split(load_split("instadeep", HUMAN), "tset")
    with pytest.raises(UsageError, match="known: chr22"):
        of_split(load_split("instadeep", HUMAN), "test", "chr3")
    assert set(PRESETS) == {"embedded", "chr20_blocks", "instadeep", "instadeep_6kbp", "instadeep_12kbp", "bionemo"}
