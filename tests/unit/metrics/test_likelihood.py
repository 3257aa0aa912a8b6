"""Likelihood of tokens by hand, and standard errors against simulation and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from goatbench.metrics.likelihood import LikelihoodResult, TokenLikelihood, paired_difference, ratio_stderr, token_nll


def test_token_nll_by_hand():
    """Odds 1 : 2 : 5 over three tokens of which two are scored; -100 and tokens of no use are not."""
    logits = torch.tensor([1.0, 2.0, 5.0]).log().expand(1, 4, 3) + 7
    nll, is_scored = token_nll(logits, torch.tensor([[1, 2, -100, 0]]), num_scored=2)
    assert is_scored.tolist() == [[True, False, False, True]]
    torch.testing.assert_close(nll, torch.tensor([[math.log(8 / 2), 0, 0, math.log(8)]]))


def test_half_precision_logits_are_scored_in_float32():
    logits = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = torch.arange(14).view(2, 7) % 5
    nll, _ = token_nll(logits, targets, 5)
    expected = -logits.double().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll.double(), expected, rtol=1e-6, atol=1e-6)


def test_the_metric_weighs_tokens_not_updates():
    metric = TokenLikelihood(2)
    logits = torch.tensor([1.0, 3.0]).log()
    metric.update(logits.expand(1, 3, 2), torch.tensor([[0, 0, 0]]))
    metric.update(logits.expand(1, 3, 2), torch.tensor([[1, 2, 2]]))
    assert float(metric.compute()) == pytest.approx((3 * math.log(4) + math.log(4 / 3)) / 4, rel=1e-6)
    assert metric.to(torch.bfloat16).total.dtype == torch.float64
    metric.reset()
    assert math.isnan(metric.compute())


def test_equal_windows_have_the_textbook_standard_error():
    values = np.array([1.0, 2.0, 4.0, 7.0])
    counts = np.full(4, 10)
    assert ratio_stderr(10 * values, counts) == pytest.approx(values.std(ddof=1) / 2)
    assert ratio_stderr(values[:1], counts[:1]) is None


def test_standard_error_of_unequal_windows_matches_its_spread_over_samples():
    """2,000 samples of 60 windows with 5 to 50 targets whose mean nll differs by window."""
    rng = np.random.default_rng(0)
    counts = rng.integers(5, 51, (2000, 60))
    totals = counts * (1.3 + 0.2 * rng.standard_normal((2000, 60)))
    means = totals.sum(1) / counts.sum(1)
    claimed = np.mean([ratio_stderr(t, c) for t, c in zip(totals, counts, strict=True)])
    assert claimed == pytest.approx(means.std(ddof=1), rel=0.06)


def test_groups_are_summed_first():
    """Windows of one group that are copies of each other tell no more than one of them."""
    totals, counts = np.array([3.0, 5.0, 9.0]), np.array([4, 4, 4])
    alone = ratio_stderr(totals, counts)
    assert ratio_stderr(np.repeat(totals, 3), np.repeat(counts, 3), np.repeat([7, 1, 4], 3)) == pytest.approx(alone)
    assert ratio_stderr(np.repeat(totals, 3), np.repeat(counts, 3)) < 0.7 * alone


def test_paired_difference_removes_what_windows_share():
    rng = np.random.default_rng(1)
    shared, counts = 100 * rng.random(50), np.full(50, 20)
    noise = rng.standard_normal(50)
    mean, stderr = paired_difference(shared + noise + 4, shared, counts)
    assert mean == pytest.approx((noise.mean() + 4) / 20)
    assert stderr == pytest.approx(noise.std(ddof=1) / math.sqrt(50) / 20)


def test_result_properties_by_hand():
    result = LikelihoodResult(
        context=3, first_context=2, window_ids=np.array([0, 4]), window_nll=np.array([2.0, 1.0]), window_count=np.array([2, 1]),
        window_correct=np.array([1, 0]), position_nll=np.array([2.5, 0.5, 0.0]), position_count=np.array([2, 1, 0]),
        position_correct=np.array([1, 0, 0]), masked_nll_total=0.5, masked_count=1,
        unscored_mass_total=0.3, tokens_per_second=1.0, tokens_per_second_method="m", peak_memory_bytes=1,
        peak_memory_method="rss", batch_size=2,
    )  # fmt: skip
    assert (result.count, result.nll_nats) == (3, 1.0)
    assert result.nll_stderr == pytest.approx(0.0)  # both windows have 1 nat a target
    assert result.position_nll_nats.tolist()[:2] == [1.25, 0.5] and math.isnan(result.position_nll_nats[2])
