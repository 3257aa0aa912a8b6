"""genome_nll: both strands by hand, and the warning for a number that is better than human DNA allows."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_up_dna import little_run, random_letters

from goatbench.errors import UsageError
from goatbench.metrics.markov import window_nll
from goatbench.tasks.genome import markov_models
from goatbench.tasks.genome_nll import GENOME_NLL, Part, _too_good

BASES = "ACGT"
COMPLEMENT = str.maketrans("ACGT", "TGCA")


class Scorer(torch.nn.Module):
    """p(base | the base before) by a table [4, 4]; N has no mass to speak of."""

    num_scored, vocab_size = 4, 5

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.logits = torch.full((5, 5), -30.0)
        self.logits[:4, :4] = torch.from_numpy(table).log()

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(tokens, 5).float()

    def head(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.logits


@pytest.fixture
def little(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    return lambda letters: little_run(tmp_path, GENOME_NLL, letters)


def other_strand(text: str) -> str:
    return text.translate(COMPLEMENT)[::-1]


def measured(spec, net, data, metric: str) -> dict[tuple[str, str], float]:
    """(reference or '', region) -> value."""
    found = GENOME_NLL.measure(spec, net, data, None).measurements
    return {(m.conditions.get("reference", ""), m.conditions["region"]): m.value for m in found if m.metric == metric}


def test_both_strands_are_the_mean_over_every_target_of_both_readings(little):
    """Letter by letter, without the code under test: 17 bases a window; the one that is context only is the first of each reading."""
    letters = {"left": random_letters(100, 3), "right": random_letters(200, 4)}
    spec, data = little(letters)
    table = np.random.default_rng(5).dirichlet(np.ones(4), 4)
    both = measured(spec, Scorer(table), data, "bits_both_strands")
    readings = {name: [] for name in ("test", *letters)}
    for contig, text in letters.items():
        windows = [text[start : start + 17] for start in range(0, len(text) - 16, 16)]
        for name in ("test", contig):
            readings[name] += [*windows, *map(other_strand, windows)]
    models = markov_models(spec, data)
    assert len(readings["test"]) == 2 * (6 + 12) and len(models) == 2
    for region, texts in readings.items():
        scores = [-math.log2(table[BASES.index(a), BASES.index(b)]) for text in texts for a, b in pairwise(text)]
        assert both["", region] == pytest.approx(np.mean(scores), rel=1e-6)
        codes = np.array([[BASES.index(base) for base in text] for text in texts], np.uint8)
        for name, model in models.items():
            assert both[name, region] == pytest.approx(window_nll(model, codes).mean() / math.log(2), rel=1e-9)
        assert both["uniform", region] == pytest.approx(2.0)


def test_a_scorer_that_knows_no_strand_has_one_number(little):
    """Pairs counted on both strands, and windows whose ends are A or T: each reading has the same pairs and the same contexts."""
    ends = np.random.default_rng(6).choice(list("AT"), 13)
    letters = "".join(end + inner for end, inner in zip(ends, (random_letters(15, seed) for seed in range(20, 33)), strict=True))
    spec, data = little({"left": letters})
    counts = np.zeros((4, 4))
    circle = random_letters(300, 7)
    for text in (circle + circle[0], other_strand(circle + circle[0])):
        for a, b in pairwise(text):
            counts[BASES.index(a), BASES.index(b)] += 1
    net = Scorer(counts / counts.sum(1, keepdims=True))
    one, both = (measured(spec, net, data, metric)["", "test"] for metric in ("bits_per_base", "bits_both_strands"))
    assert both == pytest.approx(one, rel=1e-6)
    lopsided = Scorer(np.random.default_rng(8).dirichlet(np.ones(4), 4))
    one, both = (measured(spec, lopsided, data, metric)["", "test"] for metric in ("bits_per_base", "bits_both_strands"))
    assert abs(both - one) > 0.01


@pytest.mark.parametrize(
    ("bits", "context", "warns"), [(1.59, 512, True), (1.59, 1024, True), (1.6, 512, False), (1.9, 512, False), (1.5, 1025, False)]
)
def test_below_what_compressors_reach_it_warns_up_to_a_context_of_1024(bits, context, warns):
    whole = Part("test", bits * math.log(2) * 100 * (1 + 1e-12), 100, None, None, None, None)
    found = _too_good(SimpleNamespace(model=SimpleNamespace(seq_len=context)), whole)
    assert len(found) == warns and all(f"{bits:.3f} bits per base at a context of {context}" in line for line in found)


def test_uniform_and_markov_accuracy_by_hand(little):
    """Uniform: 1 in 4. Markov-2: what follows most often in training after the two bases before it in the window (one, for the first)."""
    letters = {"left": random_letters(170, 8)}
    spec, data = little(letters)
    training = random_letters(2000, 1)
    followers: dict[str, Counter[str]] = {}
    for order in (1, 2):
        for start in range(len(training) - order):
            followers.setdefault(training[start : start + order], Counter())[training[start + order]] += 1
    right = total = 0
    for start in range(0, 170 - 16, 16):
        window = letters["left"][start : start + 17]
        for place in range(1, 17):
            counts = followers[window[max(0, place - 2) : place]]
            right, total = right + (max(BASES, key=counts.__getitem__) == window[place]), total + 1
    found = measured(spec, Scorer(np.full((4, 4), 0.25)), data, "accuracy")
    assert found["uniform", "test"] == 0.25 and found["markov-2", "test"] == right / total


def test_repeats_that_have_no_window_are_known_before_training(little):
    with pytest.raises(UsageError, match="split 'masked': no window of 17 bases fits"):
        GENOME_NLL.check(*little({"left": random_letters(100, 3), "masked": random_letters(16, 4)}))
