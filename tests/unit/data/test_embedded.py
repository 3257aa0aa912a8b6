"""The embedded images: what is promised about them, checked on the file itself; and the rule that chose them."""

from __future__ import annotations

import hashlib
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from goatbench.data.embedded.build_fashion_mnist import choose
from goatbench.data.fashion_mnist import FashionMnistEmbedded
from goatbench.errors import UsageError


@pytest.fixture(scope="module")
def source() -> FashionMnistEmbedded:
    return FashionMnistEmbedded()


def test_counts_and_balance(source):
    for name, count in {"train": 12_000, "validation": 2_000, "test": 4_000}.items():
        split = source.split(name)
        assert split.array.shape == (count, 28, 28) and split.array.dtype == np.uint8
        assert np.bincount(split.labels).tolist() == [count // 10] * 10


def test_no_image_occurs_twice_anywhere(source):
    images = [hashlib.sha256(image.tobytes()).digest() for name in ("train", "validation", "test") for image in source.split(name).array]
    assert len(set(images)) == len(images) == 18_000


def test_ids_name_the_original_image(source):
    ids = {name: set(source.split(name).ids.tolist()) for name in ("train", "validation", "test")}
    assert not ids["train"] & ids["validation"]
    assert max(ids["train"] | ids["validation"]) < 60_000 <= min(ids["test"]) and max(ids["test"]) < 70_000
    assert sum(map(len, ids.values())) == 18_000


def test_ids_follow_the_stated_recipe(source):
    """Of a class, the training images come before the validation images in the order of sha256('train:<index>')."""

    def key(index):
        return hashlib.sha256(f"train:{index}".encode()).digest()

    train, validation = source.split("train"), source.split("validation")
    for label in range(10):
        chosen = [*train.ids[train.labels == label].tolist(), *validation.ids[validation.labels == label].tolist()]
        assert chosen == sorted(chosen, key=key)


def test_images_are_the_real_ones(source):
    """Mean and deviation of the training images, published for Fashion-MNIST as 0.2860 and 0.3530."""
    images = source.split("train").array / 255
    assert images.mean() == pytest.approx(0.2860, abs=0.004)
    assert images.std() == pytest.approx(0.3530, abs=0.004)


def test_size_and_licence():
    folder = files("goatbench.data.embedded")
    assert (folder / "fashion_mnist.xz").stat().st_size < 8_000_000
    licence = (folder / "LICENSE.fashion_mnist").read_text()
    assert "MIT License" in licence and "Zalando SE" in licence
    notice = Path(__file__).parents[3] / "NOTICE"
    assert "github.com/zalandoresearch/fashion-mnist" in notice.read_text() and "MIT" in notice.read_text()


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    folder = Path(str(files("goatbench.data.embedded")))
    shutil.copy(folder / "fashion_mnist.json", tmp_path)
    content = bytearray((folder / "fashion_mnist.xz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "fashion_mnist.xz").write_bytes(content)
    with pytest.raises(UsageError, match=r"^fashion_mnist\.xz: sha256 is .* the manifest says 666cde138eef4da0.*$"):
        FashionMnistEmbedded(folder=tmp_path).split("train")


def test_root_is_refused():
    with pytest.raises(UsageError, match="fashion_mnist_full"):
        FashionMnistEmbedded(root="somewhere")


def test_choose_passes_over_repeated_images_and_keeps_hash_order():
    labels = np.repeat(np.arange(10), 6)
    images = np.arange(60, dtype=np.uint8)[:, None, None].repeat(4, 1)
    order = sorted(range(60), key=lambda index: hashlib.sha256(f"train:{index}".encode()).digest())
    of_zero = [index for index in order if labels[index] == 0]
    images[of_zero[1]] = images[of_zero[0]]  # a repeat inside the file
    met = {images[of_zero[2]].tobytes()}  # and one met before
    chosen = choose(images, labels, "train", 3, met)
    assert chosen.shape == (3, 10)
    assert chosen[:, 0].tolist() == [of_zero[0], of_zero[3], of_zero[4]]
    assert labels[chosen].tolist() == [list(range(10))] * 3
