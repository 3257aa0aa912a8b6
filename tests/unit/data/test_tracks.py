"""Track files read back: bigWig by pyBigWig, FASTA by pyfaidx, text by hand."""

import builtins

import numpy as np
import pyfaidx
import pytest

from goatbench.data import tracks
from goatbench.data.tracks import FastaRecord, Interval, Window
from goatbench.errors import UsageError

NAN = float("nan")
SIZES = {"chr20": 1_000, "chr3": 500}
ROWS = [
    Window("chr3", 0, 100, 38.123456),
    Window("chr20", 800, 900, 41.5),
    Window("chr20", 900, 1_000, NAN),
    Window("chr20", 200, 300, 55.0),
    Window("chr3", 400, 600, 44.0),  # the contig ends at 500
    Window("chr20", 300, 400, 0.0),  # 0 is a value
]
KEPT = [("chr20", 200, 300, 55.0), ("chr20", 300, 400, 0.0), ("chr20", 800, 900, 41.5), ("chr3", 0, 100, 38.1235), ("chr3", 400, 500, 44.0)]


def windows_of(contig: str, start: int, window: int, values: np.ndarray) -> list[Window]:
    """The rows of a track whose values follow each other every `window` bases from `start` on."""
    return [Window(contig, start + i * window, start + (i + 1) * window, float(value)) for i, value in enumerate(values)]


def test_ucsc_form_is_one_based_and_closed():
    assert tracks.ucsc("chr20", 50_000_000, 50_010_000) == "chr20:50,000,001-50,010,000"


def test_bedgraph(tmp_path):
    path = tmp_path / "gc.bedgraph"
    tracks.write_bedgraph(path, ROWS, SIZES)
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert [(contig, int(start), int(end), float(value)) for contig, start, end, value in lines] == KEPT
    tracks.write_bedgraph(path, ROWS[:1])  # takes the place of the first; no sizes, no clipping
    assert path.read_text() == "chr3\t0\t100\t38.1235\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["gc.bedgraph"]


def test_bigwig(tmp_path):
    bigwig = pytest.importorskip("pyBigWig")
    path = tmp_path / "gc.bw"
    tracks.write_bigwig(path, ROWS, SIZES)
    with bigwig.open(str(path)) as file:
        assert file.chroms() == SIZES
        read = [(contig, *entry) for contig in sorted(SIZES) for entry in file.intervals(contig)]
        assert file.header()["nLevels"] > 0  # IGV wants zoom levels
    assert [row[:3] for row in read] == [row[:3] for row in KEPT]
    np.testing.assert_allclose([row[3] for row in read], [row[3] for row in KEPT], atol=1e-4)
    assert [entry.name for entry in tmp_path.iterdir()] == ["gc.bw"]


