"""Made `fashion_mnist.xz` and its manifest: a class-balanced subset of Fashion-MNIST without repeated images.

    python -m goatbench.data.embedded.build_fashion_mnist FOLDER_WITH_THE_FOUR_IDX_FILES

The recipe needs no random generator: the images of an original file are ordered by the sha256 of "<file>:<index>"
("train:17"), an image whose bytes were already met is passed over (test images are compared with the whole original
training file too), and of each class the first 1,200 training images are taken, then the next 200 as validation images,
and the first 400 test images. A split is stored class by class in turn (0, 1, .. 9, 0, 1, ..), so that its first n
images are balanced too.

Layout of the decompressed file: uint8 images [18000, 28, 28], uint8 labels [18000], little-endian uint16 indices into
the original file [18000]; train, validation, test in this order.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from pathlib import Path

import numpy as np

from ..fashion_mnist import CLASS_NAMES
from ..idx import find_idx, read_idx

PER_CLASS = {"train": 1200, "validation": 200, "test": 400}


def hash_order(file: str, count: int) -> list[int]:
    return sorted(range(count), key=lambda index: hashlib.sha256(f"{file}:{index}".encode()).digest())


def choose(images: np.ndarray, labels: np.ndarray, file: str, per_class: int, met: set[bytes]) -> np.ndarray:
    """Indices [per_class, 10] of the first images of each class in hash order; bytes in `met` are passed over."""
    chosen: list[list[int]] = [[] for _ in CLASS_NAMES]
    met = set(met)
    for index in hash_order(file, len(images)):
        content, wanted = images[index].tobytes(), chosen[labels[index]]
        if content not in met and len(wanted) < per_class:
            wanted.append(index)
        met.add(content)
    assert all(len(part) == per_class for part in chosen)
    return np.array(chosen).T


def build(root: Path, target: Path) -> dict:
    train = [read_idx(find_idx(root, f"train-{part}")) for part in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    test = [read_idx(find_idx(root, f"t10k-{part}")) for part in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    first, second = PER_CLASS["train"], PER_CLASS["validation"]
    from_train = choose(*train, "train", first + second, set())
    from_test = choose(*test, "test", PER_CLASS["test"], {image.tobytes() for image in train[0]})
    indices = {"train": from_train[:first].ravel(), "validation": from_train[first:].ravel(), "test": from_test.ravel()}
    origin = {"train": train, "validation": train, "test": test}
    parts = [np.concatenate([origin[split][kind][indices[split]] for split in indices]) for kind in (0, 1)]
    raw = parts[0].tobytes() + parts[1].tobytes() + np.concatenate(list(indices.values())).astype("<u2").tobytes()
    # pb = 0: bytes have no alignment to exploit
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
    packed = lzma.compress(raw, format=lzma.FORMAT_XZ, filters=filters)
    target.write_bytes(packed)
    return {
        "name": "fashion_mnist",
        "file": target.name,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "sha256_decompressed": hashlib.sha256(raw).hexdigest(),
        "layout": "uint8 images [n, 28, 28], uint8 labels [n], little-endian uint16 indices into the original file [n]",
        "image_size": [28, 28],
        "class_names": list(CLASS_NAMES),
        "splits": {
            split: {
                "count": len(chosen),
                "per_class": np.bincount(origin[split][1][chosen], minlength=10).tolist(),
                "original_file": "t10k-images-idx3-ubyte" if split == "test" else "train-images-idx3-ubyte",
            }
            for split, chosen in indices.items()
        },
        "recipe": "originals ordered by sha256('<train|test>:<index>'), repeated images passed over, first n of each class in turn",
        "source": "Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), https://github.com/zalandoresearch/fashion-mnist",
        "licence": "MIT, Copyright 2017 Zalando SE; see LICENSE.fashion_mnist",
    }


def main() -> None:
    folder = Path(__file__).parent
    manifest = build(Path(sys.argv[1]), folder / "fashion_mnist.xz")
    (folder / "fashion_mnist.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
