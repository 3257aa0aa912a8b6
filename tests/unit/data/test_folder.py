"""An ImageNet-like tree with the oddities of the real one."""

from __future__ import annotations

import io
import json
import shutil
import warnings

import numpy as np
import pytest
import torchvision
from made_up_images import WNIDS, picture, write_tree
from PIL import Image

from goatbench.data.decode import UnreadableImageError, decode
from goatbench.data.folder import ImageFolderSource
from goatbench.errors import UsageError

NUMBERS = ("1", "2", "10")


def test_splits_classes_and_ids(tree):
    source = ImageFolderSource(str(tree))
    splits = {name: source.split(name) for name in ("train", "validation", "test")}
    assert source.class_names == WNIDS
    assert len(splits["test"]) == 21 and len(splits["train"]) + len(splits["validation"]) == 62 and len(splits["validation"]) >= 1
    ids = np.concatenate([split.ids for split in splits.values()])
    assert len(set(ids.tolist())) == 83 and ids.min() >= 0 and ids.dtype == np.int64


def test_labels_and_images_are_torchvisions(tree):
    reference = torchvision.datasets.ImageFolder(tree / "val")
    ours = ImageFolderSource(str(tree)).split("test")
    assert len(reference) == len(ours)
    for index, (image, label) in enumerate(reference):
        assert ours.labels[index] == label
        assert ours.image(index).mode == "RGB" and np.array_equal(np.asarray(ours.image(index)), np.asarray(image))


def test_an_id_does_not_depend_on_the_other_files(tree):
    before = {(int(i), int(label)) for name in ("train", "validation") for i, label in zip(*_ids_labels(tree, name), strict=True)}
    picture(3, 20, 20).save(tree / "train" / WNIDS[1] / "000a.JPEG", "JPEG")
    after = {(int(i), int(label)) for name in ("train", "validation") for i, label in zip(*_ids_labels(tree, name), strict=True)}
    assert before < after and len(after) == len(before) + 1


def _ids_labels(tree, name):
    split = ImageFolderSource(str(tree)).split(name)
    return split.ids, split.labels


def test_fingerprint_sees_names_and_sizes_but_not_where_the_tree_is(tree, tmp_path):
    first = ImageFolderSource(str(tree)).fingerprint
    moved = tree.rename(tmp_path / "elsewhere")
    assert ImageFolderSource(str(moved)).fingerprint == first
    with (moved / "val" / WNIDS[0] / "000.JPEG").open("ab") as file:
        file.write(b"\0")
    assert ImageFolderSource(str(moved)).fingerprint != first


def test_validation_folder_may_be_called_validation(tree):
    (tree / "val").rename(tree / "validation")
    assert len(ImageFolderSource(str(tree)).split("test")) == 21


def test_numeric_folders_are_refused_and_accepted_with_a_class_map(tmp_path):
    root = write_tree(tmp_path / "numeric", NUMBERS, {"train": 4, "val": 2})
    with pytest.raises(UsageError, match=r"class folders are numbers \('1', \.\.\).*data\.class_map=FILE"):
        ImageFolderSource(str(root))
    text, as_json = tmp_path / "map.txt", tmp_path / "map.json"
    text.write_text("# folder index\n1 2\n2 0\n10 1\n")
    as_json.write_text(json.dumps({"1": 2, "2": 0, "10": 1}))
    for path in (text, as_json):
        source = ImageFolderSource(str(root), str(path))
        assert source.class_names == ("2", "10", "1")
        assert sorted(source.split("test").labels.tolist()) == [0, 0, 1, 1, 2, 2]
        image = np.asarray(source.split("test").image(0)).astype(int)  # first in sorted order: val/1/000.JPEG
        assert source.split("test").labels[0] == 2 and abs(image - np.asarray(picture(500, 40, 30))).mean() < 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 0\n2 1\n", "class folder '10' is not in the class map"),
        ("1 0\n2 1\n10 3\n", "indices must be 0 .. 2"),
        ("1 zero\n", "wanted: a JSON"),
    ],
)
def test_bad_class_maps(tmp_path, content, message):
    root = write_tree(tmp_path / "numeric", NUMBERS, {"train": 1, "val": 1})
    (tmp_path / "map.txt").write_text(content)
    with pytest.raises(UsageError, match=message):
        ImageFolderSource(str(root), str(tmp_path / "map.txt"))


