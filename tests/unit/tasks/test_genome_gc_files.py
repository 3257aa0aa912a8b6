"""The tracks of a little measurement with an untrained model: both formats, true coordinates, gaps, and what cannot be written."""

from __future__ import annotations

import json
import math
import sys

import pytest
from made_up_dna import little_run, random_letters

from goatbench.errors import UsageError
from goatbench.tasks.genome_gc import GENOME_GC

OFFSET, LENGTH = 5_000, 9_000  # of the slice within its chromosome, and of the chromosome
LETTERS = {"slice": random_letters(80, 3) + "N" * 21 + random_letters(90, 4)}
TRACKS = ("true", "generated", "difference", "expected")
PLACES = ["evaluation.prompt=8", "evaluation.generate=16", "evaluation.num_prompts=8", "evaluation.gc_window=16"]


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """measure() -> (the run's folder, what the task found)."""
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    origin = {"assembly": "toy", "chromosome": "chr7", "offset": OFFSET, "length": LENGTH}
    (tmp_path / "little.fa.origins.json").write_text(json.dumps({"slice": origin}))
    folder = tmp_path / "run"
    folder.mkdir()

    def measured():
        spec, data = little_run(tmp_path, GENOME_GC, LETTERS, *PLACES)
        return folder, GENOME_GC.measure(spec, GENOME_GC.model(spec), data, folder)

    return measured


def bedgraph(path) -> list[tuple[str, int, int, float]]:
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return [(contig, int(start), int(end), float(value)) for contig, start, end, value in lines]


def test_bigwig_and_bedgraph_are_one_track_on_true_coordinates(measure):
    bigwig = pytest.importorskip("pyBigWig")
    folder, outcome = measure()
    assert not any("pyBigWig" in note for note in outcome.notes)
    unknown = range(OFFSET + 80, OFFSET + 101)
    for name in TRACKS:
        assert {f"gc_{name}.bw", f"gc_{name}.bedgraph"} <= set(outcome.artifacts)
        rows = bedgraph(folder / f"gc_{name}.bedgraph")
        with bigwig.open(str(folder / f"gc_{name}.bw")) as file:
            assert file.chroms() == {"chr7": LENGTH}
            read = file.intervals("chr7")
            assert all(math.isnan(value) for value in file.values("chr7", unknown.start, unknown.stop))
        assert [entry[:2] for entry in read] == [(start, end) for _, start, end, _ in rows] and len(rows) == 8
        assert [entry[2] for entry in read] == pytest.approx([row[3] for row in rows], abs=1e-4)
    for contig, start, end, value in bedgraph(folder / "gc_true.bedgraph"):
        window = LETTERS["slice"][start - OFFSET : end - OFFSET]
        assert contig == "chr7" and end - start == 16 and "N" not in window
        assert value == pytest.approx(100 * sum(window.count(base) for base in "CG") / 16, abs=1e-3)
    starts = [row[1] for row in bedgraph(folder / "gc_true.bedgraph")]
    assert min(starts) < unknown.start < unknown.stop < max(starts)  # the gap lies within the track


def test_without_pybigwig_there_is_bedgraph_and_one_line_that_says_so(measure, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyBigWig", None)  # as if not installed
    folder, outcome = measure()
    assert [note for note in outcome.notes if "pip install 'goatbench[tracks]'" in note and "\n" not in note] == [outcome.notes[-1]]
    assert {f"gc_{name}.bedgraph" for name in TRACKS} <= {path.name for path in folder.iterdir()}
    assert not [name for name in (*outcome.artifacts, *(path.name for path in folder.iterdir())) if name.endswith(".bw")]


def test_a_track_that_cannot_be_written_is_an_error_in_one_line(measure, tmp_path):
    pytest.importorskip("pyBigWig")
    (tmp_path / "run" / "gc_generated.bw").mkdir()
    with pytest.raises(UsageError, match=r"^cannot write .*gc_generated\.bw: Is a directory") as caught:
        measure()
    assert "\n" not in str(caught.value)
