"""A tree of class folders, as ImageNet is kept: root/train/n01440764/*.JPEG and root/val/n01440764/*.JPEG."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import UsageError
from ..progress import Progress
from .class_map import classes_of
from .decode import decode
from .split import FileImages

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
QUIET_SECONDS = 2.0


class FileSplit:
    """Images in files. Paths are one bytes array relative to root: small, and cheap to share with worker processes."""

    array = None

    def __init__(self, root: str, paths: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
        self._root, self._paths, self.labels, self.ids = root, paths, labels, ids

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        return Path(self._root, os.fsdecode(bytes(self._paths[index])))

    def image(self, index: int) -> Image.Image:
        path = self.path(index)
        return decode(path, str(path))

    def take(self, indices: np.ndarray) -> FileSplit:
        return FileSplit(self._root, self._paths[indices], self.labels[indices], self.ids[indices])


class ImageFolderSource(FileImages):
    """Class folders under root/train and root/val (or root/validation).

    train, validation: the training folder without, and with only, a fixed 1% chosen by path ("minival"): models are selected on
    it, never on the test images. test: the val folder. Classes: class_map.classes_of. Ids: a hash of the path below root/train
    or root/val. fingerprint: hash of all relative paths, sizes and labels (contents are not read).
    """

    name = "image_folder"
    origin = "real: a local image folder; validation = fixed 1% of train by path, test = val"

    def __init__(self, root: str | None = None, class_map: str | None = None) -> None:
        if root is None:
            raise UsageError("image_folder needs data.root=FOLDER, with train/ and val/ (or validation/) of class folders")
        top = Path(root)
        found = {"train": top / "train", "val": next((top / n for n in ("val", "validation") if (top / n).is_dir()), top / "val")}
        for part, path in found.items():
            if not path.is_dir():
                raise UsageError(f"{top}: no folder {part}/; data.root must hold train/ and val/ (or validation/) of class folders")
        self._parts = found
        folders = {part: _class_folders(path) for part, path in found.items()}
        if odd := sorted(set(folders["val"]) - set(folders["train"])):
            raise UsageError(f"{top}: class folder '{odd[0]}' is in {found['val'].name}/ and not in train/ ({len(odd)} such)")
        self._classes = classes_of(folders["train"], class_map, str(top))
        self.class_names = tuple(sorted(self._classes, key=self._classes.__getitem__))

    @cached_property
    def _files(self) -> dict[str, list[tuple[str, int]]]:
        """part -> [(path relative to the part's folder, size in bytes)], sorted."""
        return {part: sorted(_images_below(folder)) for part, folder in self._parts.items()}

    def _hash(self, parts: Sequence[str]) -> str:
        whole = hashlib.sha256()
        for part in parts:
            for path, size in self._files[part]:
                label = self._classes[path.split("/", 1)[0]]
                whole.update(f"{part}\0{path}\0{size}\0{label}\n".encode(errors="surrogateescape"))
        return whole.hexdigest()

    @property
    def files(self) -> list[Path]:
        return [self._parts[part] / path for part, found in self._files.items() for path, _ in found]

    def split(self, name: str) -> FileSplit:
        part = self._part(name)
        paths = [path for path, _ in self._files[part]]
        keep, ids = self._chosen(name, paths, self._parts[part])
        paths = [paths[k] for k in keep]
        labels = np.array([self._classes[path.split("/", 1)[0]] for path in paths], np.int64)
        return FileSplit(str(self._parts[part]), np.array([os.fsencode(path) for path in paths]), labels, ids)


def _class_folders(folder: Path) -> list[str]:
    names = [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
    if len(names) < 2:
        raise UsageError(f"{folder}: {len(names)} class folders; at least 2 are needed")
    return names


def _images_below(folder: Path) -> list[tuple[str, int]]:
    """(path relative to folder with '/', size) of every file with an image's extension inside the class folders."""
    found, classes = [], [entry.path for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
    with Progress(f"listing {folder.name}", len(classes), "folder", after=QUIET_SECONDS) as progress:
        for top in classes:
            stack = [top]
            while stack:
                for entry in os.scandir(stack.pop()):
                    if entry.is_dir():
                        stack.append(entry.path)
                    elif entry.name.lower().endswith(EXTENSIONS) and not entry.name.startswith("."):
                        found.append((os.path.relpath(entry.path, folder).replace(os.sep, "/"), entry.stat().st_size))
            progress.advance(1)
    return found
