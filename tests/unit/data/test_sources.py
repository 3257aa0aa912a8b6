"""Fashion-MNIST from IDX files, balanced subsets, fingerprints."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from goatbench.data.fashion_mnist import FashionMnistFull
from goatbench.data.images import ImageData
from goatbench.data.sources import fingerprint_of, load_source, subset
from goatbench.data.split import balanced_order, held_out
from goatbench.errors import UsageError


def write_idx(path: Path, values: np.ndarray) -> None:
    content = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)


@pytest.fixture(scope="module")
def full_root(tmp_path_factory) -> Path:
    root, rng = tmp_path_factory.mktemp("full"), np.random.default_rng(0)
    for stem, count in (("train", 5100), ("t10k", 30)):
        write_idx(root / f"{stem}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 3, 4), dtype=np.uint8))
        write_idx(root / f"{stem}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))
    return root


def test_full_reads_idx_and_keeps_the_last_5000_for_validation(full_root):
    source = FashionMnistFull(str(full_root))
    assert [len(source.split(name)) for name in ("train", "validation", "test")] == [100, 5000, 30]
    written = np.random.default_rng(0).integers(0, 256, (5100, 3, 4), dtype=np.uint8)
    assert np.array_equal(source.split("validation").array, written[100:])
    assert source.split("validation").ids[0] == 100 and source.split("test").ids[0] == 60_000
    assert source.split("validation").labels[:3].tolist() == [0, 1, 2]


def test_plain_and_gzipped_files_are_the_same_data_and_other_pixels_are_not(full_root, tmp_path):
    for path in full_root.iterdir():
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    assert FashionMnistFull(str(tmp_path)).fingerprint == FashionMnistFull(str(full_root)).fingerprint
    images = tmp_path / "t10k-images-idx3-ubyte"
    content = bytearray(images.read_bytes())
    content[-1] ^= 1
    images.write_bytes(content)
    assert FashionMnistFull(str(tmp_path)).fingerprint != FashionMnistFull(str(full_root)).fingerprint


def test_missing_and_damaged_idx_files_are_named(full_root, tmp_path):
    with pytest.raises(UsageError, match=r"neither train-images-idx3-ubyte.gz nor train-images-idx3-ubyte"):
        FashionMnistFull(str(tmp_path))
    with pytest.raises(UsageError, match=r"data\.root=FOLDER"):
        FashionMnistFull()
    for path in full_root.iterdir():
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes())[:-5])
    with pytest.raises(UsageError, match=r"train-images-idx3-ubyte: truncated"):
        FashionMnistFull(str(tmp_path)).split("train")


def test_balanced_order_takes_the_classes_in_turn():
    labels = np.array([2, 2, 2, 0, 1, 0, 2, 1, 2])
    # first of class 0, 1, 2 are at 3, 4, 0; second at 5, 7, 1; then class 2 alone
    assert balanced_order(labels).tolist() == [3, 4, 0, 5, 7, 1, 2, 6, 8]


def test_subset_is_balanced_and_a_prefix_of_larger_subsets(embedded):
    source = load_source(embedded)
    small = subset(source, embedded, "train")
    large = subset(source, embedded.model_copy(update={"num_train": 1000}), "train")
    assert np.bincount(small.labels).tolist() == [23] * 10
    assert np.array_equal(small.ids, large.ids[:230])
    assert len(subset(source, embedded.model_copy(update={"num_train": None}), "train")) == 12_000
    with pytest.raises(UsageError, match=r"data\.num_train=12001: fashion_mnist has 12000 train images"):
        subset(source, embedded.model_copy(update={"num_train": 12_001}), "train")


def test_fingerprint_names_source_and_subset(embedded, vit, evaluation):
    same = fingerprint_of(embedded)
    assert len(same) == 64 and same == ImageData(embedded, vit, evaluation, seed=0, batch_size=10).info.fingerprint
    for change in ({"num_train": 231}, {"num_validation": 41}, {"num_test": 51}, {"num_test": None}):
        assert fingerprint_of(embedded.model_copy(update=change)) != same
    assert fingerprint_of(embedded.model_copy(update={"max_unreadable": 3})) == same
    seen = ("train", "validation")
    assert fingerprint_of(embedded, seen) == fingerprint_of(embedded.model_copy(update={"num_test": 51}), seen) != same


def test_fingerprint_needs_no_torch():
    code = (
        "import sys; from goatbench.spec import *; from goatbench.data.sources import fingerprint_of;"
        "fingerprint_of(ImageDataSpec(kind='images', name='fashion_mnist', augmentation=AugmentationSpec(crop_min_scale=1)));"
        "assert 'torch' not in sys.modules and 'lightning' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_held_out_is_about_one_percent_by_name_and_never_nothing():
    names = [f"n{k % 100:08d}/{k}.JPEG" for k in range(20_000)]
    chosen = held_out(names)
    assert 200 - 4 * 14 < chosen.sum() < 200 + 4 * 14  # binomial, 4 sigma
    assert np.array_equal(held_out(names[5000:]), chosen[5000:])
    few = [name for name, held in zip(names, chosen, strict=True) if not held][:30]
    assert held_out(few).sum() == 1 and held_out([]).shape == (0,)
