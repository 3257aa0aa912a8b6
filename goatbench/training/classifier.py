"""The LightningModule that trains an image classifier. It knows a net and a recipe; nothing of data, tasks or attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from ..errors import UsageError
from ..spec import AugmentationSpec, TrainingSpec
from .module import TrainingModule

Batch = tuple[Tensor, Tensor, Tensor]  # images [B, C, H, W], labels [B] int64, sample ids [B] int64


class Classifier(TrainingModule):
    """Trains `net` (images [B, C, H, W] -> logits [B, num_classes]) on (images, labels, ids).

    augmentation: mixup, cutmix and label smoothing (what works on batches); seed: what they are drawn from; the rest: see
    `TrainingModule`.
    After each validation, `validation_top1` is the share of correct validation images, over all ranks.
    """

    selection_direction = "max"
    selected_on = "validation top1 at base resolution"

    def __init__(
        self,
        net: nn.Module,
        training: TrainingSpec,
        augmentation: AugmentationSpec,
        learning_rate: float,
        total_steps: int,
        num_classes: int,
        seed: int = 0,
    ) -> None:
        super().__init__(net, training, learning_rate, total_steps)
        self.seed = seed
        self.mixup = make_mixup(training, augmentation, num_classes)
        self.criterion = make_criterion(training, augmentation)
        self.correct = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        self.validation_top1 = float("nan")

    @property
    def selection_value(self) -> float:
        return self.validation_top1

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, labels, _ = batch
        targets = labels
        if self.mixup is not None:
            images, targets = self.mix(images, labels, batch_idx)
        loss = self.criterion(self.net(images).float(), targets)
        self.check_finite(loss.detach())
        return loss

    def mix(self, images: Tensor, labels: Tensor, batch_idx: int) -> tuple[Tensor, Tensor]:
        """Mixed images [B, C, H, W] and targets [B, num_classes] of the first half, then of the second one backwards.

        How is drawn from (seed, epoch, batch) alone, and image i is mixed with i + B / 2: a rank has every R-th image of a global batch,
        so that each image has the same partner, and the same share of it, for every number of ranks. B is odd where an unreadable image
        was left out: then the last image is the partner of two.
        """
        half = (len(images) + 1) // 2
        order = torch.cat((torch.arange(half), torch.arange(2 * half - 1, half - 1, -1)))  # timm pairs the ends
        order = order.clamp(max=len(images) - 1).to(images.device)
        state = np.random.get_state()
        np.random.seed([self.seed % 2**32, self.current_epoch, batch_idx])  # timm draws from the global generator
        try:
            mixed, targets = self.mixup(images[order], labels[order])
        finally:
            np.random.set_state(state)
        if len(images) % 2:  # row `half` is the last image a second time
            mixed, targets = (torch.cat((part[:half], part[half + 1 :])) for part in (mixed, targets))
        return mixed, targets

    def on_validation_epoch_start(self) -> None:
        self.correct.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels, ids = batch
        logits = self.net(images)
        if not torch.isfinite(logits).all():
            raise FloatingPointError(
                f"a validation logit is not finite in epoch {self.current_epoch + 1}, in the batch of sample {int(ids[0])}"
            )
        self.correct.update(logits, labels)

    def on_validation_epoch_end(self) -> None:
        self.validation_top1 = float(self.correct.compute())  # gathers over the ranks


def make_mixup(recipe: TrainingSpec, augmentation: AugmentationSpec, num_classes: int) -> Any:
    """timm's Mixup (mixup and cutmix in turns, one draw a batch), or None where both are off."""
    if augmentation.mixup == 0 and augmentation.cutmix == 0:
        return None
    smoothing = augmentation.label_smoothing
    if recipe.loss == "binary_cross_entropy" and smoothing > 0:
        raise UsageError(
            f"label_smoothing {smoothing} with binary_cross_entropy and mixup: mixed targets are made 0 or 1, set label_smoothing=0"
        )
    from timm.data import Mixup

    return Mixup(mixup_alpha=augmentation.mixup, cutmix_alpha=augmentation.cutmix, label_smoothing=smoothing, num_classes=num_classes)


def make_criterion(recipe: TrainingSpec, augmentation: AugmentationSpec) -> nn.Module:
    """Cross-entropy on class indices (smoothed here) or on mixed targets (smoothed by Mixup); or binary cross-entropy, a mean over
    images and classes, in which every class present in a mixed image is a positive (DeiT III, arXiv 2204.07118)."""
    is_mixed = augmentation.mixup > 0 or augmentation.cutmix > 0
    if recipe.loss == "cross_entropy":
        return nn.CrossEntropyLoss(label_smoothing=0.0 if is_mixed else augmentation.label_smoothing)
    from timm.loss import BinaryCrossEntropy

    return BinaryCrossEntropy(smoothing=augmentation.label_smoothing, target_threshold=0.0 if is_mixed else None)
