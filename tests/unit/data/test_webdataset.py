"""Local tar shards in the layout of webdataset: the images of a folder, in the order of every other source."""

from __future__ import annotations

import io
import json
import os
import tarfile
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import WNIDS

from goatbench import cli
from goatbench.data import tar_index
from goatbench.data.decode import UnreadableImageError
from goatbench.data.folder import ImageFolderSource
from goatbench.data.images import ImageData
from goatbench.data.sources import fingerprint_of
from goatbench.data.webdataset import ImageWebdatasetSource
from goatbench.errors import UsageError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "webdataset"


def write_shard(path: Path, members: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def shards_of(tree: Path, label=lambda wnid: str(WNIDS.index(wnid))) -> Path:
    """The tree's images as ImageNet is published in tars: three training shards, one of validation; .cls, .jpg and .json a sample."""
    target = tree / "tars"
    target.mkdir()
    for part, stem, count, digits in (("train", "imagenet1k-train", 3, 4), ("val", "imagenet1k-validation", 1, 2)):
        paths = sorted((tree / part).rglob("*.JPEG"))
        for shard in range(count):
            members = []
            for path in paths[shard::count]:
                key, wnid = f"{path.parent.name}_{path.stem}", path.parent.name
                members += [(f"{key}.cls", label(wnid).encode()), (f"{key}.jpg", path.read_bytes()), (f"{key}.json", b"{}")]
            write_shard(target / f"{stem}-{shard:0{digits}}.tar", members)
    return target


@pytest.fixture
def shards(tree) -> Path:
    return shards_of(tree)


@pytest.mark.parametrize("label", [lambda wnid: str(WNIDS.index(wnid)), lambda wnid: wnid + "\n"], ids=["index", "wnid"])
def test_same_images_labels_and_classes_as_the_folder(tree, label):
    source, folder = ImageWebdatasetSource(str(shards_of(tree, label))), ImageFolderSource(str(tree))
    assert source.class_names == folder.class_names == WNIDS
    ours, theirs = source.split("test"), folder.split("test")
    assert ours.labels.tolist() == theirs.labels.tolist() and len(ours) == 21
    for index in (0, 20, 7, 8):
        assert np.array_equal(np.asarray(ours.image(index)), np.asarray(theirs.image(index)))
    train, validation = source.split("train"), source.split("validation")
    assert len(train) + len(validation) == 62 and len(validation) >= 1
    assert np.bincount(np.concatenate((train.labels, validation.labels))).tolist() == [22, 20, 20]
    assert len({*train.ids.tolist(), *validation.ids.tolist(), *ours.ids.tolist()}) == 83
    assert len(ForkingPickler.dumps(train)) < 20_000  # places and names, no image


def test_order_and_pixels_are_the_same_for_any_ranks_and_workers(folder_spec, color_vit, evaluation, shards):
    spec = folder_spec.model_copy(update={"name": "image_webdataset", "root": str(shards)})

    def steps(world_size, workers=0):
        """step -> {id: image} over all ranks."""
        found: list[dict[int, torch.Tensor]] = [{} for _ in range(7)]
        for rank in range(world_size):
            place = {"rank": rank, "world_size": world_size, "num_workers": workers}
            data = ImageData(spec, color_vit, evaluation, seed=3, batch_size=8, **place)
            for step, (images, _, ids) in enumerate(data.train_loader(1)):
                found[step] |= {int(i): image.clone() for image, i in zip(images, ids, strict=True)}
        return found

    one = steps(1)
    assert [len(step) for step in one] == [8] * 7
    for other in (steps(2), steps(4), steps(1, workers=2)):
        for here, there in zip(one, other, strict=True):
            assert here.keys() == there.keys() and all(torch.equal(here[i], there[i]) for i in here)


def test_headers_are_read_once_and_what_is_missing_again(shards, cache, monkeypatch):
    made = []
    make = tar_index._make
    monkeypatch.setattr(tar_index, "_make", lambda shard, place: made.append(shard.name) or make(shard, place))
    first = ImageWebdatasetSource(str(shards)).split("train")
    assert len(made) == 4 and len(list(cache.glob("*.json"))) == 4
    assert ImageWebdatasetSource(str(shards)).split("train").ids.tolist() == first.ids.tolist() and len(made) == 4
    victim, other, third, _ = sorted(cache.glob("*.json"))
    victim.write_bytes(victim.read_bytes()[:50])  # not whole
    other.write_text(json.dumps({"format": 1, "names": ["a.jpg"], "places": [[1]], "labels": ["0"]}))  # no index
    third.write_text(third.read_text().replace('"1"', '"2"'))  # other labels
    assert ImageWebdatasetSource(str(shards)).split("train").ids.tolist() == first.ids.tolist() and len(made) == 7
    os.utime(shards / "imagenet1k-train-0001.tar", ns=(1, 1))  # may be another file by now
    ImageWebdatasetSource(str(shards)).split("train")
    assert made[7:] == ["imagenet1k-train-0001.tar"]


def test_fingerprint_names_images_and_labels_but_no_place(folder_spec, tree, shards, tmp_path):
    spec = folder_spec.model_copy(update={"name": "image_webdataset", "root": str(shards)})
    first = fingerprint_of(spec)
    shards = shards.rename(tmp_path / "moved")
    moved = spec.model_copy(update={"root": str(shards)})
    assert fingerprint_of(moved) == first
    path = shards / "imagenet1k-validation-00.tar"
    with tarfile.open(path) as tar:
        members = [(member.name, tar.extractfile(member).read()) for member in tar]
    write_shard(path, [(name, b"2" if name.endswith(".cls") else content) for name, content in members])
    assert fingerprint_of(moved) != first


def break_shard(path: Path, how: str) -> None:
    content = path.read_bytes()
    with tarfile.open(path) as tar:
        members = [(member.name, tar.extractfile(member).read()) for member in tar]
        begins = [member.offset for member in tar]
    if how == "cut in a member":
        path.write_bytes(content[: begins[-2] + 700])
    elif how == "cut between members":
        path.write_bytes(content[: begins[6]])
    elif how == "cut in a header":
        path.write_bytes(content[: begins[6] + 100])
    elif how == "bad header":
        path.write_bytes(content[: begins[6]] + b"\xff" * 512 + content[begins[6] + 512 :])
    elif how == "no tar":
        path.write_bytes(b"no tar at all" * 100)
    elif how == "no cls":
        write_shard(path, members[:3] + members[4:])
    elif how == "no image":
        write_shard(path, members[:4] + members[5:])
    elif how == "twice":
        write_shard(path, members + members[1:2])
    elif how == "empty":
        write_shard(path, [("readme.txt", b"hello")])
    else:
        write_shard(path, [("x.cls", b"a cat"), *members[1:]])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("cut in a member", "cut off or damaged|unexpected end of data"),
        ("cut between members", r"cut off or damaged at byte [\d,]+, after 2 images"),
        ("cut in a header", r"cut off or damaged at byte [\d,]+, after 2 images"),
        ("bad header", r"cut off or damaged at byte [\d,]+, after 2 images"),
        ("no tar", "no tar that can be read"),
        ("no cls", r"n01440764_001\.cls is missing \(1 such\)"),
        ("no image", r"n01440764_001\.cls has no image beside it"),
        ("twice", r"n01440764_000\.jpg: a second image"),
        ("empty", "no image in it"),
        ("two words", r"x\.cls holds no class"),
    ],
)
def test_a_damaged_shard_is_one_line_with_its_name(shards, how, says):
    path = shards / "imagenet1k-validation-00.tar"
    break_shard(path, how)
    with pytest.raises(UsageError, match=says) as caught:
        ImageWebdatasetSource(str(shards)).split("test")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_labels_that_fit_no_class_are_refused(tree, shards):
    path = shards / "imagenet1k-validation-00.tar"
    for label, says in ((b"n01440764", "class indices in some samples and 'n01440764'"), (b"9" * 60, "holds class 9+, but there are 63")):
        write_shard(path, [("x.cls", label), ("x.jpg", b"-")])
        with pytest.raises(UsageError, match=says):
            ImageWebdatasetSource(str(shards)).split("test")
    path.unlink()
    with pytest.raises(UsageError, match=r"no \*validation\*\.tar or \*val\*\.tar"):
        ImageWebdatasetSource(str(shards))
    with pytest.raises(UsageError, match=r"data\.root=FOLDER"):
        ImageWebdatasetSource()


