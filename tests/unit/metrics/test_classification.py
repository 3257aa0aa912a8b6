"""Classification metrics against brute force in numpy float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goatbench.metrics.classification import ClassificationMetrics, binomial_stderr

NUM_CLASSES = 10


def brute_force(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """From the definitions, example by example."""
    logits = logits.astype(np.float64)
    n = len(labels)
    nll, top1, top5, confidence = [], [], [], []
    for row, label in zip(logits, labels, strict=True):
        shifted = row - row.max()
        p = np.exp(shifted) / np.exp(shifted).sum()
        nll.append(np.log(np.exp(shifted).sum()) - shifted[label])
        ranked = sorted(range(len(row)), key=lambda c: -row[c])
        top1.append(ranked[0] == label)
        top5.append(label in ranked[:5])
        confidence.append(p.max())
    ece = 0.0
    for b in range(15):
        members = [i for i in range(n) if b == min(int(confidence[i] * 15), 14)]
        if members:
            gap = np.mean([top1[i] for i in members]) - np.mean([confidence[i] for i in members])
            ece += len(members) / n * abs(gap)
    return {
        "n": n,
        "top1": np.mean(top1),
        "top5": np.mean(top5),
        "nll_nats": np.mean(nll),
        "nll_stderr": np.std(nll, ddof=1) / np.sqrt(n),
        "ece": ece,
    }


def measured(logits: torch.Tensor, labels: torch.Tensor, sizes: list[int]) -> dict[str, float]:
    metrics = ClassificationMetrics(NUM_CLASSES)
    for part_logits, part_labels in zip(logits.split(sizes), labels.split(sizes), strict=True):
        metrics.update(part_logits, part_labels)
    return metrics.compute()


@pytest.fixture
def outputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, NUM_CLASSES, (101,), generator=generator)
    logits = 2 * torch.randn(101, NUM_CLASSES, generator=generator)
    logits[torch.arange(101), labels] += 1.5
    return logits, labels


@pytest.mark.parametrize("sizes", [[101], [32, 32, 32, 5], [100, 1], [1] * 101])
def test_equals_brute_force_for_any_batches(outputs, sizes):
    logits, labels = outputs
    expected = brute_force(logits.numpy(), labels.numpy())
    assert 0.2 < expected["top1"] < expected["top5"] < 1 and expected["ece"] > 0.01
    assert measured(logits, labels, sizes) == pytest.approx(expected, rel=1e-5)


def test_a_small_last_batch_weighs_by_its_examples():
    """32 right and 1 wrong: 32/33, not the mean of batch means (1 + 0) / 2."""
    labels = torch.zeros(33, dtype=torch.int64)
    logits = torch.zeros(33, NUM_CLASSES)
    logits[:32, 0] = 3.0
    logits[32, 7] = 3.0
    result = measured(logits, labels, [32, 1])
    assert result["top1"] == pytest.approx(32 / 33, rel=1e-6)
    right, wrong = np.log(1 + 9 * np.exp(-3.0)), np.log(np.exp(3.0) + 9)
    assert result["nll_nats"] == pytest.approx((32 * right + wrong) / 33, rel=1e-6)


def test_accuracy_is_a_share_of_examples_not_a_mean_over_classes():
    """Class 0: 3 of 3, class 1: 0 of 1. Micro 3/4; the mean over classes would be 1/2."""
    logits = torch.eye(NUM_CLASSES)[[0, 0, 0, 2]]
    assert measured(logits, torch.tensor([0, 0, 0, 1]), [4])["top1"] == 0.75


def test_certain_predictions_stay_in_the_fifteenth_bin():
    """Confidence 1 (rounded) and 14.5 / 15 belong to one bin: half of it is right, so the gap is |1/2 - mean confidence|."""
    high = 14.5 / 15
    certain, sure = torch.zeros(NUM_CLASSES), torch.zeros(NUM_CLASSES)
    certain[0], sure[0] = 200.0, np.log(high * 9 / (1 - high))
    result = measured(torch.stack([certain, sure]), torch.tensor([0, 1]), [2])
    assert result["ece"] == pytest.approx((1 + high) / 2 - 0.5, abs=1e-5)  # two bins would give (0 + high) / 2


def test_a_confidently_wrong_example_has_the_exact_nll():
    """-log p far beyond what exp() of a float32 can hold: 200 + log(1 + 9 exp(-200))."""
    logits = torch.zeros(2, NUM_CLASSES)
    logits[:, 0] = 200.0
    assert measured(logits, torch.tensor([1, 0]), [2])["nll_nats"] == pytest.approx(100.0, rel=1e-6)


def test_bfloat16_logits_are_scored_in_float32(outputs):
    logits, labels = outputs[0].bfloat16(), outputs[1]
    result = measured(logits, labels, [101])
    expected = brute_force(logits.float().numpy(), labels.numpy())
    for name in ("nll_nats", "ece"):
        assert result[name] == pytest.approx(expected[name], rel=1e-5)


def test_binomial_stderr():
    assert binomial_stderr(0.5, 100) == pytest.approx(0.05)
    assert binomial_stderr(0.9, 900) == pytest.approx(0.01)
    assert binomial_stderr(1.0, 10) == 0.0
