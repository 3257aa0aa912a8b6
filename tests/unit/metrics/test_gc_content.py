"""GC tracks and their comparisons against worked examples, and against scipy where it is installed."""

import math

import numpy as np
import pytest

from goatbench.metrics import gc_content


def dna(text: str) -> np.ndarray:
    return np.array(["ACGTN".index(letter.upper()) + 8 * letter.islower() for letter in text], np.uint8)


def test_gc_counts_only_acgt_and_half_unknown_is_still_a_value():
    windows = np.stack([dna(text) for text in ("ACGT", "gcgc", "CNNA", "CNNN", "NNNN", "aatt")])
    np.testing.assert_array_equal(gc_content.gc_percent(windows), [50, 100, 50, np.nan, np.nan, 0])
    np.testing.assert_array_equal(gc_content.gc_percent(windows.reshape(2, 3, 4)), [[50, 100, 50], [np.nan, np.nan, 0]])


def test_a_track_s_last_window_is_short():
    np.testing.assert_array_equal(gc_content.gc_track(dna("GGGGAAAACG"), 4), [100, 0, 100])
    np.testing.assert_array_equal(gc_content.gc_track(dna("GGGGAAAAC"), 4), [100, 0, np.nan])
    np.testing.assert_array_equal(gc_content.gc_track(dna("GA"), 2), [50])
    with pytest.raises(ValueError, match="window of at least 1"):
        gc_content.gc_track(dna("GA"), 0)


def test_correlations_by_hand():
    """x = 1..5, y = 2 1 4 3 5: r = 8 / 10 (both variances are 10, the covariance sum 8); ranks are the values, so Spearman is .8 too.
    With z = exp(y) Spearman stays, Pearson does not."""
    x, y = np.arange(1, 6), np.array([2, 1, 4, 3, 5])
    assert gc_content.pearson(x, y) == pytest.approx(0.8, abs=1e-15)
    assert gc_content.spearman(x, np.exp(y)) == pytest.approx(0.8, abs=1e-15)
    assert gc_content.pearson(x, np.exp(y)) != pytest.approx(0.8, abs=0.01)
    assert gc_content.pearson(x, 7 - 3 * x) == -1
    np.testing.assert_array_equal(gc_content.ranks([30, 10, 20, 10, 30, 30]), [5, 1.5, 3, 1.5, 5, 5])


def test_what_is_not_defined_is_nan():
    tenths = np.full(6, 0.1)
    assert math.isnan(gc_content.pearson(tenths, np.arange(6)))
    assert math.isnan(gc_content.pearson([1.0], [2.0]))
    empty = gc_content.compare([np.nan, 1.0], [1.0, np.nan])
    assert empty["n"] == 0
    assert all(math.isnan(value) for name, value in empty.items() if name != "n")


def test_pairs_with_a_gap_in_either_track_are_left_out():
    result = gc_content.compare([40.0, np.nan, 50.0, 60.0, 10.0], [44.0, 40.0, np.nan, 50.0, 13.0])
    assert result["n"] == 3
    assert result["mae"] == pytest.approx((4 + 10 + 3) / 3)
    assert result["bias"] == pytest.approx((-4 + 10 - 3) / 3)
    assert result["spearman"] == 1
    with pytest.raises(ValueError, match="one shape"):
        gc_content.compare([1.0], [1.0, 2.0])


def test_wasserstein_by_hand():
    """Moving everything by 3 costs 3; {0, 1} against {0, 1, 2}: areas (1/2 - 1/3) and (1 - 2/3) add to 1/2; order does not matter."""
    values = np.array([40.0, 45.0, 61.0, 44.0])
    assert gc_content.wasserstein(values, values[::-1] + 3) == pytest.approx(3)
    assert gc_content.wasserstein([0, 1], [2, 0, 1, np.nan]) == pytest.approx(1 / 2)
    assert gc_content.wasserstein(values, values[[2, 0, 1, 3]]) == 0


def test_autocorrelation_of_a_wave():
    """A sine of period 8 is its own copy after 8 windows, its mirror after 4, unrelated after 2; a gap removes pairs, no more."""
    wave = np.sin(2 * np.pi * np.arange(800) / 8)
    np.testing.assert_allclose(gc_content.autocorrelation(wave, 8)[[1, 3, 7]], [0, -1, 1], atol=5e-3)
    wave[100] = np.nan
    np.testing.assert_allclose(gc_content.autocorrelation(wave.reshape(2, 400), 8)[[3, 7]], [-1, 1], atol=5e-3)
    assert np.isnan(gc_content.autocorrelation([1.0, 2.0, 4.0], 4)[1:]).all()


def test_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    x, y = rng.integers(20, 60, 300) / 2, rng.integers(20, 60, 300) / 2  # many ties
    y += x / 3
    assert gc_content.pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert gc_content.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert gc_content.wasserstein(x[:170], y) == pytest.approx(stats.wasserstein_distance(x[:170], y), abs=1e-12)
