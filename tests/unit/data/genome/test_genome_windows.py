"""Windows: where they lie, that they hold the bases of their locus, never N, and each target at most once."""

import pickle
from collections import Counter

import numpy as np
import pytest
from made_up_genome import codes_of, random_letters, write_fasta
from torch.utils.data import DataLoader

from goatbench.data.genome.source import GenomeSource
from goatbench.data.genome.splits import Interval, in_chunks
from goatbench.data.genome.windows import EvaluationWindows, TrainingWindows, same_target_windows
from goatbench.data.order import Draw, TrainSampler
from goatbench.errors import UsageError

LETTERS = {
    "a": random_letters(400, 1, "ACGTacgt") + "NNNNN" + random_letters(130, 2, "ACGT") + "R" + random_letters(64, 3, "ACGT"),
    "gap": "N" * 300,
    "b": random_letters(200, 4, "ACGT"),
}
COMPLEMENT = str.maketrans("ACGTacgt", "TGCAtgca")


@pytest.fixture
def genome(tmp_path):
    source = GenomeSource(write_fasta(tmp_path / "g.fa", LETTERS), tmp_path / "cache")
    return source.genome(source.lengths)


def intervals(split="train"):
    return [Interval(name, 0, len(letters), split) for name, letters in LETTERS.items()]


def tokens_of(contig, start, length, flipped=False):
    letters = LETTERS[contig][start : start + length]
    return codes_of((letters.translate(COMPLEMENT)[::-1] if flipped else letters).upper()).tolist()


def valid_starts(length, ranges):
    """Brute force: every start of a window that lies within a range and holds ACGT only."""
    starts = set()
    for contig, start, end in ranges:
        for s in range(start, end - length + 1):
            if set(LETTERS[contig][s : s + length].upper()) <= set("ACGT"):
                starts.add((contig, s))
    return starts


def test_training_windows_are_drawn_from_all_valid_starts_alike(genome):
    context, count = 63, 40_000
    windows = TrainingWindows(genome, intervals(), context, seed=3, num_windows_per_epoch=count)
    drawn = Counter((contig, start) for contig, start, _ in windows.loci([Draw(0, i) for i in range(count)]))
    expected = valid_starts(context + 1, [(name, 0, len(letters)) for name, letters in LETTERS.items()])
    assert set(drawn) == expected and windows.num_starts == len(expected)
    chi2 = sum((drawn[start] - count / len(expected)) ** 2 for start in expected) / (count / len(expected))
    assert abs(chi2 - len(expected)) < 5 * np.sqrt(2 * len(expected))


@pytest.mark.parametrize("flip", [False, True])
def test_training_samples_hold_the_bases_of_their_locus(genome, flip):
    windows = TrainingWindows(genome, intervals(), 50, 1, 300, reverse_complement=flip)
    draws = [Draw(2, i) for i in range(300)]
    loci = windows.loci(draws)
    for (tokens, index), draw, (contig, start, flipped) in zip(windows.__getitems__(draws), draws, loci, strict=True):
        assert index == draw.index and tokens.tolist() == tokens_of(contig, start, 51, flipped)
    assert sum(flipped for _, _, flipped in loci) == 0 if not flip else 100 < sum(flipped for _, _, flipped in loci) < 200


def test_a_draw_depends_on_seed_epoch_and_index_alone(genome):
    def loci(seed, draws, count=100):
        return TrainingWindows(genome, intervals(), 50, seed, count, True).loci(draws)

    draws = [Draw(0, 5), Draw(1, 5), Draw(0, 6), Draw(0, 5)]
    together = loci(9, draws)
    assert together == [loci(9, [draw], 77)[0] for draw in draws] and together[0] == together[3]
    assert len(set(together)) == 3 and loci(8, draws) != together


def test_overlapping_intervals_do_not_count_twice(genome):
    halves = [Interval("b", 0, 120, "train"), Interval("b", 100, 200, "train", 120, 200)]
    windows = TrainingWindows(genome, halves, 30, 0, 10)
    assert windows.num_starts == 200 - 30


def test_training_windows_through_a_loader(genome):
    windows = TrainingWindows(genome, intervals(), 40, 0, 20)
    loader = DataLoader(pickle.loads(pickle.dumps(windows)), batch_size=5, sampler=TrainSampler(20, 5, 0))
    seen = []
    for tokens, ids in loader:
        assert tokens.shape == (5, 41) and str(tokens.dtype) == "torch.int64"
        seen += ids.tolist()
        for row, index in zip(tokens.tolist(), ids.tolist(), strict=True):
            contig, start, _ = windows.loci([Draw(0, index)])[0]
            assert row == tokens_of(contig, start, 41)
    assert sorted(seen) == list(range(20))


