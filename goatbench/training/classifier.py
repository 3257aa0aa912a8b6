"""The LightningModule that trains an image classifier. It knows a net and a recipe; nothing of data, tasks or attention."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from ..errors import UsageError
from ..spec import AugmentationSpec, TrainingSpec
from .optim import make_optimizer, make_schedule

Batch = tuple[Tensor, Tensor, Tensor]  # images [B, C, H, W], labels [B] int64, sample ids [B] int64
FINITE_CHECK_INTERVAL = 50  # steps between two looks at the loss on an accelerator, where each look waits for the device


class Classifier(lightning.LightningModule):
    """Trains `net` (images [B, C, H, W] -> logits [B, num_classes]) on (images, labels, ids).

    training: optimizer, schedule, loss; augmentation: mixup, cutmix and label smoothing (what works on batches).
    learning_rate: the peak; total_steps: optimizer steps of the whole training, for the schedule.
    After each validation, `validation_top1` is the share of correct validation images, over all ranks.
    A loss that is not finite raises FloatingPointError with its step (on an accelerator at most 50 steps later).
    """

    def __init__(
        self,
        net: nn.Module,
        training: TrainingSpec,
        augmentation: AugmentationSpec,
        learning_rate: float,
        total_steps: int,
        num_classes: int,
    ) -> None:
        super().__init__()
        self.net = net
        self.recipe = training  # `training` is nn.Module's own flag
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.mixup = make_mixup(training, augmentation, num_classes)
        self.criterion = make_criterion(training, augmentation)
        self.correct = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        self.validation_top1 = float("nan")
        self._first_bad_step: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, labels, _ = batch
        targets = labels
        if self.mixup is not None:
            if len(images) % 2:
                raise UsageError(
                    f"mixup and cutmix pair the images of a batch: batch size {len(images)} a process is odd, choose an even one"
                )
            images, targets = self.mixup(images, labels)
        loss = self.criterion(self.net(images).float(), targets)
        self._check_finite(loss.detach())
        return loss

    def _check_finite(self, loss: Tensor) -> None:
        step = self.global_step
        if loss.device.type == "cpu":
            if not torch.isfinite(loss):
                raise FloatingPointError(f"the training loss became {loss.item()} in step {step}")
            return
        if self._first_bad_step is None:
            self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=loss.device)
        is_new = ~torch.isfinite(loss) & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_new, step, self._first_bad_step)
        if step % FINITE_CHECK_INTERVAL == 0 or step + 1 == self.total_steps:
            bad = int(self._first_bad_step)
            if bad >= 0:
                raise FloatingPointError(f"the training loss was no longer finite in step {bad}")

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

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object) -> None:
        # by hand: Lightning refuses to clip for a fused optimizer under mixed precision, and loops over the parameters
        if self.recipe.clip_norm is not None:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.recipe.clip_norm, foreach=True)

    def configure_optimizers(self) -> dict:
        optimizer = make_optimizer(self.net, self.recipe, self.learning_rate)
        schedule = make_schedule(optimizer, self.recipe, self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def make_mixup(recipe: TrainingSpec, augmentation: AugmentationSpec, num_classes: int) -> Any:
    """timm's Mixup (mixup and cutmix in turns, one draw a batch from numpy's global generator), or None where both are off."""
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
