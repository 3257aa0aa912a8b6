"""The loss of one training step against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from goatbench.errors import UsageError
from goatbench.spec import AugmentationSpec, TrainingSpec
from goatbench.training.classifier import Classifier


class Constant(nn.Module):
    """The same logits for every image."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(images), -1)


LOGITS = [math.log(1.0), math.log(2.0), math.log(5.0)]  # softmax 1/8, 2/8, 5/8; sigmoid 1/2, 2/3, 5/6
IMAGES, LABELS, IDS = torch.zeros(2, 1, 8, 8), torch.tensor([1, 2]), torch.tensor([10, 11])


def step(loss: str = "cross_entropy", **augmentation: float) -> float:
    recipe = TrainingSpec(epochs=1, batch_size=2, default_learning_rate=1e-3, loss=loss)
    module = Classifier(Constant(LOGITS), recipe, AugmentationSpec(crop_min_scale=1.0, **augmentation), 1e-3, 10, 3)
    return module.training_step((IMAGES.clone(), LABELS, IDS), 0).item()


def test_cross_entropy():
    assert step() == pytest.approx(-(math.log(2 / 8) + math.log(5 / 8)) / 2, rel=1e-6)


def test_label_smoothing_spreads_over_all_classes():
    """0.3 of the mass is uniform over the three classes."""
    uniform = -(math.log(1 / 8) + math.log(2 / 8) + math.log(5 / 8)) / 3
    assert step(label_smoothing=0.3) == pytest.approx(0.7 * step() + 0.3 * uniform, rel=1e-6)


def test_binary_cross_entropy_is_a_mean_over_images_and_classes():
    first = math.log(1 / 2) + math.log(2 / 3) + math.log(1 - 5 / 6)  # label 1
    second = math.log(1 / 2) + math.log(1 - 2 / 3) + math.log(5 / 6)  # label 2
    assert step("binary_cross_entropy") == pytest.approx(-(first + second) / 6, rel=1e-6)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_targets(kind):
    """Two images with labels 1 and 2 mixed with each other: the targets are (w, 1 - w) and (1 - w, w), whose mean is one half each,
    whatever w is; under binary cross-entropy both classes are positives of both images."""
    np.random.seed(0)
    assert step(**{kind: 1.0}) == pytest.approx(-(math.log(2 / 8) + math.log(5 / 8)) / 2, rel=1e-5)
    both = -(math.log(1 / 2) + math.log(2 / 3) + math.log(5 / 6)) / 3
    assert step("binary_cross_entropy", **{kind: 1.0}) == pytest.approx(both, rel=1e-5)


def test_mixup_mixes_the_images():
    recipe = TrainingSpec(epochs=1, batch_size=2, default_learning_rate=1e-3)
    seen = []
    net = Constant(LOGITS)
    net.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    module = Classifier(net, recipe, AugmentationSpec(crop_min_scale=1.0, mixup=1.0), 1e-3, 10, 3)
    np.random.seed(0)
    images = torch.stack([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
    module.training_step((images, LABELS, IDS), 0)
    first, second = float(seen[0][0, 0, 0, 0]), float(seen[0][1, 0, 0, 0])
    assert 0 < first < 1 and first + second == pytest.approx(1)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_two_ranks_mix_as_one_process_does(kind):
    """Eight images of one global batch; rank r has every second one. Cutmix pastes a box at one place, of one size, in all of them."""
    recipe = TrainingSpec(epochs=1, batch_size=8, default_learning_rate=1e-3)
    module = Classifier(Constant(LOGITS), recipe, AugmentationSpec(crop_min_scale=1.0, **{kind: 1.0}), 1e-3, 10, 8, seed=3)
    images, labels = torch.arange(8.0)[:, None, None, None].expand(8, 1, 6, 6).clone(), torch.arange(8)

    def mixed(own: slice, batch: int = 5) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        found, targets = module.mix(images[own].clone(), labels[own], batch)
        half = len(found) // 2
        order = [*range(half), *range(len(found) - 1, half - 1, -1)]
        return {int(labels[own][i]): (found[place], targets[place]) for place, i in enumerate(order)}

    before = np.random.get_state()[1].tolist()
    whole, parts = mixed(slice(None)), mixed(slice(0, None, 2)) | mixed(slice(1, None, 2))
    assert np.random.get_state()[1].tolist() == before
    for label, (image, target) in whole.items():
        assert torch.equal(image, parts[label][0]) and torch.equal(target, parts[label][1])
        assert target.nonzero().flatten().tolist() == sorted((label, (label + 4) % 8))  # two classes: its own and its partner's
    assert not all(torch.equal(image, mixed(slice(None), batch=6)[label][0]) for label, (image, _) in whole.items())


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
@pytest.mark.parametrize(("count", "partners"), [(5, {0: 3, 1: 4, 2: 4, 3: 0, 4: 1}), (1, {0: 0})])
def test_a_batch_that_lost_an_image_is_mixed_too(kind, count, partners):
    """Each image counts once, and none is without a partner but the only one."""
    recipe = TrainingSpec(epochs=1, batch_size=6, default_learning_rate=1e-3)
    augmentation = AugmentationSpec(crop_min_scale=1.0, **{kind: 1.0})
    module = Classifier(Constant(LOGITS), recipe, augmentation, 1e-3, 10, 6, seed=3)
    images, labels = torch.arange(float(count))[:, None, None, None].expand(count, 1, 6, 6).clone(), torch.arange(count)
    found, targets = module.mix(images, labels, 5)
    order = [*range((count + 1) // 2), *range(count - 1, (count + 1) // 2 - 1, -1)]
    assert len(found) == len(targets) == count
    for place, image in enumerate(order):
        assert targets[place].nonzero().flatten().tolist() == sorted({image, partners[image]})
        assert float(found[place].mean()) == pytest.approx(float(targets[place] @ torch.arange(6.0)), abs=1e-5)  # pixels say what labels do


def test_smoothed_binary_targets_are_refused():
    with pytest.raises(UsageError, match="label_smoothing=0"):
        step("binary_cross_entropy", mixup=0.8, label_smoothing=0.1)
