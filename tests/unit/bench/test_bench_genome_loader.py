"""The loader benchmark: runs on the embedded DNA, writes what it prints, refuses what it cannot measure."""

import json

import pytest

from goatbench.bench import genome_loader
from goatbench.bench.genome_loader import main, render
from goatbench.bench.targets import judge
from goatbench.bench.timing import ratio
from goatbench.errors import UsageError


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(genome_loader, "WINDOWS", {1_024: 30, 12_200: 10})


def test_quick_run_and_record(small, tmp_path, capsys):
    out = tmp_path / "record.json"
    assert main(["--quick", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    for length in ("1024", "12200"):
        assert {name: len(seconds) for name, seconds in record["seconds"][length].items()} == {"codes": 3, "pyfaidx": 3}
    assert [result["verdict"] for result in record["results"]] == ["-", "-"]
    assert "pyfaidx / codes" in capsys.readouterr().out
    with pytest.raises(UsageError, match="never overwritten"):
        main(["--quick", "--out", str(out)])


def test_table_and_verdict():
    seconds = {1_024: {"codes": [1.0, 1.0, 1.0], "pyfaidx": [2.0, 3.0, 4.0]}}
    times = ratio(seconds[1_024], "pyfaidx", "codes")
    line = render(seconds, [judge("genome_loader", "1024 bases", "pyfaidx / codes", times, at_least=2.5)], "c").splitlines()[-1]
    assert line.split() == ["1,024", "2,000", "667", "3.00", "[2.50,", "3.50]", "target", ">=", "2.5:", "PASS"]
    assert judge("", "", "", ratio({"a": [2.0, 2.0], "b": [1.0, 1.0]}, "a", "b"), at_least=2.5).verdict == "MISS"


def test_readers_that_disagree_are_an_error(small, tmp_path, monkeypatch):
    monkeypatch.setattr(genome_loader, "_pyfaidx_reader", lambda record, length: lambda start: [0])
    with pytest.raises(RuntimeError, match="the two readers disagree"):
        main(["--quick"])


def test_one_line_for_what_cannot_be_measured(small, tmp_path):
    short = tmp_path / "short.fa"
    short.write_text(">c\nACGT\n")
    with pytest.raises(UsageError, match="contig 'c' has 4 bases"):
        main(["--fasta", str(short)])
    with pytest.raises(UsageError, match="no contig 'chr20'"):
        main(["--contig", "chr20"])
    with pytest.raises(UsageError, match="unrecognized arguments"):
        main(["--speed"])
