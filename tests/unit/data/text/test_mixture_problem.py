"""Copy mixture: shares by counting, and what is best possible against the definition worked out for a sequence of three tokens."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from goatbench.data.philox import TESTS, uniforms
from goatbench.data.text import mixture_problem
from goatbench.data.text.mixture_problem import COPY_MIXTURE, best_possible, true_rows
from goatbench.metrics.prior_parts import total_variation
from goatbench.tasks.toy_copy_mixture import FLAT_ERROR, GUESS_EXCESS


def test_shares_of_copies():
    """Where first and previous differ, they follow with probabilities 0.5 and 0.3, and either symbol may also be drawn anew (0.2 / 24)."""
    tokens = COPY_MIXTURE.build(uniforms(0, 0, np.arange(4000), 36, TESTS), 32, None)
    assert tokens.shape == (4000, 33) and tokens.min() == 0 and tokens.max() == 23
    first, previous, following = tokens[:, :1], tokens[:, 1:-1], tokens[:, 2:]
    differ = np.broadcast_to(first, previous.shape) != previous
    n = differ.sum()
    for source, share in ((np.broadcast_to(first, previous.shape), 0.5), (previous, 0.3)):
        found = (source == following)[differ].mean()
        p = share + 0.2 / 24
        assert abs(found - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_true_rows_by_hand():
    rows = true_rows(3)
    expected = [[1, 0, 0], [0.5 + 0.1, 0.3 + 0.1, 0], [0.5 + 0.2 / 3, 0.2 / 3, 0.3 + 0.2 / 3]]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-15)


def test_best_possible_by_enumeration(monkeypatch):
    """All sequences of four tokens over three symbols: the mean entropy of the next token given all before, and its largest probability."""
    monkeypatch.setattr(mixture_problem, "NUM_SYMBOLS", 3)
    step = lambda first, previous, to: 0.5 * (to == first) + 0.3 * (to == previous) + 0.2 / 3
    nll = accuracy = 0.0
    for word in product(range(3), repeat=4):
        probability = 1 / 3 * math.prod(step(word[0], word[t], word[t + 1]) for t in range(3))
        for t in range(3):
            options = [step(word[0], word[t], to) for to in range(3)]
            nll -= probability * math.log(options[word[t + 1]])
            accuracy += probability * max(options)
    best = best_possible(3)
    assert best.nll_nats == pytest.approx(nll / 3, abs=1e-12) and best.accuracy == pytest.approx(accuracy / 3, abs=1e-12)


def test_the_chance_of_the_card():
    assert math.log(24) - best_possible(32).nll_nats == pytest.approx(GUESS_EXCESS, abs=1e-4)


def test_the_error_of_attention_to_every_key_alike():
    """Of n keys, two are to have more than 1 / n and n - 2 less, by 0.8 / n each; of two keys the second is to have 0.4."""
    assert np.mean([0.1] + [0.8 * (n - 2) / n for n in range(3, 33)]) == pytest.approx(FLAT_ERROR, abs=1e-4)
    flat = np.tril(np.ones((32, 32))) / np.arange(1, 33)[:, None]
    assert total_variation(flat, true_rows(32))[1:].mean() == pytest.approx(FLAT_ERROR, abs=1e-4)
