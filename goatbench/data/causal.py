"""What the data of every causal model have in common: training batches in an order of their own, exact evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
from torch.utils.data import DataLoader, Dataset

from ..errors import UsageError
from ..spec import DecoderSpec
from .order import ShardSampler, TrainSampler, check_validation, training_place
from .workers import Collated, make_loader


class CausalData(lightning.LightningDataModule):
    """Training batches are (tokens int64 [B, L + 1], ids [B]); evaluation batches too, and what `collate` adds.

    Subclasses give `num_train` (samples an epoch), `training_set` (asked for with order.Draw) and `validation_windows`. Windows are
    data sets of one length with a `context`, their input tokens. batch_size is that of an optimizer step, over all ranks and
    `accumulate` batches.
    """

    is_shuffled = True
    collate: Callable[[list], Any] | None = None
    num_train: int
    training_set: Dataset
    validation_windows: Any

    def __init__(
        self,
        data: Any,
        model: DecoderSpec,
        evaluation: Any,
        *,
        seed: int,
        batch_size: int,
        num_workers: int = 0,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__()
        self.data, self.model, self.evaluation = data, model, evaluation
        self.seed, self.batch_size, self.num_workers, self.accumulate = seed, batch_size, num_workers, accumulate
        self._rank, self._world_size = rank, world_size

    def check_batch_size(self) -> None:
        """UsageError if an epoch would have no step."""
        if self.batch_size > self.num_train:
            raise UsageError(f"training.batch_size={self.batch_size}, but an epoch has {self.num_train} windows here; set a smaller one")

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps."""
        return self.num_train // self.batch_size

    def train_loader(self, epoch: int, start_step: int = 0) -> DataLoader:
        """The batches of an epoch from `start_step` on: a function of (seed, epoch) alone."""
        sampler = TrainSampler(self.num_train, self.batch_size, self.seed, *self._place(), self.accumulate, self.is_shuffled)
        sampler.epoch, sampler.start_step = epoch, start_step
        return make_loader(Collated(self.training_set), sampler, sampler.local_batch_size, self.num_workers, drop_last=True)

    def train_dataloader(self) -> DataLoader:
        """For Lightning, which calls sampler.set_epoch before each epoch."""
        epoch, batch = training_place(self.trainer)
        return self.train_loader(epoch, batch // self.accumulate)

    def val_dataloader(self) -> DataLoader:
        """What checkpoints are selected on."""
        check_validation(len(self.validation_windows), self._place()[1])
        return self.eval_loader(self.validation_windows)

    def eval_loader(self, windows: Any) -> DataLoader:
        """This rank's share: over all ranks every window exactly once."""
        sampler = ShardSampler(len(windows), *self._place())
        batch_size = max(1, self.evaluation.batch_tokens // windows.context)
        return make_loader(Collated(windows, self.collate), sampler, batch_size, self.num_workers, drop_last=False)

    def _place(self) -> tuple[int, int]:
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
        return self._rank, self._world_size
