"""The genome tasks at smoke scale, through the command line: records, yardsticks, reuse of weights, files, mistakes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from goatbench import cli

TINY = ["scale=smoke", "data.num_train=16", "data.num_validation=8", "data.num_test=16"]
YARDSTICKS = ["uniform", "markov-2", "markov-6", "markov-0..8"]


def goatbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "goatbench", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GOATBENCH_CACHE": str(cwd.parent / "cache")}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False, env=env)


def records(folder: Path, task: str) -> list[dict]:
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/2*/record.json"))]
    return [record for record in found if record["task"]["name"] == task]


def cells(record: dict, metric: str, column: str) -> dict[tuple, dict]:
    """(reference or '', column value) -> measurement."""
    return {
        (m["conditions"].get("reference", ""), m["conditions"][column]): m for m in record["measurements"] if m["metric"] == metric
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One training of goat, measured by three tasks."""
    folder = tmp_path_factory.mktemp("genome") / "work"
    folder.mkdir()
    for task in ("genome_nll", "genome_length", "genome_gc"):
        done = goatbench("run", f"task={task}", *TINY, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "record: runs/" in done.stdout and "Traceback" not in done.stderr
    return folder


def test_nll_stands_beside_yardsticks_on_the_same_targets(folder):
    record = records(folder, "genome_nll")[0]
    bits = cells(record, "bits_per_base", "region")
    assert {name for name, _ in bits} == {"", *YARDSTICKS}
    for region in ("test", "chr3", "chr5", "repeat", "non-repeat"):
        assert len({bits[name, region]["n"] for name in ("", *YARDSTICKS)}) == 1
        assert bits["uniform", region]["value"] == pytest.approx(2.0, abs=1e-12)
    assert bits["", "test"]["n"] == 16 * 128 == bits["", "chr3"]["n"] + bits["", "chr5"]["n"]
    pooled = sum(bits["", region]["value"] * bits["", region]["n"] for region in ("chr3", "chr5")) / (16 * 128)
    assert bits["", "test"]["value"] == pytest.approx(pooled, rel=1e-9)
    nats, perplexity = cells(record, "nll_nats", "region"), cells(record, "perplexity", "region")
    assert nats["", "test"]["value"] == pytest.approx(bits["", "test"]["value"] * math.log(2), rel=1e-9)
    assert perplexity["", "test"]["value"] == pytest.approx(math.exp(nats["", "test"]["value"]), rel=1e-9)
    assert 1.6 < bits["", "test"]["value"] < 2.05  # four steps: about ln 4, and far from what a leak would give
    assert cells(record, "other_mass", "region")["", "test"]["value"] < 1e-3


def test_the_markov_rows_are_what_counting_gives(folder):
    """Order 2 by hand, from the letters of the embedded FASTA and the windows that the run scored."""
    from goatbench.compose import compose
    from goatbench.data.genome.module import GenomeData, codes_of

    os.environ["GOATBENCH_CACHE"] = str(folder.parent / "cache")
    try:
        spec = compose(["task=genome_nll", *TINY]).spec
        data = GenomeData(spec.data, spec.model, spec.evaluation, seed=0, batch_size=4)
        counts: dict[bytes, np.ndarray] = {}
        for stretch in data.stretches("train"):
            token = (stretch & 7).astype(np.int64)
            index = token[:-2] * 16 + token[1:-1] * 4 + token[2:]
            counts[b""] = counts.get(b"", np.zeros(64, np.int64)) + np.bincount(index, minlength=64)
        table = counts[b""].reshape(16, 4)
        windows = (codes_of(data.windows("test")) & 7).astype(np.int64)
    finally:
        del os.environ["GOATBENCH_CACHE"]
    context = windows[:, :-2] * 4 + windows[:, 1:-1]
    p = table / table.sum(1, keepdims=True)  # 6 Mb of counts: a pseudo-count of at most 16 moves this by less than 1e-4
    by_hand = -np.log2(p[context, windows[:, 2:]])
    record = records(folder, "genome_nll")[0]
    assert cells(record, "bits_per_base", "region")["markov-2", "test"]["value"] == pytest.approx(by_hand.mean(), abs=3e-3)


def test_the_run_folder_says_what_was_read(folder):
    for task in ("genome_nll", "genome_length", "genome_gc"):
        record = records(folder, task)[0]
        run = folder / "runs" / record["run_id"]
        rows = [line.split("\t") for line in (run / "split.tsv").read_text().splitlines()]
        assert rows[0][:4] == ["contig", "start", "end", "split"] and len(rows) == 9
        assert sum(int(row[2]) - int(row[1]) for row in rows[1:] if row[3] == "train") == 6_000_000
        contigs = json.loads((run / "contigs.json").read_text())
        assert sum(row["length"] for row in contigs.values()) == 8_710_155
        assert all(row["n_fraction"] == 0 and row["other"] == 0 and len(row["m5"]) == 32 for row in contigs.values())


def test_weights_are_trained_once_for_all_tasks(folder):
    nll, length, gc = (records(folder, f"genome_{name}")[0] for name in ("nll", "length", "gc"))
    assert not nll["training"]["reused"] and length["training"]["reused"] and gc["training"]["reused"]
    assert len({record["training"]["training_hash"] for record in (nll, length, gc)}) == 1
    assert nll["training"]["selected_on"] == "validation NLL"


def test_every_context_scores_the_same_targets(folder):
    record = records(folder, "genome_length")[0]
    bits, change = cells(record, "bits_per_base", "multiple"), cells(record, "bits_change", "multiple")
    assert [multiple for name, multiple in bits if name == ""] == [1, 2, 4, 8, 16]
    assert {m["n"] for m in bits.values()} == {4 * 64}
    assert {bits["markov-0..8", multiple]["value"] for multiple in (1, 2, 4, 8, 16)} == {bits["markov-0..8", 1]["value"]}
    for multiple in (2, 4, 8, 16):
        assert bits["", multiple]["conditions"]["context"] == 128 * multiple
        gap = bits["", multiple]["value"] - bits["", 1]["value"]
        assert change["", multiple]["value"] == pytest.approx(gap, abs=1e-9) and change["", multiple]["stderr"] is not None


def test_a_table_of_positions_ends_where_it_ends(folder):
    done = goatbench("run", "task=genome_length", "attention=learned_absolute", *TINY, cwd=folder)
    assert done.returncode == 0, done.stderr
    record = next(r for r in records(folder, "genome_length") if r["row"]["attention"] == "learned_absolute")
    bits = cells(record, "bits_per_base", "multiple")
    assert bits["", 1]["value"] is not None and bits["", 1]["n"] == 256
    assert all(bits["", multiple]["value"] is None and "no learned entry" in bits["", multiple]["reason"] for multiple in (2, 4, 8, 16))


def test_gc_tracks_lie_on_true_coordinates(folder):
    record = records(folder, "genome_gc")[0]
    run = next(folder.glob(f"runs/{record['run_id']}"))
    assert set(record["artifacts"]) <= {path.name for path in run.iterdir()}
    rows = [line.split("\t") for line in (run / "gc_true.bedgraph").read_text().splitlines()]
    assert {row[0] for row in rows} == {"chr3", "chr5"} and len(rows) == 8
    assert all(int(row[2]) - int(row[1]) == 64 for row in rows)
    for chromosome, first, last in (("chr3", 42_000_000, 43_000_000), ("chr5", 124_000_000, 125_000_000)):
        starts = [int(row[1]) for row in rows if row[0] == chromosome]
        assert all(b - a == 64 for a, b in pairwise(starts)) and first <= starts[0] < starts[-1] < last
    headers = [line for line in (run / "generated.fa").read_text().splitlines() if line.startswith(">")]
    assert len(headers) == 8 * 8 and headers[0].startswith(">place0_sample0 chr3:42,")
    assert set("".join(line for line in (run / "generated.fa").read_text().splitlines() if line[0] != ">")) <= set("ACGT")
    difference = [float(line.split("\t")[3]) for line in (run / "gc_difference.bedgraph").read_text().splitlines()]
    generated = [float(line.split("\t")[3]) for line in (run / "gc_generated.bedgraph").read_text().splitlines()]
    assert difference == pytest.approx([g - float(t[3]) for g, t in zip(generated, rows, strict=True)], abs=1e-3)
    assert (run / "gc_chr3.png").stat().st_size > 10_000 and (run / "gc_chr3.svg").read_text().startswith("<?xml")


def test_gc_is_told_against_persistence_and_a_constant(folder):
    record = records(folder, "genome_gc")[0]
    error = cells(record, "mae_points", "mode")
    assert {name for name, _ in error} == {"", "persistence", "constant", "markov-0..8", "real"}
    assert error["real", "free_running"]["value"] == 0.0
    js = cells(record, "js_3mer_bits", "mode")
    assert js["", "teacher_forced"]["value"] is None and 0 < js["real", "free_running"]["value"] < 1


def test_the_board_shows_yardsticks_once_and_unranked(folder):
    assert goatbench("run", "task=genome_nll", "attention=rope", *TINY, cwd=folder).returncode == 0
    done = goatbench("leaderboard", "task=genome_nll", "--scale", "smoke", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name in YARDSTICKS:
        (line,) = [line for line in lines if f"{name} (reference)" in line]
        assert line.startswith(name)  # no rank, and with one seed a row no column of ranks
    assert all(sum(line.split("[")[0].split()[:1] == [name] for line in lines) == 1 for name in ("goat", "rope"))
    values = [float(line.split(" (reference)")[1].split()[4]) for line in lines if "(reference)" in line]  # the column of the whole split
    assert values == sorted(values) and values[-1] == 2.0 and len(values) == len(YARDSTICKS)


@pytest.mark.parametrize(
    ("metric", "region", "says"),
    [("bits_per_base", "test", "but nll_nats"), ("perplexity", "chr3", "but nll_nats"), ("nll_nats", None, "pool to")],
)
def test_a_record_with_an_edited_score_is_refused(folder, tmp_path, metric, region, says):
    record = json.loads(json.dumps(records(folder, "genome_nll")[0]))
    for m in record["measurements"]:
        if "reference" in m["conditions"] or m["value"] is None:
            continue
        if region is None and m["conditions"]["region"] == "test":  # consistent in its units, but not with its regions
            nats = 0.9
            m["value"] = {"nll_nats": nats, "bits_per_base": nats / math.log(2), "perplexity": math.exp(nats)}.get(m["metric"], m["value"])
        elif m["metric"] == metric and m["conditions"]["region"] == region:
            m["value"] -= 0.5
    edited = tmp_path / record["run_id"] / "record.json"
    edited.parent.mkdir()
    edited.write_text(json.dumps(record))
    (tmp_path / "results").mkdir()
    done = goatbench("submit", str(edited.parent), "--results-dir", str(tmp_path / "results"), "--allow-dirty", cwd=folder)
    assert done.returncode == 2 and "contradicts itself" in done.stderr and says in done.stderr, done.stderr
    assert not list((tmp_path / "results").iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["data=fasta"], "data.fasta=PATH"),
        (["data=fasta", "data.fasta=/nonexistent.fa"], "/nonexistent.fa"),
        (["data.split=embeded"], "embedded"),
        (["data.split=instadeep"], "chr1"),
        (["data.fasta=x.fa"], "it is read as genome_embedded unless data=NAME"),
        (["data.fasta=/"], "data=fasta"),
        (["data.split_file=x.tsv"], "split=file"),
        (["training.batch_size=1000"], "batch_size"),
        (["data.num_test=100000000"], "windows"),
        (["evaluation.num_samples=2"], "num_samples"),
        (["model.num_scored=5"], "num_scored"),
        (["attention=rope_axial"], "rope"),
        (["task.resolutions=[224]"], "multiples"),
        (["task=genome_length", "task.multiples=[100000]"], "no window"),
        (["task=genome_gc", "evaluation.num_prompts=1"], "num_prompts"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, says, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOATBENCH_CACHE", str(folder.parent / "cache"))
    task = [] if any(a.startswith("task=") for a in arguments) else ["task=genome_nll"]
    with pytest.raises(SystemExit) as ended:  # in this process: a dozen imports of torch would be minutes
        cli.main(["run", *task, "scale=smoke", *arguments])
    stderr = capsys.readouterr().err
    message = [line for line in stderr.splitlines() if line.startswith("goatbench:")]
    assert ended.value.code == 2 and len(message) == 1 and says in message[0], stderr
    assert not list(tmp_path.iterdir())