def test_a_subset_that_counts_its_own_classes_is_refused(shards):
    write_shard(shards / "imagenet1k-validation-00.tar", [("a.cls", b"0"), ("a.jpg", b"-"), ("b.cls", b"1"), ("b.jpg", b"-")])
    with pytest.raises(UsageError, match=r"3 classes are in the training shards, classes 0 to 1 alone in those of validation") as caught:
        ImageWebdatasetSource(str(shards)).split("test")
    assert "\n" not in str(caught.value)


def test_a_member_that_is_no_image_and_a_shard_that_is_gone_are_named(shards):
    path = shards / "imagenet1k-validation-00.tar"
    write_shard(path, [("a.cls", b"2"), ("a.jpg", b"no image")])
    split = ImageWebdatasetSource(str(shards)).split("test")
    with pytest.raises(UnreadableImageError, match=r"imagenet1k-validation-00\.tar a\.jpg: cannot be decoded"):
        split.image(0)
    path.unlink()
    with pytest.raises(UnreadableImageError, match=r"imagenet1k-validation-00\.tar a\.jpg: cannot be decoded \(No such file"):
        split.image(0)


def test_data_check_covers_it(shards, capsys):
    def check():
        with pytest.raises(SystemExit) as ended:
            cli.main(["data", "check", "imagenet_webdataset", f"data.root={shards}"])
        return ended.value.code, capsys.readouterr()

    code, said = check()
    assert code == 0 and "21 test images, 3 classes" in said.out and "test: 7 to 7 images a class" in said.out
    write_shard(shards / "imagenet1k-validation-00.tar", [(f"{k}.{kind}", b"%d" % k) for k in range(3) for kind in ("cls", "jpg")])
    code, said = check()
    assert code == 1 and "3 of 3 images tried cannot be read" in said.out
    break_shard(shards / "imagenet1k-train-0000.tar", "no cls")
    code, said = check()
    assert code == 2 and said.err.count("\n") == 1 and "n01440764_003.cls is missing" in said.err
