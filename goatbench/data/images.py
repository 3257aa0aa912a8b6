"""The image data of a run as a LightningDataModule: training stream and exact evaluation at any resolution."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader

from ..errors import UsageError
from ..records.record import DataInfo
from ..spec import ImageDataSpec, ImageEvaluationSpec, ImageSize, VitSpec, sides
from .datasets import EvaluationImages, PreparedImages, TrainingImages
from .order import ShardSampler, TrainSampler, check_validation, training_place
from .sources import combine, load_source, subset
from .split import SPLITS, Split
from .transforms import EvaluationTransform, Normalise, TrainingTransform
from .workers import make_loader


class ImageData(lightning.LightningDataModule):
    """Loaders yield tuples (images float32 [B, C, h, w], labels int64 [B], ids int64 [B]).

    batch_size is that of an optimizer step: over all ranks, and over `accumulate` batches of the loader. rank and world_size are
    the trainer's once one is attached. With Lightning's distributed strategies
    set Trainer(use_distributed_sampler=False): the samplers here shard by themselves, and without padding.
    UsageError for whatever is wrong with names, folders, files, or classes that do not fit the model.
    """

    def __init__(
        self,
        data: ImageDataSpec,
        model: VitSpec,
        evaluation: ImageEvaluationSpec,
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
        self.seed, self.batch_size, self.num_workers = seed, batch_size, num_workers
        self.accumulate, self._rank, self._world_size = accumulate, rank, world_size
        self._splits: dict[str, Split] = {}
        self.source = load_source(data)
        if (found := len(self.source.class_names)) != model.num_classes:
            raise UsageError(f"model.num_classes={model.num_classes}, but {data.name} has {found} classes; set model.num_classes={found}")
        shown = np.unique(self.source.split("test").labels)
        self._test_classes = None if len(shown) == model.num_classes else shown
        if self._test_classes is not None and evaluation.classes == "all":
            raise UsageError(
                f"the test images of {data.name} show {len(shown)} of {model.num_classes} classes: for a test set of fewer classes "
                "(ImageNet-A, -R) set evaluation.classes=present, which compares the logits of these alone; or complete it"
            )
        if self._test_classes is None and evaluation.classes == "present":
            raise UsageError(f"evaluation.classes=present: the test images of {data.name} show every class; leave it at all")
        if batch_size > (found := self.split_size("train")):
            raise UsageError(f"training.batch_size={batch_size}, but {data.name} has {found} training images here; set a smaller one")
        if model.in_chans not in (1, 3):
            raise UsageError(f"model.in_chans={model.in_chans}: images are given as 1 (grey) or 3 (RGB) channels")
        self._evaluation_sets: dict[tuple[str, int, int], EvaluationImages] = {}

    # What the data are

    @cached_property
    def fingerprint(self) -> str:
        """As sources.fingerprint_of."""
        return combine(self.source.fingerprint, self.data)

    @cached_property
    def training_fingerprint(self) -> str:
        """Of what can change trained weights: the test images are left out."""
        whole = self.source.fingerprint
        return combine(getattr(self.source, "training_fingerprint", whole), self.data, ("train", "validation"))

    @property
    def unreadable(self) -> list[int]:
        """Positions in the training split of images that were left out so far: by this process and its workers, and by all ranks up to
        the last checkpoint and from the end of training on."""
        return self._training_set.unreadable.nonzero().flatten().tolist() if "_training_set" in self.__dict__ else []

    @property
    def skipped(self) -> int:
        return len(self.unreadable)

    @property
    def info(self) -> DataInfo:
        counts = {name: self.split_size(name) for name in SPLITS}
        return DataInfo(name=self.data.name, fingerprint=self.fingerprint, counts=counts, source=self.source.origin, skipped=self.skipped)

    def split(self, name: str) -> Split:
        if name not in self._splits:
            self._splits[name] = subset(self.source, self.data, name)
        return self._splits[name]

    def split_size(self, name: str) -> int:
        return len(self.split(name))

    def scored_classes(self, split: str) -> np.ndarray | None:
        """The class indices whose logits an evaluation compares, ascending; None: all. Not all only of a test set that shows fewer."""
        return self._test_classes if split == "test" else None

    @property
    def normalise(self) -> Normalise:
        """The source's statistics, repeated for grey images in three channels, averaged for colour images in one."""
        mean, std, channels = self.source.mean, self.source.std, self.model.in_chans
        if len(mean) == channels:
            return Normalise(mean, std)
        return Normalise((sum(mean) / len(mean),) * channels, (sum(std) / len(std),) * channels)

    # Training

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps."""
        return self.split_size("train") // self.batch_size

    @cached_property
    def _training_set(self) -> TrainingImages:
        transform = TrainingTransform(*sides(self.model.image_size), self.evaluation.interpolation, self.data.augmentation)
        flags = torch.zeros(self.split_size("train"), dtype=torch.uint8).share_memory_()
        return TrainingImages(self.split("train"), transform, self.normalise, self.seed, self.data.max_unreadable, flags)

    def train_loader(self, epoch: int, start_step: int = 0) -> DataLoader:
        """The batches of an epoch from `start_step` on: a function of (seed, epoch) alone."""
        rank, world_size = self._place()
        place = (rank, world_size, self.accumulate)
        sampler = TrainSampler(self.split_size("train"), self.batch_size, self.seed, *place, repeats=self.data.repeats)
        sampler.epoch, sampler.start_step = epoch, start_step
        return make_loader(self._training_set, sampler, sampler.local_batch_size, self.num_workers, drop_last=True)

    def train_dataloader(self) -> DataLoader:
        """For Lightning, which calls sampler.set_epoch before each epoch."""
        epoch, batch = training_place(self.trainer)
        return self.train_loader(epoch, batch // self.accumulate)

    # Evaluation

    def eval_loader(self, split: str, pixels: ImageSize) -> DataLoader:
        """This rank's share of the split at `pixels` (a side, or height and width): over all ranks every image exactly once."""
        height, width = sides(pixels)
        key = split, height, width
        if key not in self._evaluation_sets:
            images = self.split(split)
            transform = EvaluationTransform(height, width, self.evaluation.crop_at(height, width), self.evaluation.interpolation)
            kind = EvaluationImages if images.array is None else PreparedImages
            self._evaluation_sets[key] = kind(images, transform, self.normalise)
        dataset = self._evaluation_sets[key]
        workers = 0 if isinstance(dataset, PreparedImages) else self.num_workers  # nothing is left to do for a worker
        sampler = ShardSampler(len(dataset), *self._place())
        return make_loader(dataset, sampler, self.eval_batch_size(height, width), workers, drop_last=False)

    def eval_batch_size(self, height: int, width: int) -> int:
        """batch_tokens // tokens of an image, at least 1. UsageError if the size is no multiple of the patch."""
        patch = self.model.patch_size
        if height % patch or width % patch or min(height, width) <= 0:
            raise UsageError(f"{height}x{width} px is not a multiple of model.patch_size={patch}")
        tokens = (height // patch) * (width // patch) + self.model.class_token + self.model.num_reg_tokens
        return max(1, self.evaluation.batch_tokens // tokens)

    def val_dataloader(self) -> DataLoader:
        """The validation split at base resolution: what checkpoints are selected on."""
        check_validation(self.split_size("validation"), self._place()[1])
        return self.eval_loader("validation", self.model.image_size)

    # Both

    def state_dict(self) -> dict[str, Any]:
        """For Lightning's checkpoints, which asks every rank: which training images could not be read."""
        self._share_unreadable()
        return {"unreadable": self._training_set.unreadable}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._training_set.unreadable.copy_(state_dict["unreadable"])

    def count_unreadable(self, positions: list[int]) -> None:
        """Images that an earlier training on the same split had to leave out: each counts once."""
        for position in positions:
            self._training_set.unreadable[position] = 1

    def teardown(self, stage: str) -> None:
        """Lightning calls this on every rank when training is done."""
        if stage == "fit":
            self._share_unreadable()

    def _share_unreadable(self) -> None:
        """Gives each rank the flags of all. In between, each holds max_unreadable against what it has seen itself."""
        if self.trainer is not None and self.trainer.world_size > 1:
            flags, strategy = self._training_set.unreadable, self.trainer.strategy
            flags |= strategy.reduce(flags.to(strategy.root_device, copy=True), reduce_op="max").cpu()

    def _place(self) -> tuple[int, int]:
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
        return self._rank, self._world_size
