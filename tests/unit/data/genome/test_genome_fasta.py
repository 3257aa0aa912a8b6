"""Every shape of FASTA gives the letters that were written; what cannot be read gives one line with the command that helps."""

import gzip
import hashlib
import json
import os
from collections import Counter

import numpy as np
import pytest
from made_up_genome import codes_of, random_letters, write_fasta

from goatbench.data.genome.source import GenomeSource, read_origins
from goatbench.data.genome.sources import LocalFasta
from goatbench.errors import UsageError

RECORDS = {
    "20": random_letters(2501, 1, "ACGTacgtNRYkm"),  # IUPAC letters, both cases
    "chrX dna:chromosome chromosome:GRCh38:X": random_letters(600, 2),  # a whole number of lines, blanks in the name
    "tiny": "acg",
    "void": "N" * 130,
}


def check(genome, records):
    for header, letters in records.items():
        contig = header.split()[0]
        assert genome.length(contig) == len(letters)
        assert np.array_equal(genome.codes(contig, 0, len(letters)), codes_of(letters)), contig
        expected = "".join(letter for letter in letters.upper() if letter in "ACGT")
        runs = genome.segments(contig).tolist()
        assert "".join(letters[start:end].upper() for start, end in runs) == expected
        assert all(start == 0 or letters[start - 1].upper() not in "ACGT" for start, _ in runs)


