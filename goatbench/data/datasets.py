"""Batches of (images, labels, ids) for the loaders. A DataLoader asks these for whole batches at once (`__getitems__`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import UsageError
from .decode import UnreadableImageError
from .order import Draw
from .philox import AUGMENTATION, uniforms
from .split import Split
from .transforms import NUM_UNIFORMS, EvaluationTransform, Normalise, TrainingTransform, to_array, with_channels
from .workers import Batches

COPY = 0x1E3779B97F4A7C15  # any odd number: the id of copy c is the image's, exclusive-or c times this
Batch = tuple[Tensor, Tensor, Tensor]  # images float32 [B, C, h, w], labels int64 [B], ids int64 [B]


@dataclass
class TrainingImages(Batches):
    """Augmented training images. What a sample looks like depends on (seed, epoch, its id) and on nothing else. A further copy of an
    image in an epoch has an id of its own, and so another look.

    An image that cannot be decoded is dropped: the batch is smaller by it, and its flag in `unreadable` (uint8 [n], in shared
    memory, so that worker processes count into it too) is set. UsageError, naming the file, beyond max_unreadable images, and
    if a batch has no readable image at all.
    """

    split: Split
    transform: TrainingTransform
    normalise: Normalise
    seed: int
    max_unreadable: int
    unreadable: Tensor
    _opened: dict[int, Image.Image] = field(default_factory=dict, repr=False)  # of in-memory sets: opening costs as much as resizing

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_opened": {}}

    def __len__(self) -> int:
        return len(self.split)

    def batch(self, draws: list[Draw]) -> Batch:
        (epoch,) = {draw.epoch for draw in draws}
        images, kept, copies = [], [], []
        for draw in draws:
            if (image := self._open(draw.index)) is not None:
                images.append(image)
                kept.append(draw.index)
                copies.append(draw.copy)
        if not images:
            raise UsageError(f"none of the {len(draws)} images of a batch could be decoded; check the data")
        ids = self.split.ids[kept] ^ (np.array(copies, np.int64) * COPY & np.iinfo(np.int64).max)
        numbers = uniforms(self.seed, epoch, ids, NUM_UNIFORMS, AUGMENTATION)
        boxes = self.transform.boxes(numbers, np.array([image.size for image in images]))
        arrays = np.stack([to_array(self.transform(*of_one)) for of_one in zip(images, boxes, numbers, strict=True)])
        flips = self.transform.flips(numbers)
        arrays[flips] = arrays[flips][..., ::-1]
        return self.normalise(torch.from_numpy(arrays)), torch.from_numpy(self.split.labels[kept]), torch.from_numpy(ids)

    def _open(self, index: int) -> Image.Image | None:
        if index in self._opened:
            return self._opened[index]
        try:
            image = with_channels(self.split.image(index), len(self.normalise.mean))
        except UnreadableImageError as error:
            self.unreadable[index] = 1
            if (count := int(self.unreadable.sum())) > self.max_unreadable:
                raise UsageError(f"{error}; {count} unreadable, data.max_unreadable={self.max_unreadable} may be left out") from error
            return None
        if self.split.array is not None:
            self._opened[index] = image
        return image


@dataclass
class EvaluationImages(Batches):
    """Images of one size for evaluation. UsageError, naming the file, if one cannot be decoded: none is ever left out."""

    split: Split
    transform: EvaluationTransform
    normalise: Normalise

    def __len__(self) -> int:
        return len(self.split)

    def batch(self, indices: list[int]) -> Batch:
        return self.normalise(self.pixels(indices)), torch.from_numpy(self.split.labels[indices]), torch.from_numpy(self.split.ids[indices])

    def pixels(self, indices: list[int]) -> Tensor:
        """uint8 [B, C, h, w]."""
        return torch.from_numpy(np.stack([to_array(self.transform(self._open(index))) for index in indices]))

    def _open(self, index: int) -> Image.Image:
        try:
            return with_channels(self.split.image(index), len(self.normalise.mean))
        except UnreadableImageError as error:
            raise UsageError(f"{error}; evaluation counts every image: repair or remove the file") from error


class PreparedImages(EvaluationImages):
    """The same for images in memory: all are resized once, on first use."""

    _pixels: Tensor | None = None

    def pixels(self, indices: list[int]) -> Tensor:
        if self._pixels is None:
            self._pixels = super().pixels(list(range(len(self))))
        return self._pixels[indices]
