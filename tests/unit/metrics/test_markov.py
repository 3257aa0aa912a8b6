"""Markov models against counts made with dictionaries and loops, base by base."""

import math
from collections import defaultdict

import numpy as np
import pytest

from goatbench.metrics import markov, markov_counts
from goatbench.metrics.markov import FixedOrder, Interpolated
from goatbench.metrics.markov_counts import MarkovCounts


def dna(text: str) -> np.ndarray:
    return np.array(["ACGTN".index(letter.upper()) + 8 * letter.islower() for letter in text], np.uint8)


def random_text(length: int, seed: int, letters: str = "ACGTacgtN") -> str:
    weights = np.array([0.1 if letter == "N" else 1.0 for letter in letters])
    return "".join(np.random.default_rng(seed).choice(list(letters), length, p=weights / weights.sum()))


def brute_counts(texts, order):
    """context string -> {base: count}, contexts with N skipped."""
    counts = defaultdict(lambda: dict.fromkeys("ACGT", 0))
    for text in map(str.upper, texts):
        for i in range(order, len(text)):
            context = text[i - order : i]
            if text[i] != "N" and "N" not in context:
                counts[context][text[i]] += 1
    return counts


def clean_tail(history: str, longest: int) -> str:
    return history.upper().split("N")[-1][-longest:] if longest else ""


def brute_fixed(texts, history, order, pseudo):
    context = clean_tail(history, order)
    seen = brute_counts(texts, len(context))[context]
    return [(seen[b] + pseudo) / (sum(seen.values()) + 4 * pseudo) for b in "ACGT"]


def brute_interpolated(texts, history, order, weight):
    p = [0.25] * 4
    for k in range(len(clean_tail(history, order)) + 1):
        context = clean_tail(history, k)
        seen = brute_counts(texts, k)[context]
        p = [(seen[b] + weight * q) / (sum(seen.values()) + weight) for b, q in zip("ACGT", p, strict=True)]
    return p


TEXTS = [random_text(300, 1), random_text(7, 2), "ac", random_text(120, 3), "NNN", ""]


@pytest.fixture(scope="module")
def counts():
    return MarkovCounts.fit([dna(text) for text in TEXTS], 4)


@pytest.mark.parametrize("order", range(5))
def test_counts_equal_counting_by_hand(counts, order):
    expected = np.zeros((4**order, 4), int)
    for context, seen in brute_counts(TEXTS, order).items():
        row = sum(4**back * "ACGT".index(base) for back, base in enumerate(reversed(context)))
        expected[row] = [seen[b] for b in "ACGT"]
    assert counts.tables[order].dtype == np.int32
    np.testing.assert_array_equal(counts.tables[order], expected)


def test_counting_in_pieces_loses_nothing(counts, monkeypatch):
    monkeypatch.setattr(markov_counts, "FIT_CHUNK", 16)
    pieces = MarkovCounts.fit([dna(text) for text in TEXTS], 4)
    for whole, cut in zip(counts.tables, pieces.tables, strict=True):
        np.testing.assert_array_equal(whole, cut)


MODELS = [
    (lambda counts: FixedOrder(counts, 0, 0.5), lambda history: brute_fixed(TEXTS, history, 0, 0.5)),
    (lambda counts: FixedOrder(counts, 3, 0.25), lambda history: brute_fixed(TEXTS, history, 3, 0.25)),
    (lambda counts: Interpolated(counts, 2.0), lambda history: brute_interpolated(TEXTS, history, 4, 2.0)),
]


@pytest.mark.parametrize(("make", "brute"), MODELS)
def test_nll_of_a_stretch_and_of_windows(counts, make, brute, monkeypatch):
    monkeypatch.setattr(markov, "SCORE_CHUNK", 20)  # several pieces
    model = make(counts)
    text = random_text(70, 9)
    expected = [math.nan if b in "Nn" else -math.log(brute(text[:i])["ACGT".index(b.upper())]) for i, b in enumerate(text)]
    np.testing.assert_allclose(markov.nll(model, dna(text)), expected, rtol=1e-12)

    windows = np.stack([dna(text[start : start + 10]) for start in range(0, 70, 10)])
    in_window = [
        [
            math.nan if text[i] in "Nn" else -math.log(brute(text[start:i])["ACGT".index(text[i].upper())])
            for i in range(start + 1, start + 10)
        ]
        for start in range(0, 70, 10)
    ]
    np.testing.assert_allclose(markov.window_nll(model, windows), in_window, rtol=1e-12)
    gc = [[brute(text[start:i])[1] + brute(text[start:i])[2] for i in range(start + 1, start + 10)] for start in range(0, 70, 10)]
    np.testing.assert_allclose(markov.expected_gc(model, windows), gc, rtol=1e-12)


