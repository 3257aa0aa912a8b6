"""Local tar shards in the layout of webdataset: members KEY.jpg and KEY.cls (a class index or a WordNet id).

Any image is read at its offset (tar_index), so that tar shards train, and are evaluated, in the same order as the same images in
a folder would be: drawn from (seed, epoch), for any number of workers and processes. The package webdataset is not needed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import UsageError
from .class_map import classes_of
from .decode import UnreadableImageError, decode
from .image_shards import ShardImages, check_numbering
from .tar_index import index_shards

PARTS = {"train": ("train",), "val": ("validation", "val")}  # a word of a shard's name: imagenet1k-train-0000.tar
_WNID = re.compile(r"(n\d{8})_")  # how ImageNet's own files begin


class TarSplit:
    """Images in tars. places: int64 [n, 3] = shard, offset, size in bytes."""

    array = None

    def __init__(
        self, root: str, shards: tuple[str, ...], places: np.ndarray, names: np.ndarray, labels: np.ndarray, ids: np.ndarray
    ) -> None:
        self._root, self._shards, self._places, self._names, self.labels, self.ids = root, shards, places, names, labels, ids

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        shard, offset, size = (int(value) for value in self._places[index])
        path = Path(self._root, self._shards[shard])
        where = f"{path} {os.fsdecode(bytes(self._names[index]))}"
        try:
            with path.open("rb", buffering=0) as file:
                content = os.pread(file.fileno(), size, offset)
        except OSError as error:
            raise UnreadableImageError(where, error.strerror or str(error)) from error
        return decode(io.BytesIO(content), where)

    def take(self, indices: np.ndarray) -> TarSplit:
        return TarSplit(self._root, self._shards, self._places[indices], self._names[indices], self.labels[indices], self.ids[indices])


class ImageWebdatasetSource(ShardImages):
    """Shards *train*.tar and *validation*.tar (or *val*.tar) in `root` or `root`/data.

    train, validation, test: as in an image folder, minival chosen by "<shard>:<member>". Classes: the indices in .cls, with the
    WordNet ids for names where every training image of a class begins with one ("n01440764_10026.jpg"), as in ImageNet; or the WordNet
    ids in .cls, numbered as for an image folder (class_map.classes_of). fingerprint: hash of the shards' names and sizes, the members'
    names, sizes and labels.
    """

    name = "image_webdataset"
    origin = "real: local tar shards; validation = fixed 1% of train by shard and member, test = validation shards"

    def __init__(self, root: str | None = None, class_map: str | None = None) -> None:
        if root is None:
            raise UsageError("image_webdataset needs data.root=FOLDER, with *train*.tar and *validation*.tar")
        self._class_map = class_map
        shown = {part: [f"*{word}*.tar" for word in words] for part, words in PARTS.items()}
        super().__init__(root, ".tar", shown, lambda name, part: not set(re.split(r"[-_.]", name)).isdisjoint(PARTS[part]))

    @cached_property
    def _index(self) -> dict[str, tuple[np.ndarray, np.ndarray, list[str]]]:
        """part -> places [n, 3], names [n], labels as they stand in .cls."""
        index = {}
        for part, shards in self._shards.items():
            found = index_shards(self._root / shard for shard in shards)
            places = [np.insert(one.places, 0, number, axis=1) for number, one in enumerate(found)]
            index[part] = np.concatenate(places), np.concatenate([one.names for one in found]), [x for one in found for x in one.labels]
        return index

    @cached_property
    def _classes(self) -> dict[str, int]:
        """label in .cls -> class index."""
        labels = {part: set(found) for part, (_, _, found) in self._index.items()}
        numbers = {label for label in labels["train"] | labels["val"] if label.isdigit()}
        if numbers:
            return self._numbered(labels, numbers)
        if odd := sorted(labels["val"] - labels["train"]):
            raise UsageError(f"{self._root}: class '{odd[0]}' is in the validation shards and not in those of training ({len(odd)} such)")
        return classes_of(sorted(labels["train"]), self._class_map, str(self._root))

    def _numbered(self, labels: dict[str, set[str]], numbers: set[str]) -> dict[str, int]:
        if words := sorted((labels["train"] | labels["val"]) - numbers):
            raise UsageError(f"{self._root}: .cls holds class indices in some samples and '{words[0]}' in others")
        if self._class_map is not None:
            raise UsageError("image_webdataset takes no class_map where .cls holds class indices")
        if (most := max(map(int, numbers))) >= (count := sum(len(found) for _, _, found in self._index.values())):
            raise UsageError(f"{self._root}: .cls holds class {most}, but there are {count} images in all")
        check_numbering(self._root, *({int(label) for label in labels[part]} for part in ("train", "val")))
        return {label: int(label) for label in numbers}

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        if not next(iter(self._classes)).isdigit():
            return tuple(sorted(self._classes, key=self._classes.__getitem__))
        wnids: dict[int, set[str]] = {k: set() for k in range(1 + max(self._classes.values()))}
        _, names, labels = self._index["train"]
        for name, label in zip(names.tolist(), labels, strict=True):
            begins = _WNID.match(os.fsdecode(name).rpartition("/")[2])
            wnids[int(label)].add(begins[1] if begins else "")
        every = [next(iter(found)) if len(found) == 1 else "" for found in wnids.values()]
        return tuple(every) if all(every) and len(set(every)) == len(every) else tuple(map(str, wnids))

    def _hash(self, parts: Sequence[str]) -> str:
        whole = hashlib.sha256()
        for part in parts:
            whole.update(self._sizes(part))
            places, names, labels = self._index[part]
            for (_, _, size), name, label in zip(places.tolist(), names.tolist(), labels, strict=True):
                whole.update(f"{size}\0{self._classes[label]}\0".encode() + name + b"\n")
        return whole.hexdigest()

    def split(self, name: str) -> TarSplit:
        part = self._part(name)
        (places, names, labels), shards = self._index[part], self._shards[part]
        called = [f"{shards[shard]}:{os.fsdecode(member)}" for (shard, _, _), member in zip(places.tolist(), names.tolist(), strict=True)]
        keep, ids = self._chosen(name, called, self._root)
        classes = np.array([self._classes[labels[i]] for i in keep], np.int64)
        return TarSplit(str(self._root), shards, places[keep], names[keep], classes, ids)
