"""Fashion-MNIST: the subset inside the package, and the whole set from a local folder. Grey 28 x 28, ten balanced classes.

Ids: the index in the original training file, or 60,000 plus the index in the original test file; equal in both classes.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path

import numpy as np

from ..errors import UsageError
from .idx import find_idx, read_idx
from .split import ArraySplit

CLASS_NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
MEAN, STD = (0.2860,), (0.3530,)  # of the 60,000 training images
NUM_TRAIN_ORIGINAL = 60_000
NUM_VALIDATION_FULL = 5_000


class FashionMnistEmbedded:
    """12,000 training, 2,000 validation and 4,000 test images that ship with the package; no image occurs twice.

    The manifest beside the file says how they were chosen. UsageError if the file is not the one that the manifest names.
    """

    name = "fashion_mnist"
    class_names = CLASS_NAMES
    mean, std = MEAN, STD

    def __init__(self, root: str | None = None, class_map: str | None = None, folder: Path | None = None) -> None:
        if root is not None or class_map is not None:
            raise UsageError("fashion_mnist ships with the package: no data.root or class_map (data=fashion_mnist_full reads a folder)")
        self._folder = folder or Path(str(files("goatbench.data.embedded")))
        self._manifest = json.loads((self._folder / "fashion_mnist.json").read_text())
        self.origin = f"real: {self._manifest['source']}; {self._manifest['recipe']}"
        self.fingerprint = self._manifest["sha256_decompressed"]

    @cached_property
    def _splits(self) -> dict[str, ArraySplit]:
        raw = _decompressed(self._folder / self._manifest["file"], self._manifest["sha256"])
        height, width = self._manifest["image_size"]
        counts = {name: split["count"] for name, split in self._manifest["splits"].items()}
        total = sum(counts.values())
        images = np.frombuffer(raw, np.uint8, total * height * width).reshape(total, height, width)
        labels = np.frombuffer(raw, np.uint8, total, offset=images.nbytes)
        ids = np.frombuffer(raw, "<u2", total, offset=images.nbytes + total).astype(np.int64)
        splits, start = {}, 0
        for name, count in counts.items():
            part = slice(start, start + count)
            splits[name] = ArraySplit(images[part], labels[part], ids[part] + NUM_TRAIN_ORIGINAL * (name == "test"))
            start += count
        return splits

    def split(self, name: str) -> ArraySplit:
        return self._splits[name]


@cache  # half a second, 14 MB, read-only: a process that makes several data modules pays once
def _decompressed(path: Path, sha256: str) -> bytes:
    packed = path.read_bytes()
    if (found := hashlib.sha256(packed).hexdigest()) != sha256:
        raise UsageError(f"{path.name}: sha256 is {found[:16]}.., the manifest says {sha256[:16]}..; reinstall goatbench")
    return lzma.decompress(packed)


class FashionMnistFull:
    """All 70,000 images from the four IDX files (plain or .gz) in `root`; the last 5,000 of the training file are validation.

    The fingerprint hashes the decompressed content, so that plain and gzipped files count as the same data.
    """

    name = "fashion_mnist_full"
    class_names = CLASS_NAMES
    mean, std = MEAN, STD
    origin = "real: Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), all 70,000 images from local files; validation = last 5,000 of train"

    def __init__(self, root: str | None = None, class_map: str | None = None) -> None:
        if root is None:
            raise UsageError("fashion_mnist_full needs data.root=FOLDER, the folder with the four IDX files of Fashion-MNIST")
        if class_map is not None:
            raise UsageError("fashion_mnist_full takes no class_map: its labels come with it")
        self._root = Path(root)
        for stem in ("train", "t10k"):
            find_idx(self._root, f"{stem}-images-idx3-ubyte")
            find_idx(self._root, f"{stem}-labels-idx1-ubyte")

    @cached_property
    def _originals(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        pairs = {}
        for stem in ("train", "t10k"):
            images = read_idx(find_idx(self._root, f"{stem}-images-idx3-ubyte"))
            labels = read_idx(find_idx(self._root, f"{stem}-labels-idx1-ubyte"))
            if images.ndim != 3 or labels.shape != images.shape[:1]:
                raise UsageError(f"{self._root}: {stem} has images {images.shape} but labels {labels.shape}: not of one data set")
            pairs[stem] = images, labels
        return pairs

    @cached_property
    def fingerprint(self) -> str:
        whole = hashlib.sha256()
        for part in (array for pair in self._originals.values() for array in pair):
            whole.update(str(part.shape).encode())
            whole.update(part)
        return whole.hexdigest()

    def split(self, name: str) -> ArraySplit:
        images, labels = self._originals["t10k" if name == "test" else "train"]
        ids = np.arange(len(labels)) + NUM_TRAIN_ORIGINAL * (name == "test")
        cut = len(labels) - NUM_VALIDATION_FULL
        part = {"train": slice(0, cut), "validation": slice(cut, None), "test": slice(None)}[name]
        return ArraySplit(images[part], labels[part], ids[part])
