"""Evaluation in one process: counts, non-finite logits, batches that do not fit. Several processes: tests/integration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from goatbench.training.evaluate import EvaluationError, evaluate


def run(net: nn.Module, loader, n: int = 21):
    return evaluate(net, loader, num_examples=n, num_classes=4, device="cpu")


def by_hand(net: nn.Module, loader) -> tuple[np.ndarray, np.ndarray]:
    """(labels, logits) in float64, sample by sample."""
    net = net.eval()
    with torch.no_grad():
        pairs = [(int(label), net(image[None])[0].double().numpy()) for image, label, _ in loader.dataset]
    labels, logits = zip(*pairs, strict=True)
    return np.array(labels), np.stack(logits)


@pytest.mark.parametrize("batch_size", [21, 8, 5, 1])
def test_values_and_flags(net, made_up_loader, batch_size):
    loader = made_up_loader(21, batch_size)
    labels, logits = by_hand(net, loader)
    result = run(net.train(), loader)
    correct = logits.argmax(axis=1) == labels
    nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(21), labels]
    assert 0 < correct.mean() < 1
    assert result.n == 21 and result.top1 == pytest.approx(correct.mean(), rel=1e-6)
    assert result.top1_stderr == pytest.approx(np.sqrt(correct.mean() * (1 - correct.mean()) / 21), rel=1e-6)
    assert result.nll_nats == pytest.approx(nll.mean(), rel=1e-5)
    assert result.nll_stderr == pytest.approx(nll.std(ddof=1) / np.sqrt(21), rel=1e-5)
    assert np.array_equal(np.unpackbits(np.frombuffer(result.correct, np.uint8))[:21].astype(bool), correct)
    assert result.image_nll_nats == pytest.approx(nll, rel=1e-4, abs=1e-6)
    assert result.resolution == (8, 8) and result.batch_size == batch_size
    assert result.images_per_second > 0 and result.peak_memory_bytes > 2**20 and result.peak_memory_method == "rss_since_start"
    assert net.training  # left as it was


def test_flags_are_ordered_by_id_not_by_arrival(net, made_up_loader):
    forward = list(made_up_loader(21, 1))
    there, back = run(net, forward), run(net, forward[::-1])
    assert back.correct == there.correct and np.array_equal(back.image_nll_nats, there.image_nll_nats)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batches: batches[:-1], "16 images evaluated, 16 distinct: each of the 21"),
        (lambda batches: [*batches, batches[0]], "29 images evaluated, 21 distinct"),
        (lambda batches: [*batches[:-1], tuple(part[:5] for part in batches[0])], "21 images evaluated, 16 distinct"),
    ],
)
def test_missing_and_repeated_images_raise(net, made_up_loader, change, message):
    batches = list(made_up_loader(21, 8))
    with pytest.raises(EvaluationError, match=message):
        run(net, change(batches))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_raise_with_resolution_and_sample(net, made_up_loader, value):
    class Broken(nn.Module):
        def forward(self, images):
            logits = net(images)
            logits[images[:, 0, 0, 0] == marker] = value
            return logits

    loader = made_up_loader(21, 8)
    marker = loader.dataset[13][0][0, 0, 0]
    with pytest.raises(EvaluationError, match="not finite at 8x8 px: first for sample 13, 1 in its batch"):
        run(Broken(), loader)


class Hungry(nn.Module):
    """Runs out of memory above `capacity` images, as a GPU would; counts the images that it has finished."""

    def __init__(self, net: nn.Module, capacity: int, error: RuntimeError) -> None:
        super().__init__()
        self.net, self.capacity, self.error, self.finished = net, capacity, error, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) > self.capacity:
            raise self.error
        self.finished += len(images)
        return self.net(images)


CPU_REFUSAL = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
REFUSALS = [torch.OutOfMemoryError("CUDA out of memory"), *map(RuntimeError, ("CUBLAS_STATUS_ALLOC_FAILED when calling", CPU_REFUSAL))]


@pytest.mark.parametrize("error", REFUSALS, ids=["cuda", "cublas", "cpu"])
@pytest.mark.parametrize(("capacity", "used"), [(8, 8), (7, 4), (3, 2), (1, 1)])
def test_out_of_memory_halves_the_batch_and_starts_again(net, made_up_loader, capacity, used, error):
    hungry = Hungry(net, capacity, error)
    result = run(hungry, made_up_loader(21, 8))
    expected = run(net, made_up_loader(21, 8))
    assert result.batch_size == used and hungry.finished == 21
    assert (result.top1, result.correct) == (expected.top1, expected.correct)
    assert result.nll_nats == pytest.approx(expected.nll_nats, rel=1e-5)


def test_out_of_memory_late_in_the_pass_forgets_what_was_counted(net, made_up_loader):
    """The last batch, not the first, is too big: the images before it are evaluated again, and counted once."""
    first, second, third = list(made_up_loader(21, 8))
    batches = [third, tuple(torch.cat(parts) for parts in zip(first, second, strict=True))]
    hungry = Hungry(net, 8, torch.OutOfMemoryError("CUDA out of memory"))
    assert run(hungry, batches).correct == run(net, batches).correct
    assert hungry.finished == 5 + 21


def test_other_errors_and_a_single_image_that_does_not_fit_are_raised(net, made_up_loader):
    with pytest.raises(torch.OutOfMemoryError):
        run(Hungry(net, 0, torch.OutOfMemoryError("CUDA out of memory")), made_up_loader(21, 8))
    with pytest.raises(RuntimeError, match="mat1"):
        run(Hungry(net, 4, RuntimeError("mat1 and mat2 shapes cannot be multiplied")), made_up_loader(21, 8))


def test_two_resolutions_do_not_mix(net, made_up_loader):
    batches = list(made_up_loader(16, 8))
    wide = torch.cat([batches[1][0], batches[1][0]], dim=3)[..., :4, :]  # 4x16: as many pixels
    with pytest.raises(EvaluationError, match="two resolutions"):
        run(net, [batches[0], (wide, *batches[1][1:])], n=16)


def test_a_bfloat16_net_is_given_bfloat16_images(net, made_up_loader):
    loader = made_up_loader(21, 8)
    expected = run(net, loader).nll_nats
    result = run(net.bfloat16(), loader).nll_nats
    assert result == pytest.approx(expected, rel=2e-2) and result != expected


def test_only_the_classes_that_occur_are_compared(net, made_up_loader):
    loader = [batch for batch in made_up_loader(21, 1) if int(batch[1]) in (1, 3)]
    labels, logits = zip(*[(int(label), net.eval()(image)[0].detach().double().numpy()) for image, label, _ in loader], strict=True)
    kept = np.stack(logits)[:, [1, 3]]
    right = np.array([(1, 3)[row.argmax()] == label for row, label in zip(kept, labels, strict=True)])
    nll = [np.log(np.exp(row).sum()) - row[(label - 1) // 2] for row, label in zip(kept, labels, strict=True)]
    among_all = evaluate(net, loader, num_examples=len(loader), num_classes=4, device="cpu")
    result = evaluate(net, loader, num_examples=len(loader), num_classes=4, device="cpu", classes=np.array([1, 3]))
    assert result.top1 == pytest.approx(right.mean()) and result.top5 == 1.0
    assert result.nll_nats == pytest.approx(np.mean(nll), rel=1e-5)
    assert result.nll_nats < among_all.nll_nats
