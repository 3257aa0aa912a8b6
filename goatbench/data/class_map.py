"""Which class index a folder means: sorted names, or a map from a file where names are numbers."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import UsageError


def read_class_map(path: Path) -> dict[str, int]:
    """folder name -> class index, from a JSON object or from lines "folder index" (# starts a comment)."""
    try:
        text = path.read_text()
        if text.lstrip().startswith("{"):
            pairs = list(json.loads(text).items())
        else:
            lines = (line.split("#")[0].split() for line in text.splitlines())
            pairs = [(folder, int(index)) for folder, index in (line for line in lines if line)]
    except (OSError, ValueError) as error:
        raise UsageError(f"class map {path}: {error}; wanted: a JSON object, or lines 'folder index'") from error
    names = dict(pairs)
    if len(names) != len(pairs) or sorted(names.values()) != list(range(len(names))):
        raise UsageError(f"class map {path}: each folder must be named once and the indices must be 0 .. {len(pairs) - 1}, each once")
    return names


def classes_of(folders: list[str], class_map: str | None, where: str) -> dict[str, int]:
    """folder name -> class index for the class folders of a tree.

    Without a map the order is that of the sorted names, which for wnids is every library's order. Numbers are refused: sorted
    as text (1, 10, 100, 2) they are torchvision's classes, sorted as numbers timm's, and ILSVRC ids are neither's, so that
    pretrained weights would score at chance without an error.
    """
    if class_map is not None:
        names = read_class_map(Path(class_map))
        if missing := sorted(set(folders) - set(names)):
            raise UsageError(f"{where}: class folder '{missing[0]}' is not in the class map {class_map} ({len(missing)} missing)")
        return names
    if numeric := sorted(folder for folder in folders if folder.isdigit()):
        raise UsageError(
            f"{where}: class folders are numbers ('{numeric[0]}', ..), whose class order is ambiguous; "
            "give data.class_map=FILE (lines 'folder index', or JSON)"
        )
    return {folder: index for index, folder in enumerate(sorted(folders))}
