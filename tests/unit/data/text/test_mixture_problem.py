"""Copy mixture: shares by counting, and what is best possible against the definition, worked out for sequences of three tokens."""

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
    """Where first and previous differ, they are asked for with probabilities 0.5 and 0.3, and either may also be noise (0.2 / 24)."""
    found = COPY_MIXTURE.build(uniforms(0, 0, np.arange(4000), 64, TESTS), 32, None)
    assert found.shape == (4000, 2, 32) and found.min() == 0 and found.max() == 23
    read, targets = found[:, 0], found[:, 1]
    first, previous, asked = np.broadcast_to(read[:, :1], (4000, 30)), read[:, 1:-1], targets[:, 2:]
    differ = first != previous
    n = differ.sum()
    assert abs(n - 120_000 * 23 / 24) < 5 * math.sqrt(120_000 * 23) / 24
    for source, share in ((first, 0.5), (previous, 0.3), (read[:, 2:], 0.0)):  # the token just read tells nothing
        clear = differ & ((read[:, 2:] != first) & (read[:, 2:] != previous) if share == 0 else True)
        p = share + 0.2 / 24
        assert abs((source == asked)[clear].mean() - p) < 5 * math.sqrt(p * (1 - p) / clear.sum())
    assert abs((targets[:, 0] == read[:, 0]).mean() - 0.8 - 0.2 / 24) < 5 * math.sqrt(0.2 * 0.8 / 4000)


def test_true_rows_by_hand():
    rows = true_rows(3)
    expected = [[1, 0, 0], [0.5 + 0.3 + 0.1, 0.1, 0], [0.5 + 0.2 / 3, 0.3 + 0.2 / 3, 0.2 / 3]]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-15)


def test_best_possible_by_enumeration(monkeypatch):
    """All sequences of three tokens over three symbols: the mean entropy of the answer given all that was read, its largest probability."""
    monkeypatch.setattr(mixture_problem, "NUM_SYMBOLS", 3)
    nll = accuracy = 0.0
    for word in product(range(3), repeat=3):
        for place in range(3):
            options = [0.5 * (to == word[0]) + 0.3 * (to == word[max(place - 1, 0)]) + 0.2 / 3 for to in range(3)]
            nll -= sum(p * math.log(p) for p in options) / 27
            accuracy += max(options) / 27
    best = best_possible(3)
    assert best.nll_nats == pytest.approx(nll / 3, abs=1e-12) and best.accuracy == pytest.approx(accuracy / 3, abs=1e-12)


def test_the_chance_of_the_card():
    assert math.log(24) - best_possible(32).nll_nats == pytest.approx(GUESS_EXCESS, abs=1e-4)


def test_the_error_of_attention_to_every_key_alike():
    """Of n keys, two are to have more than 1 / n and n - 2 less, by 0.8 / n each; of two keys the second is to have 0.1."""
    assert np.mean([0.4] + [0.8 * (n - 2) / n for n in range(3, 33)]) == pytest.approx(FLAT_ERROR, abs=1e-4)
    flat = np.tril(np.ones((32, 32))) / np.arange(1, 33)[:, None]
    assert total_variation(flat, true_rows(32))[1:].mean() == pytest.approx(FLAT_ERROR, abs=1e-4)
