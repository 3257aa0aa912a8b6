"""What `goatbench data check` says of images: counts, contents, whether they can be read, and the label order of ImageNet. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .data.contents import compare_contents
from .data.decode import UnreadableImageError
from .data.sources import load_source
from .data.split import SPLITS, ImageSource, Split
from .preparing import Fact

IMAGENET_CLASSES = 1000
IMAGENET_COUNTS = {"train": 1_281_167, "test": 50_000}
WNID = re.compile(r"n\d{8}")  # in the name of an image of ImageNet


def images(data: Any) -> Iterator[Fact]:
    source = load_source(data)
    yield _found(source, {name: source.split(name) for name in SPLITS})


def _found(source: ImageSource, splits: dict[str, Split]) -> Fact:
    listed = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    return Fact("ok", f"{source.name}: {listed} images, {len(source.class_names)} classes; fingerprint {source.fingerprint[:16]}")


def check_images(data: Any) -> Iterator[Fact]:
    source = load_source(data)
    splits = {name: source.split(name) for name in SPLITS}  # once: a million names are hashed for each
    yield _found(source, splits)
    by_split = {name: np.bincount(split.labels, minlength=len(source.class_names)) for name, split in splits.items()}
    for name in ("train", "test"):
        counts = by_split[name]
        if empty := [source.class_names[k] for k in np.flatnonzero(counts == 0)]:
            is_subset = name == "test" and len(empty) < len(counts) - 1
            advice = "; for a test set of fewer classes, as ImageNet-A, run with evaluation.classes=present" if is_subset else ""
            level = "warning" if is_subset else "broken"
            yield Fact(level, f"{len(empty)} classes have no {name} image: {', '.join(empty[:3])}{advice}")
        else:
            yield Fact("ok", f"{name}: {counts.min():,} to {counts.max():,} images a class")
    yield _contents(source, splits["test"])
    paths, bad = _tried(splits["test"])
    yield Fact("broken", f"{len(bad)} of {len(paths) + len(bad)} images tried cannot be read: {bad[0]}") if bad else Fact(
        "ok", f"{len(paths)} test images tried, one a class: all can be read"
    )
    if len(source.class_names) == IMAGENET_CLASSES:
        found = {"train": int(by_split["train"].sum() + by_split["validation"].sum()), "test": int(by_split["test"].sum())}
        wnids = [match.group() for path in paths if (match := WNID.search(path))]
        yield from imagenet_facts(wnids if len(wnids) == IMAGENET_CLASSES else source.class_names, found)


def _contents(source: ImageSource, test: Split) -> Fact:
    """A fingerprint of images in files is of names and sizes: the contents are compared with those of the first check."""
    if (files := getattr(source, "files", None)) is None:
        is_hashed = test.array is not None
        return Fact("ok", "contents: all are in the fingerprint") if is_hashed else Fact("warning", "contents: not compared")
    if empty := [path for path in files if path.stat().st_size == 0]:
        return Fact("broken", f"contents: {len(empty):,} of {len(files):,} files are empty: {empty[0]}")
    found = compare_contents(files)
    if found.changed:
        number = f"{len(found.changed):,} of {len(files):,} files are not what they were at the first check: {found.changed[0]}"
        return Fact("broken", f"contents: {number}; if they are right now, remove {found.noted}")
    said = "noted; the next check compares with them" if found.is_new else "as at the first check"
    return Fact("ok", f"contents: {len(files):,} files, hash {found.whole}, {said}")


def _tried(split: Split) -> tuple[list[str], list[str]]:
    """The first test image of each class, decoded: what each was called ('' where nothing names it), and why the others cannot be read."""
    paths, bad = [], []
    for index in np.unique(split.labels, return_index=True)[1].tolist():
        try:
            split.image(index)
            paths.append(split.path(index) if hasattr(split, "path") else "")
        except UnreadableImageError as error:
            bad.append(str(error))
    return paths, bad


def imagenet_facts(class_names: Sequence[str], counts: dict[str, int]) -> Iterator[Fact]:
    """Whether a set of 1,000 classes is ImageNet-1k in the label order of pretrained weights, and whole. class_names: WordNet ids, or
    numbers where nothing says more. counts: all of train, test."""
    from timm.data import ImageNetInfo

    if any(name.isdigit() for name in class_names):
        yield Fact("warning", "label order: classes have numbers for names, so it cannot be compared with ImageNet's")
        return
    for index, (name, wnid) in enumerate(zip(class_names, ImageNetInfo().label_names(), strict=True)):
        if name != wnid:
            yield Fact("warning", f"label order: class {index} is '{name}', in ImageNet-1k it is {wnid}")
            return
    yield Fact("ok", "label order: that of ImageNet-1k, at each of 1,000 places")
    for name, expected in IMAGENET_COUNTS.items():
        level = "ok" if counts[name] == expected else "warning"
        yield Fact(level, f"{name} and validation together: {counts[name]:,}" if name == "train" else f"{name}: {counts[name]:,}")
        if level == "warning":
            yield Fact(level, f"ImageNet-1k has {expected:,} of these")