def test_without_pybigwig_one_line_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pyBigWig":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'goatbench\[tracks\]'"):
        tracks.write_bigwig(tmp_path / "gc.bw", ROWS, SIZES)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    """pyBigWig writes what fits and says nothing, or crashes: a file that may not grow stands in for the disk."""
    resource = pytest.importorskip("resource")
    pytest.importorskip("pyBigWig")
    rows = windows_of("chr20", 0, 10, np.random.default_rng(0).random(5_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(UsageError, match=r"^cannot write .*gc\.bw: File too large; "):
            tracks.write_bigwig(tmp_path / "gc.bw", rows, {"chr20": 50_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [1, 20_000])
def test_the_room_that_is_made_is_more_than_a_track_needs(tmp_path, count):
    pytest.importorskip("pyBigWig")
    rows = windows_of("chr20", 0, 10, np.random.default_rng(0).random(count))
    tracks.write_bigwig(tmp_path / "gc.bw", rows, {"chr20": 10 * count})
    whole, each = tracks.BIGWIG_BYTES
    assert (tmp_path / "gc.bw").stat().st_size < whole + each * count


def test_what_pybigwig_reports_is_one_line(tmp_path, monkeypatch):
    bigwig = pytest.importorskip("pyBigWig")

    def refuses(name, mode):
        raise RuntimeError("Received an error during file opening!")

    monkeypatch.setattr(bigwig, "open", refuses)
    with pytest.raises(UsageError, match=r"^cannot write .*gc\.bw: Received an error during file opening!; "):
        tracks.write_bigwig(tmp_path / "gc.bw", ROWS, SIZES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([Window("chr20", 0, 100, 1.0), Window("chr20", 99, 200, 1.0)], "chr20:1-100 and chr20:100-200 overlap"),
        ([Window("chr20", 1_000, 1_100, 1.0)], "begins after the end of chr20, which has 1,000 bases"),
        ([Window("chr21", 0, 100, 1.0)], "contig 'chr21'"),
        ([Window("chr20", 100, 100, 1.0)], "no range"),
        ([Window("chr20", -1, 100, 1.0)], "no range"),
        ([Window("chr20", 0, 100, float("inf"))], "finite"),
        ([Window("chr20", 0, 100, NAN)], "at least one window"),
        ([], "at least one window"),
    ],
)
def test_bad_rows_are_refused_and_the_old_file_stays(tmp_path, rows, message):
    path = tmp_path / "gc.bedgraph"
    path.write_text("old")
    with pytest.raises(ValueError, match=message):
        tracks.write_bedgraph(path, rows, SIZES)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["gc.bedgraph"]


def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path):
    path = tmp_path / "samples.fa"
    path.write_text("old")

    def records():
        yield FastaRecord("a", "chr20", 0, 2, np.zeros(2, np.uint8))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tracks.write_fasta(path, records())
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["samples.fa"]
    with pytest.raises(UsageError, match=r"cannot write .*absent"):
        tracks.write_fasta(tmp_path / "absent" / "samples.fa", [])


def test_fasta(tmp_path):
    rng = np.random.default_rng(0)
    long = rng.integers(0, 4, 130).astype(np.uint8)
    records = [
        FastaRecord("prompt0-sample0", "chr20", 50_000_000, 50_000_130, long),
        FastaRecord("prompt0-sample1", "chr20", 7, 17, np.array([0, 1, 2, 3, 4, 8, 9, 10, 11, 12], np.uint8)),
    ]
    path = tmp_path / "samples.fa"
    tracks.write_fasta(path, records)
    lines = path.read_text().splitlines()
    assert lines[0] == ">prompt0-sample0 chr20:50,000,001-50,000,130"
    assert [len(line) for line in lines[1:4]] == [60, 60, 10]
    assert lines[4:] == [">prompt0-sample1 chr20:8-17", "ACGTNacgtn"]
    assert str(pyfaidx.Fasta(str(path))["prompt0-sample0"]) == "".join("ACGT"[code] for code in long)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"name": "b c"}, "no blanks"), ({"name": "a"}, "occurs once"), ({"end": 5}, "2 bases for chr20:1-5"), ({"end": 0}, "no range")],
)
def test_bad_fasta_records_are_refused(tmp_path, change, message):
    good = FastaRecord("a", "chr20", 0, 2, np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match=message):
        tracks.write_fasta(tmp_path / "samples.fa", [good, good._replace(**({"name": "b"} | change))])
    assert not list(tmp_path.iterdir())


def test_bed(tmp_path):
    path = tmp_path / "prompts.bed"
    tracks.write_bed(path, [Interval("chr20", 50, 70, "second"), Interval("chr20", 0, 60), Interval("chr10", 5, 6, "first")])
    assert path.read_text() == "chr10\t5\t6\tfirst\nchr20\t0\t60\t.\nchr20\t50\t70\tsecond\n"
    tracks.write_bed(path, [])
    assert path.read_text() == ""
    with pytest.raises(ValueError, match="tab"):
        tracks.write_bed(path, [Interval("chr20", 0, 60, "a\tb")])
