"""From the data part of a specification to images: which source, which of its images, and the name of exactly that. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from .. import registry
from ..errors import UsageError
from ..spec import ImageDataSpec
from .fashion_mnist import FashionMnistEmbedded, FashionMnistFull
from .folder import ImageFolderSource
from .parquet import ImageParquetSource
from .split import SPLITS, ImageSource, Split, balanced_order
from .webdataset import ImageWebdatasetSource

__all__ = [
    "FashionMnistEmbedded",
    "FashionMnistFull",
    "ImageFolderSource",
    "ImageParquetSource",
    "ImageWebdatasetSource",
    "fingerprint_of",
    "load_source",
    "subset",
]


def load_source(data: ImageDataSpec) -> ImageSource:
    """The source that the registry names, given root and class_map. UsageError if the name, the folder or the files are wrong."""
    return registry.image_sources.get(data.name)(data.root, data.class_map)


def subset(source: ImageSource, data: ImageDataSpec, name: str) -> Split:
    """The split, cut to its first num_<name> images in balanced order (split.balanced_order). UsageError if it has fewer."""
    split, wanted = source.split(name), _wanted(data, name)
    if wanted is None:
        return split
    if wanted > len(split):
        raise UsageError(f"data.num_{name}={wanted}: {source.name} has {len(split)} {name} images; give at most that, or null for all")
    return split.take(balanced_order(split.labels)[:wanted])


def fingerprint_of(data: ImageDataSpec, splits: Sequence[str] = SPLITS) -> str:
    """64 hex digits that name the images of these splits: the source's fingerprint and how many are taken.

    Cheap: the embedded set needs its manifest only; a folder is listed, not read. Paths and hosts do not enter, so that the same
    data has the same name everywhere. `splits=("train", "validation")` names what training sees.
    """
    return combine(load_source(data).fingerprint, data, splits)


def combine(source_fingerprint: str, data: ImageDataSpec, splits: Sequence[str] = SPLITS) -> str:
    parts = {"source": source_fingerprint, "rule": "balanced first n", "num": {name: _wanted(data, name) for name in splits}}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _wanted(data: ImageDataSpec, name: str) -> int | None:
    return {"train": data.num_train, "validation": data.num_validation, "test": data.num_test}[name]
