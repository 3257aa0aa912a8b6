"""Markov rows and GC statistics of the whole of GRCh37 chr20 against figures computed before, by other code.

    GOATBENCH_CHR20=/data/20.fa python -m pytest tests/integration/test_chr20.py -m slow -s

The FASTA has one record, chr20 of GRCh37 (63,025,520 bases), plain text. Takes about two CPU-minutes and 1.8 GB.
"""

import hashlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from goatbench.metrics import composition, gc_content, markov
from goatbench.metrics.markov_counts import MarkovCounts

FASTA = os.environ.get("GOATBENCH_CHR20", "")
MB = 1_000_000
M5 = "0dec9660ec1efaaf33281c0d5ea2560f"  # of the upper-case sequence, the SAM tag of b37
TEST_BITS = {2: 1.928, 6: 1.875, 10: 1.776, "interpolated": 1.748}  # counted in plain C on the same blocks
TEST_BASES = 6 * MB // 1024 * 1024  # whole windows of the task
WINDOW_SD = {100: 10.7, 1_000: 7.4, 10_000: 5.7, 100_000: 4.8}  # GC points
NEIGHBOUR_R = {100: 0.57, 1_000: 0.67, 10_000: 0.79, 100_000: 0.81}
PERSISTENCE = {  # window: Pearson r, MAE, MAE of the constant, sd, as published with one or three digits
    256: (0.601, 6.3, 7.3, 9.1),
    512: (0.640, 5.4, 6.4, 8.1),
    1024: (0.669, 4.6, 5.8, 7.4),
    4096: (0.729, 3.5, 4.9, 6.2),
}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FASTA, reason="GOATBENCH_CHR20 names no FASTA of chr20")]


@pytest.fixture(scope="module")
def chr20() -> np.ndarray:
    letters = b"".join(Path(FASTA).read_bytes().split(b"\n", 1)[1].split())
    assert hashlib.md5(letters.upper()).hexdigest() == M5
    table = np.full(256, 4, np.uint8)
    table[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2
    return table[np.frombuffer(letters, np.uint8)]


def test_markov_rows(chr20):
    train, validation, test = [chr20[: 45 * MB], chr20[56 * MB :]], [chr20[45 * MB : 50 * MB]], chr20[50 * MB : 56 * MB]
    start = time.process_time()
    counts = MarkovCounts.fit(train, 12)
    print(f"\ncounted orders 0..12 in {time.process_time() - start:.1f} CPU-s")
    for name, expected in TEST_BITS.items():
        start = time.process_time()
        if name == "interpolated":
            model = markov.choose_weight(counts, validation)
        else:
            model = markov.choose_pseudo(counts, name, validation)
        chosen = getattr(model, "weight", None) or model.pseudo
        bits = [float(np.nanmean(markov.nll(model, stretch))) / math.log(2) for stretch in (*validation, test)]
        print(f"{name}: smoothing {chosen:g}, validation {bits[0]:.4f}, test {bits[1]:.4f} bits ({time.process_time() - start:.1f} CPU-s)")
        assert bits[1] == pytest.approx(expected, abs=0.005)


def test_the_rows_of_the_task_are_the_same(tmp_path):
    """The command line, with a model that learns nothing. Its windows cut the context of their first bases: below 0.002 bits."""
    tiny = ["scale=smoke", "data.num_train=16", "data.num_validation=8", "model.seq_len=1024", "evaluation.both_strands=false"]
    asked = ["data=chr20", f"data.fasta={Path(FASTA).resolve()}", "data.num_test=null"]
    orders = ["evaluation.markov_orders=[2,6,10]", "evaluation.markov_interpolated=12"]
    command = [sys.executable, "-P", "-m", "goatbench", "run", "task=genome_nll", *tiny, *asked, *orders]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GOATBENCH_CACHE": str(tmp_path / "cache")}
    start = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3600, check=False, env=env)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("runs/2*/record.json")
    assert json.loads((path.parent / "contigs.json").read_text())["20"]["m5"] == M5
    found = {
        m["conditions"].get("reference"): m
        for m in json.loads(path.read_text())["measurements"]
        if m["metric"] == "bits_per_base" and m["conditions"]["region"] == "test"
    }
    print("\n" + ", ".join(f"{name} {m['value']:.4f}" for name, m in found.items()) + f" bits in {time.monotonic() - start:.0f} s")
    assert all(m["n"] == TEST_BASES for m in found.values())
    for name, expected in TEST_BITS.items():
        row = "markov-0..12" if name == "interpolated" else f"markov-{name}"
        assert found[row]["value"] == pytest.approx(expected, abs=0.005)


def test_composition_of_the_chromosome(chr20):
    bases = composition.kmer_counts(chr20, 1)
    assert 100 * (bases[1] + bases[2]) / bases.sum() == pytest.approx(44.13, abs=0.005)
    assert bases.sum() == 59_505_520
    assert composition.cpg_observed_expected(chr20) == pytest.approx(0.248, abs=0.0005)


@pytest.mark.parametrize("window", WINDOW_SD)
def test_spread_of_gc_by_window(chr20, window):
    track = gc_content.gc_track(chr20, window)
    assert np.nanstd(track) == pytest.approx(WINDOW_SD[window], abs=0.1)
    assert gc_content.autocorrelation(track, 1)[0] == pytest.approx(NEIGHBOUR_R[window], abs=0.01)


@pytest.mark.parametrize("window", PERSISTENCE)
def test_the_window_before_as_prediction(chr20, window):
    track = gc_content.gc_track(chr20, window)
    result = gc_content.compare(np.concatenate(([np.nan], track[:-1])), track)
    flat = gc_content.compare(np.full(track.shape, np.nanmean(track)), track)
    print(f"\n{window}: r {result['pearson']:.4f}, MAE {result['mae']:.2f}, constant MAE {flat['mae']:.2f}, sd {np.nanstd(track):.2f}")
    expected = PERSISTENCE[window]
    assert result["pearson"] == pytest.approx(expected[0], abs=0.002)
    assert [result["mae"], flat["mae"], np.nanstd(track)] == pytest.approx(expected[1:], abs=0.1)
