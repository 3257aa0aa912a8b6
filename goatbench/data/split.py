"""What every image source looks like: named splits of labelled images with stable ids. numpy and Pillow, no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from ..errors import UsageError

SPLITS = ("train", "validation", "test")

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # the normalisation of the published recipes


class Split(Protocol):
    """A map-style sequence of images.

    labels: int64 [n]; ids: int64 [n], stable: they name the image, whatever else is in the split, and seed its augmentation.
    array: uint8 [n, H, W] where the images lie in memory, else None.
    """

    labels: np.ndarray
    ids: np.ndarray
    array: np.ndarray | None

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """The decoded image, mode L or RGB. decode.UnreadableImageError, naming the file, if it cannot be decoded."""
        ...

    def take(self, indices: np.ndarray) -> Split:
        """The split of these images only, in this order."""
        ...


class ImageSource(Protocol):
    """Constructed as `Source(root, class_map)`, both None or a path. Importing and constructing it needs no torch.

    fingerprint: hex hash of the content and its labels; of what is not test alone, a source with exchangeable test images may have a
    training_fingerprint. Where it is of names and sizes alone, `files` are those whose contents `data check` compares, in a fixed order.
    origin: 'real: ...' or 'synthetic: ...' in one line.
    mean, std: one value a native channel, on the scale 0 to 1.
    """

    name: str
    class_names: tuple[str, ...]
    fingerprint: str
    origin: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def split(self, name: str) -> Split: ...


class ArraySplit:
    """Grey images in memory."""

    def __init__(self, array: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
        self.array, self.labels, self.ids = array, labels.astype(np.int64), ids.astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.array[index])

    def take(self, indices: np.ndarray) -> ArraySplit:
        return ArraySplit(self.array[indices], self.labels[indices], self.ids[indices])


class FileImages:
    """What sources of images in files share: parts train and val, of which train is split by the images' names, and fingerprints of names,
    sizes and labels."""

    mean, std = IMAGENET_MEAN, IMAGENET_STD

    @cached_property
    def fingerprint(self) -> str:
        return self._hash(("train", "val"))

    @cached_property
    def training_fingerprint(self) -> str:
        return self._hash(("train",))

    def _hash(self, parts: Sequence[str]) -> str:
        raise NotImplementedError

    @staticmethod
    def _part(split: str) -> str:
        return "val" if split == "test" else "train"

    def _chosen(self, split: str, names: list[str], where: Path) -> tuple[np.ndarray, np.ndarray]:
        """names: of all images of the split's part, in `where`. Which of them are in the split, and their ids. UsageError if none is."""
        part, keep = self._part(split), np.arange(len(names))
        if part == "train":
            keep = keep[held_out(names) == (split == "validation")]
        if not len(keep):
            raise UsageError(f"{where}: too few images: none is left for the split {split}")
        return keep, np.array([stable_hash(f"{part}/{names[k]}") for k in keep], np.int64)


def balanced_order(labels: np.ndarray) -> np.ndarray:
    """The order whose every prefix is as class-balanced as can be: the first image of each class, the second of each, ...

    Within a class the given order stays. int64 [n].
    """
    by_class = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    rank = np.empty(len(labels), np.int64)  # how many of its class come before it
    rank[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.lexsort((labels, rank))


def stable_hash(name: str) -> int:
    """63 bits of the sha256 of a name: an id that does not depend on which other files are there."""
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:8], "big") >> 1


def held_out(names: list[str]) -> np.ndarray:
    """bool [n]: the training images of the fixed 1% that is kept for selection ("minival"), decided by the name of each alone.

    Where that is none (fewer than some hundred images), the one whose name hashes lowest.
    """
    hashes = np.array([stable_hash(f"minival:{name}") for name in names], np.int64)
    chosen = hashes % 100 == 0
    return chosen if chosen.any() else hashes == hashes.min(initial=2**63 - 1)
