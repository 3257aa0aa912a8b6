"""Worker processes read the right letters: thousands of random windows, compared with what was written, none may differ.

The plain pattern, a pyfaidx handle opened in the dataset's constructor and used in forked workers, fails this: the workers share one
file position, and between one's seek and its read another moves it. Of 20,000 windows of 1,024 bases from a made-up FASTA of 9 Mb
(pyfaidx 0.9.2.2, all processes on one core) 2 were wrong with 2 workers, 4 with 4 and 2 with 8; most had the right length, and no
error was raised. Spawned workers cannot even start: "cannot pickle '_io.BufferedReader' object".
"""

from __future__ import annotations

import multiprocessing
import warnings

import numpy as np
import pytest
from made_up_genome import codes_of, fetch, hold, random_letters, write_fasta

from goatbench.data.genome.source import GenomeSource

LENGTH, NUM_BASES = 1_024, 60_000
Requests = list[tuple[str, int, int]]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    half = NUM_BASES // 2
    records = {
        name: random_letters(half, seed, "ACGTacgt") + "N" * 500 + random_letters(half - 500, seed + 9, "ACGTacgt")
        for seed, name in enumerate(("one", "two", "three"))
    }
    source = GenomeSource(write_fasta(folder / "g.fa", records), folder / "cache")
    genome = source.genome(records)
    genome.codes("one", 0, 1)  # opened before any fork: the harder case
    return genome, {name: codes_of(letters) for name, letters in records.items()}


def draw(truth, count, seed) -> Requests:
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, NUM_BASES - LENGTH + 1, count).tolist()
    return [(name, start, start + LENGTH) for name, start in zip(rng.choice(list(truth), count).tolist(), starts, strict=True)]


def num_wrong(truth, requests, found):
    assert len(found) == len(requests)
    return sum(not np.array_equal(codes, truth[name][start:end]) for codes, (name, start, end) in zip(found, requests, strict=True))


@pytest.mark.parametrize(("count", "workers", "method"), [(8_000, 4, "fork"), (2_000, 2, "spawn")])
def test_no_wrong_window(made, count, workers, method):
    genome, truth = made
    requests = draw(truth, count, workers)
    with multiprocessing.get_context(method).Pool(workers, hold, (genome,)) as pool:
        parts = pool.map(fetch, [requests[i : i + 100] for i in range(0, count, 100)], chunksize=1)
    assert num_wrong(truth, requests, [codes for part in parts for codes in part]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_no_wrong_window_of_20000_through_a_loader(made, workers, method):
    from torch.utils.data import DataLoader

    from goatbench.data.genome.splits import Interval
    from goatbench.data.genome.windows import TrainingWindows
    from goatbench.data.order import Draw

    genome, truth = made
    windows = TrainingWindows(genome, [Interval(name, 0, NUM_BASES, "train") for name in truth], LENGTH - 1, 0, 20_000)
    draws = [Draw(0, index) for index in range(20_000)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loader = DataLoader(windows, 100, sampler=draws, num_workers=workers, multiprocessing_context=method)
        found = [row for tokens, _ in loader for row in tokens.numpy()]
    tokens = {name: codes & 7 for name, codes in truth.items()}
    assert num_wrong(tokens, [(name, start, start + LENGTH) for name, start, _ in windows.loci(draws)], found) == 0