def targets_of(windows):
    return [(c, s + 1 + windows.context - windows.targets + i) for c, s in windows.loci for i in range(windows.targets)]


@pytest.mark.parametrize("targets", [None, 10, 1])
def test_evaluation_windows_score_each_base_at_most_once(genome, targets):
    context = 30
    windows = EvaluationWindows(genome, intervals(), context, targets=targets)
    scored = targets_of(windows)
    assert len(scored) == len(set(scored)) == len(windows) * (targets or context)
    stretches = (400, 130, 64, 200)  # without N
    assert len(windows) == sum((length - (context + 1 - windows.targets)) // windows.targets for length in stretches)
    for index in range(len(windows)):
        tokens, masked, back = windows[index]
        contig, start = windows.loci[index]
        assert back == index and tokens.tolist() == tokens_of(contig, start, context + 1)
        assert masked.tolist() == [c.islower() for c in LETTERS[contig][start : start + context + 1]]
        assert tokens.max() < 4


def test_only_the_core_is_scored(genome):
    chunks = in_chunks([Interval("a", 0, 400, "test")], 60, 20)
    windows = EvaluationWindows(genome, chunks, 30)
    scored = targets_of(windows)
    assert len(chunks) == 6 and sorted(scored) == [("a", base) for base in range(20, 380)]
    inside = EvaluationWindows(genome, [Interval("a", 100, 300, "test", 150, 200)], 40, targets=10)
    assert [start for _, start in inside.loci] == [119, 129, 139, 149, 159] and inside.loci[0] == ("a", 150 + 10 - 41)
    late = EvaluationWindows(genome, [Interval("a", 100, 300, "test", 110, 200)], 40, targets=10)  # the first has no context before 100
    assert late.loci[0] == ("a", 100) and targets_of(late)[0] == ("a", 131)


def test_a_subset_is_evenly_spaced(genome):
    everything = EvaluationWindows(genome, intervals(), 9).loci
    some = EvaluationWindows(genome, intervals(), 9, num_windows=7).loci
    places = [everything.index(locus) for locus in some]
    assert {round(gap - len(everything) / 7) for gap in np.diff(places)} <= {0, 1, -1} and len(set(places)) == 7
    assert EvaluationWindows(genome, intervals(), 9, num_windows=len(everything)).loci == everything
    with pytest.raises(UsageError, match=f"has {len(everything)} windows of context 9; ask for 1 to that many"):
        EvaluationWindows(genome, intervals(), 9, num_windows=len(everything) + 1)


def test_the_same_targets_under_every_context(genome):
    by_context = same_target_windows(genome, intervals(), 16, [16, 32, 100])
    reference = targets_of(by_context[100])
    assert len(reference) == len(by_context[100]) * 16 > 16
    for context, windows in by_context.items():
        assert windows.context == context and targets_of(windows) == reference
        for (tokens, _, _), (contig, start) in zip((windows[i] for i in range(len(windows))), windows.loci, strict=True):
            assert tokens.tolist() == tokens_of(contig, start, context + 1) and tokens.max() < 4
    longest, short = by_context[100], by_context[16]
    assert longest[2][0][-17:].tolist() == short[2][0].tolist()
    with pytest.raises(ValueError, match="wanted 16"):
        short.with_context(15)


def test_the_other_strand(genome):
    windows = EvaluationWindows(genome, intervals(), 30)
    other = windows.on_other_strand()
    for index in (0, 5):
        contig, start = windows.loci[index]
        tokens, masked, _ = other[index]
        assert tokens.tolist() == tokens_of(contig, start, 31, flipped=True)
        assert masked.tolist() == windows[index][1].tolist()[::-1]
    assert not windows.reverse_complement and other.on_other_strand()[3][0].tolist() == windows[3][0].tolist()


def test_nothing_fits(genome):
    """Only N, or stretches that are too short: one line, no empty data set and no NaN later."""
    for kind in (lambda i, c: TrainingWindows(genome, i, c, 0, 10), lambda i, c: EvaluationWindows(genome, i, c)):
        with pytest.raises(UsageError, match=r"split 'train': no window of 401 bases fits \(the longest stretch without N has 400\)"):
            kind(intervals(), 400)
        with pytest.raises(UsageError, match="without N has 0"):
            kind([Interval("gap", 0, 300, "test")], 8)
        assert len(kind(intervals(), 399)) > 0