def test_incomplete_trees_are_refused(tree):
    with pytest.raises(UsageError, match=r"no folder train/"):
        ImageFolderSource(str(tree / "val"))
    (tree / "val" / WNIDS[2]).rename(tree / "val" / "n09999999")
    with pytest.raises(UsageError, match=r"class folder 'n09999999' is in val/ and not in train/ \(1 such\)"):
        ImageFolderSource(str(tree))


def test_a_val_folder_of_a_subset_of_the_classes_keeps_the_numbers_of_training(tree):
    """ImageNet-A: 200 class folders beside 1,000 of training, which numbered by themselves scored 0.08 %."""
    whole = ImageFolderSource(str(tree))
    before = whole.training_fingerprint, whole.fingerprint
    shutil.rmtree(tree / "val" / WNIDS[0])
    source = ImageFolderSource(str(tree))
    assert set(source.split("test").labels) == {1, 2} and len(source.class_names) == 3
    assert source.training_fingerprint == before[0] and source.fingerprint != before[1]


def test_png_named_jpeg_and_cmyk_are_read(tree):
    first = tree / "train" / WNIDS[0]
    assert np.array_equal(np.asarray(decode(first / "really_png.JPEG", "png")), np.asarray(picture(2, 36, 48)))
    cmyk = np.asarray(decode(first / "cmyk.JPEG", "cmyk")).astype(int)
    assert cmyk.shape == (36, 48, 3) and np.abs(cmyk - np.asarray(picture(1, 48, 36))).mean() < 6


def _file(image: Image.Image, kind: str, **options) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return io.BytesIO(file.getvalue())


@pytest.mark.filterwarnings("error")
def test_palette_alpha_and_grey_become_rgb():
    color = picture(5, 20, 10)
    palette = color.quantize(16)
    assert np.array_equal(np.asarray(decode(_file(palette, "PNG", transparency=b"\0\xff"), "p")), np.asarray(palette.convert("RGB")))
    with_alpha = color.copy()
    with_alpha.putalpha(100)
    assert np.array_equal(np.asarray(decode(_file(with_alpha, "PNG"), "a")), np.asarray(color))
    grey = np.asarray(color.convert("L"))
    assert np.array_equal(np.asarray(decode(_file(color.convert("L"), "PNG"), "l")), np.stack([grey] * 3, -1))


def test_exif_orientation_is_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    assert decode(_file(picture(0, 20, 10), "JPEG", exif=exif), "rotated").size == (20, 10)


DAMAGED_EXIF = {  # TIFF header, number of entries, tag 0x0112 as text of some length at some offset
    "cut in an entry": b"II*\0\x08\0\0\0\x05\0\x12\x01",
    "beyond the end": b"II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x08\0\0\0\xf0\0\0\0\0\0\0\0",
    "larger than the file": b"II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\xff\0\0\0\xf0\0\0\0\0\0\0\0",
}


@pytest.mark.parametrize("how", DAMAGED_EXIF)
def test_damaged_exif_is_no_warning(how):
    """An image set with many of them would bury everything else in the terminal."""
    content = _file(picture(0, 20, 10), "JPEG", exif=b"Exif\0\0" + DAMAGED_EXIF[how]).getvalue()
    with pytest.warns(UserWarning):
        Image.open(io.BytesIO(content)).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(io.BytesIO(content), "noisy").size == (20, 10)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\xff\xd8\xff\xe0 broken", b"\x89PNG\r\n\x1a\n\0\0"])
def test_rubbish_is_unreadable_and_named(tmp_path, content):
    path = tmp_path / "rubbish.JPEG"
    path.write_bytes(content)
    with pytest.raises(UnreadableImageError, match=r"rubbish\.JPEG: cannot be decoded"):
        decode(path, str(path))


def test_a_decompression_bomb_is_unreadable_and_named(tree, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    path = tree / "val" / WNIDS[0] / "000.JPEG"
    with pytest.raises(UnreadableImageError, match=r"000\.JPEG: cannot be decoded \(DecompressionBombError"):
        decode(path, str(path))