@pytest.mark.parametrize("final", [True, False], ids=["final newline", "no final newline"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("width", [60, 7, None], ids=["60", "7", "one line"])
def test_letters_whatever_the_layout(tmp_path, monkeypatch, width, newline, final):
    monkeypatch.setattr("goatbench.data.genome.cache.CHUNK", 97)  # so that chunk borders fall into lines and runs of N
    path = write_fasta(tmp_path / "g.fa", RECORDS, width, newline, final)
    source = GenomeSource(path, tmp_path / "cache")
    assert source.lengths == {header.split()[0]: len(letters) for header, letters in RECORDS.items()}
    check(source.genome(source.lengths), RECORDS)


def test_report_counts_every_letter(tmp_path):
    source = GenomeSource(write_fasta(tmp_path / "g.fa", RECORDS), tmp_path / "cache")
    row = source.genome(["chr20"]).report()["20"]
    letters = RECORDS["20"]
    upper = Counter(letters.upper())
    assert {name: row[name] for name in "ACGTN"} == {name: upper[name] for name in "ACGTN"}
    assert row["other"] == upper["R"] + upper["Y"] + upper["K"] + upper["M"] > 0
    assert row["masked_fraction"] == sum(c.islower() for c in letters) / len(letters)
    assert row["m5"] == hashlib.md5(letters.upper().encode()).hexdigest()  # SAM specification: IUPAC letters as they are


def test_fingerprint_is_of_the_content(tmp_path):
    """Neither layout, nor alias, nor case, nor place change it; one base does."""
    letters = random_letters(500, 3, "ACGT")

    def fingerprint(name, contig, text, width=60):
        return GenomeSource(write_fasta(tmp_path / name, {contig: text}, width), tmp_path / "cache").genome(["chr20"]).fingerprint

    first = fingerprint("a.fa", "chr20", letters)
    assert first == fingerprint("b.fa", "20", letters.lower(), None)
    changed = ("C" if letters[0] == "A" else "A") + letters[1:]
    assert first != fingerprint("c.fa", "chr20", changed)


def test_bounds_are_strict(tmp_path):
    genome = GenomeSource(write_fasta(tmp_path / "g.fa", {"c": "ACGTACGT"}), tmp_path / "cache").genome(["c"])
    assert genome.codes("c", 2, 5).tolist() == [2, 3, 0] and len(genome.codes("c", 8, 8)) == 0
    for start, end in ((0, 9), (-1, 3), (5, 4), (9, 9)):
        with pytest.raises(ValueError, match=f"c: bases {start} to {end} .* not within 0 to 8"):
            genome.codes("c", start, end)
    with pytest.raises(ValueError, match="read-only"):
        genome.codes("c", 0, 3)[0] = 1
    with pytest.raises(UsageError, match="no contig 'd'"):
        genome.codes("d", 0, 1)


def refused(path, tmp_path):
    with pytest.raises(UsageError) as error:
        GenomeSource(path, tmp_path / "cache")
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


def test_compressed_files_are_refused_with_the_command(tmp_path):
    path = tmp_path / "g.fa.gz"
    path.write_bytes(gzip.compress(b">c\nACGT\n"))
    assert f"gunzip -c {path} > {tmp_path / 'g.fa'}" in refused(path, tmp_path)
    bgzip = tmp_path / "renamed.fa"  # the 18 bytes that begin a bgzip block, under a plain name
    bgzip.write_bytes(bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000"))
    assert "gunzip -c" in refused(bgzip, tmp_path)
    plain = tmp_path / "plain.fa.gz"
    plain.write_text(">c\nACGT\n")
    assert f"mv {plain} {tmp_path / 'plain.fa'}" in refused(plain, tmp_path)
    blank = tmp_path / "my (1).fa.gz"
    blank.write_bytes(path.read_bytes())
    assert f"gunzip -c '{blank}' > '{tmp_path / 'my (1).fa'}'" in refused(blank, tmp_path)


def test_other_files_that_are_no_fasta(tmp_path):
    assert "No such file" in refused(tmp_path / "absent.fa", tmp_path)
    assert "Is a directory" in refused(tmp_path, tmp_path)
    assert "No such file" in refused("~nobody-of-this-name/x.fa", tmp_path)
    for content, expected in (
        (b"", "is empty"),
        (b">c\rACGT\rACGT\r", "old Mac"),
        (b">c\nACGT\rACGT\n", "old Mac"),
        (b">" + b"c" * 5000 + b"\rACGT\r", "old Mac"),  # the carriage return is beyond what is looked at first
        (b">c\n>d\n\n", "no record has a single letter"),
        (b"ACGT\nACGT\n", "does not start with a '>' line"),
        (b"\xef\xbb\xbf>c\nACGT\n", "byte-order mark"),
        (b">c\nACGTAC\nACG\nACGTAC\n", "seqkit seq -w 60"),
        (b">c\nACGT\n>d\nA\n>c\nACGT\n", "two records are named 'c'"),
        (b">c\nAC\xff\xfeGT\n", "bytes that are not text"),
    ):
        path = tmp_path / "bad.fa"
        path.write_bytes(content)
        assert expected in refused(path, tmp_path)


def test_the_record_of_unequal_lines_is_named(tmp_path):
    path = tmp_path / "bad.fa"
    path.write_bytes(b">good\nACGT\nAC\n>bad\nACGT\nAC\nACGT\n")
    assert "record 'bad' has lines of unequal length (line 6)" in refused(path, tmp_path)


def test_a_pipe_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe.fa"
    os.mkfifo(pipe)
    assert "is a pipe or a device" in refused(pipe, tmp_path)  # opening it would wait for a writer
    assert "is a pipe or a device" in refused("/dev/null", tmp_path)
    reader, writer = os.pipe()
    assert "unpack it" in refused(f"/dev/fd/{reader}", tmp_path)  # what the shell makes of <(zcat ..)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\x1c", "\u2028", " ", "\t"])
def test_a_record_name_ends_at_any_blank(tmp_path, blank):
    path = write_fasta(tmp_path / "g.fa", {f"chr1{blank}Homo sapiens": "ACGTACGT", f"{blank}chr2": "GG"})
    assert GenomeSource(path, tmp_path / "cache").lengths == {"chr1": 8, "chr2": 2}
    assert GenomeSource(path, tmp_path / "cache").genome(["chr2"]).codes("2", 0, 2).tolist() == [2, 2]


TITIN_START = "MTTQAPTFTQPLQSVVVLEGSTATFEAHISGFPVPEVSWFRDGQVISTSTLPGVQISFSDGRAKLTIPAVTKANSGRYSLKATNGSGQATSTAELLVKAET"  # UniProt Q8WZ42


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (TITIN_START * 2, "is it a protein file"),
        ("ACGUACGU" * 9, "seqkit seq --rna2dna"),
        ("ACGT" * 9 + "\0" * 3, "3 bytes that are no letters .the first: b'.x00'."),
        ("ACGT ACGT ACGT", "2 bytes that are no letters"),
        ("1ACGTACGTACGT", "1 bytes that are no letters"),
    ],
)
def test_what_is_no_dna_is_refused(tmp_path, monkeypatch, letters, expected):
    monkeypatch.setattr("goatbench.data.genome.cache.CHUNK", 7)
    path = write_fasta(tmp_path / "g.fa", {"good": "ACGTN", "bad": letters})
    source = GenomeSource(path, tmp_path / "cache")
    with pytest.raises(UsageError, match=f"record 'bad' .*{expected}"):
        source.genome(["bad"])
    assert source.genome(["good"]).codes("good", 0, 5).tolist() == [0, 1, 2, 3, 4]


def test_letters_that_are_not_ascii(tmp_path):
    path = tmp_path / "g.fa"
    for at in (b"ACGTACGT%s\n", b"AC%sGT\n", b"ACGTAC\nA%s\n", b"AC%sGT\nACGTAC\nA\n", b"AC%sGT\nACGTA%s\nA\n"):
        path.write_bytes(b">bad\n" + at.replace(b"%s", "\u00e9".encode()) + b">good\nACGT\n")
        with pytest.raises(UsageError, match=r"record 'bad'.*(not ASCII|unequal length)"):
            GenomeSource(path, tmp_path / "cache").genome(["bad"])


def test_rare_letters_and_masks_are_dna(tmp_path):
    records = {"iupac": "RYSWKMBDHVryswkmbdhv", "hard": "XXXXXXXXXX", "gaps": "AC--GT..", "few": "ACGTACGTACGTE", "none": ""}
    genome = GenomeSource(write_fasta(tmp_path / "g.fa", records), tmp_path / "cache").genome(records)
    check(genome, records)


def test_long_names_are_cut_in_messages(tmp_path):
    long = "x" * 5000
    path = write_fasta(tmp_path / "g.fa", {long: "ACGT", "b": "AC"})
    source = GenomeSource(path, tmp_path / "cache")
    for wanted in ("y" * 5000, long + "x"):
        with pytest.raises(UsageError) as error:
            source.genome([wanted])
        assert len(str(error.value)) < 500 + len(str(path)) and "xxx.." in str(error.value)
    double = write_fasta(tmp_path / "d.fa", {long: "ACGT"})
    double.write_bytes(double.read_bytes() * 2)
    assert len(refused(double, tmp_path)) < 300 + 2 * len(str(double))


def test_no_path_at_all():
    for empty in (None, "", " "):
        with pytest.raises(UsageError, match=r"data\.fasta is not set"):
            LocalFasta(empty)


@pytest.mark.parametrize(
    "content",
    [
        "[]", "3", "{", "{\"a\": 1}", '{"a": {}}', '{"a": {"assembly": null, "chromosome": 1}}', "[" * 100_000,
        '{"a": {"assembly": null, "chromosome": "1", "offset": "5"}}', '{"a": {"assembly": null, "chromosome": "1", "offset": -5}}',
        '{"a": {"assembly": null, "chromosome": "1", "length": 0.5}}', '{"a": {"assembly": null, "chromosome": "1", "end": 5}}', "\udcff",
    ],
)  # fmt: skip
def test_origins_with_wrong_types_are_one_line(tmp_path, content):
    (tmp_path / "g.fa.origins.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"g\.fa\.origins\.json.*wanted \{") as error:
        read_origins(tmp_path / "g.fa")
    assert "\n" not in str(error.value) and "__init__" not in str(error.value)


def test_origins_that_are_right(tmp_path):
    rows = {"a": {"assembly": None, "chromosome": "chr1"}, "b": {"assembly": "GRCh38", "chromosome": "2", "offset": 7, "length": 90}}
    (tmp_path / "g.fa.origins.json").write_text(json.dumps(rows))
    found = read_origins(tmp_path / "g.fa")
    assert (found["a"].offset, found["a"].length, found["b"].assembly, found["b"].offset) == (0, None, "GRCh38", 7)
