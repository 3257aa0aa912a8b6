"""Markov rows on the whole of GRCh37 chr20 against figures computed before, by other code.

    GOATBENCH_CHR20=/data/20.fa python -m pytest tests/integration/test_chr20_markov.py -m slow -s

The FASTA has one record, chr20 of GRCh37 (63,025,520 bases), plain text. Takes about 75 CPU-seconds and 1.8 GB.
"""

import hashlib
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest

from goatbench.metrics import markov

FASTA = os.environ.get("GOATBENCH_CHR20", "")
MB = 1_000_000
M5 = "0dec9660ec1efaaf33281c0d5ea2560f"  # of the upper-case sequence, the SAM tag of b37
TEST_BITS = {2: 1.928, 6: 1.875, 10: 1.776, "interpolated": 1.748}  # counted in plain C on the same blocks

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
    counts = markov.MarkovCounts.fit(train, 12)
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