@pytest.mark.parametrize(("make", "brute"), MODELS)
@pytest.mark.parametrize("length", [0, 1, 3, 9])
def test_probabilities_after_a_prompt(counts, make, brute, length):
    prompts = [random_text(length, seed) for seed in range(6)]
    p = markov.probabilities(make(counts), np.stack([dna(prompt) for prompt in prompts]).reshape(6, length))
    np.testing.assert_allclose(p, [brute(prompt) for prompt in prompts], rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)


def test_samples_follow_the_distribution():
    """Order-1 chain with strong steps: frequencies of pairs within 5 standard errors of p, the first base too."""
    model = FixedOrder(MarkovCounts.fit([dna("ACACACATGCATTTGACCCA" * 3)], 1), 1, 0.5)
    step = markov.probabilities(model, np.arange(4, dtype=np.uint8)[:, None])
    drawn = markov.sample(model, np.full((400, 1), 2, np.uint8), 100, np.random.default_rng(0))
    assert drawn.dtype == np.uint8 and drawn.shape == (400, 100)
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (drawn[:, :-1].ravel(), drawn[:, 1:].ravel()), 1)
    share, stderr = pairs / pairs.sum(1, keepdims=True), np.sqrt(step * (1 - step) / pairs.sum(1, keepdims=True))
    assert (np.abs(share - step) < 5 * stderr).all()
    first = np.bincount(drawn[:, 0], minlength=4) / 400
    assert (np.abs(first - step[2]) < 5 * np.sqrt(step[2] * (1 - step[2]) / 400)).all()


def test_a_sample_continues_its_prompt_and_its_seed():
    """A cycle that order 3 knows by heart: with a tiny pseudo-count each sample goes on where its prompt stopped."""
    text = "ACGGTCAT" * 40
    model = FixedOrder(MarkovCounts.fit([dna(text)], 3), 3, 1e-9)
    prompts = np.stack([dna(text[start : start + 5]) for start in range(8)])
    drawn = markov.sample(model, prompts, 20, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn, [dna(text[start + 5 : start + 25]) for start in range(8)])
    uniform = Interpolated(MarkovCounts.fit([dna("A")], 0), 1e9)
    again = [markov.sample(uniform, prompts, 50, np.random.default_rng(seed)) for seed in (2, 2, 3)]
    np.testing.assert_array_equal(again[0], again[1])
    assert (again[0] != again[2]).any()


def test_the_grid_s_best_value_on_validation_is_chosen(counts):
    validation = [dna(random_text(200, 20)), dna("TTTT")]
    grid = (0.01, 0.5, 8.0)

    def total(model):
        return sum(np.nansum(markov.nll(model, stretch)) for stretch in validation)

    pseudo = {value: total(FixedOrder(counts, 2, value)) for value in grid}
    assert markov.choose_pseudo(counts, 2, validation, grid).pseudo == min(pseudo, key=pseudo.get)
    weight = {value: total(Interpolated(counts, value)) for value in grid}
    assert markov.choose_weight(counts, validation, grid).weight == min(weight, key=weight.get)
    with pytest.raises(ValueError, match="no base"):
        markov.choose_weight(counts, [dna("NNN")], grid)


def test_one_seen_base_by_hand():
    """Training "CG": order 1 after C is (0 + 1/2, 1/2, 1 + 1/2, 1/2) / 3; interpolated with weight 1: p0 = (1/4, 5/4, 5/4, 1/4) / 3."""
    counts = MarkovCounts.fit([dna("cG")], 1)
    np.testing.assert_allclose(markov.probabilities(FixedOrder(counts, 1, 0.5), dna("C")[None]), [[1 / 6, 1 / 6, 1 / 2, 1 / 6]])
    np.testing.assert_allclose(markov.probabilities(Interpolated(counts, 1.0), dna("C")[None]), [[1 / 24, 5 / 24, 17 / 24, 1 / 24]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: MarkovCounts.fit([], 13), "0 to 12"),
        (lambda c: MarkovCounts.fit([np.zeros((2, 2), np.uint8)], 1), "one dimension"),
        (lambda c: FixedOrder(c, 5, 1.0), "orders 0 to 4"),
        (lambda c: FixedOrder(c, 2, 0.0), "above 0"),
        (lambda c: Interpolated(c, -1.0), "above 0"),
        (lambda c: markov.window_nll(FixedOrder(c, 2, 1.0), np.zeros(4, np.uint8)), "L at least 1"),
        (lambda c: markov.sample(FixedOrder(c, 2, 1.0), np.zeros(4, np.uint8), 1, np.random.default_rng(0)), r"\[n, P\]"),
    ],
)
def test_errors_say_what_is_allowed(counts, call, message):
    with pytest.raises(ValueError, match=message):
        call(counts)
