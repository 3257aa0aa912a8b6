"""Where the images of a tar shard lie: its headers are read once, and what was found is kept in the cache folder.

A shard is a plain tar of samples in the layout of webdataset: members with the same name up to the first dot belong together,
`KEY.jpg` (or another image) and `KEY.cls`. With the offsets known a tar is as good as a folder: any image can be read at any time,
so that the order of training is drawn, not shuffled as it streams by.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..errors import UsageError
from ..progress import Progress
from ..records.canonical import digest
from . import cache_files

IMAGE_KINDS = ("jpg", "jpeg", "png", "ppm", "webp", "bmp")  # what webdataset's own decoders take for an image
LABEL_KIND, MAX_LABEL_BYTES = "cls", 64
MAX_HEADER_BYTES = 2**14  # of a long name or an extended header; tarfile would take any size that is written there, and all at once
MAX_NAME_LENGTH = 4096  # PATH_MAX of Linux
_BLOCK = 512  # bytes of a tar header
_QUIET_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """names: members that are images, bytes [n]; places: int64 [n, 2], offset and size in bytes; labels: text of each image's .cls."""

    names: np.ndarray
    places: np.ndarray
    labels: tuple[str, ...]


def index_shards(shards: Iterable[Path]) -> list[ShardIndex]:
    """The index of each shard: from the cache, else made and kept there, shard by shard. UsageError that names what is wrong."""
    wanted = [(shard, _place(shard)) for shard in shards]
    found = [_read(place) for _, place in wanted]
    if all(index is not None for index in found):
        return found
    folder = cache_files.make_folder(cache_files.cache_root() / "webdataset")
    with cache_files.locked(folder):
        cache_files.remove_unfinished(folder)
        with Progress("reading the headers of tar shards", found.count(None), "shard", after=_QUIET_SECONDS) as bar:
            for number, (shard, place) in enumerate(wanted):
                if found[number] is None:
                    found[number] = _read(place) or _make(shard, place)
                    bar.advance(1)
    return found


def _place(shard: Path) -> Path:
    """The cache file of this very shard: by path, size and time of change; contents are not read."""
    try:
        status = shard.stat()
    except OSError as error:
        raise UsageError(f"tar shard {shard}: {error.strerror}") from None
    name = f"{cache_files.FORMAT_VERSION} {shard.resolve()} {status.st_size} {status.st_mtime_ns}"
    return cache_files.cache_root() / "webdataset" / f"{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:24]}.json"


def _read(place: Path) -> ShardIndex | None:
    content = cache_files.read_json(place)
    try:
        if content.pop("digest", None) != digest(content):
            return None
        names = np.array([name.encode(errors="surrogateescape") for name in content["names"]])
        places, labels = np.array(content["places"], np.int64).reshape(-1, 2), tuple(map(str, content["labels"]))
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
        return None
    return ShardIndex(names, places, labels) if len(names) == len(places) == len(labels) > 0 else None


def _make(shard: Path, place: Path) -> ShardIndex:
    try:
        with shard.open("rb") as file:
            images, labels = _members(shard, file)
    except (OSError, tarfile.TarError, ValueError, EOFError, IndexError, RecursionError) as error:  # tarfile's own on damaged headers
        raise UsageError(f"tar shard {shard}: no tar that can be read ({error}); fetch it again") from None
    if not images:
        raise UsageError(f"tar shard {shard}: no image in it; wanted: members KEY.jpg and KEY.cls")
    if lone := sorted(set(images) ^ set(labels)):
        what = f"{lone[0]}.{LABEL_KIND} is missing" if lone[0] in images else f"{lone[0]}.{LABEL_KIND} has no image beside it"
        raise UsageError(f"tar shard {shard}: {what} ({len(lone)} such); every sample is KEY.jpg (or .png, ..) and KEY.{LABEL_KIND}")
    content = {
        "format": cache_files.FORMAT_VERSION,
        "names": [name for name, *_ in images.values()],
        "places": [place for _, *place in images.values()],
        "labels": [labels[key] for key in images],
    }
    cache_files.write_json(place, content | {"digest": digest(content)})
    index = _read(place)
    assert index is not None
    return index


def _members(shard: Path, file: BinaryIO) -> tuple[dict[str, tuple[str, int, int]], dict[str, str]]:
    """key -> (name, offset, size) of the images in their order, key -> text of the labels."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, str] = {}
    whole = os.fstat(file.fileno()).st_size
    with tarfile.open(fileobj=_Bounded(file), mode="r:") as tar:
        for member in tar:
            end = member.offset_data + member.size if member.isreg() else tar.offset
            if not member.offset_data <= end <= tar.offset <= whole:  # also: a size below zero would lead back, and round and round
                raise _damaged(shard, member.offset, images)
            folder, slash, base = member.name.rpartition("/")
            stem, _, kind = base.partition(".")
            key, kind = folder + slash + stem, kind.lower()
            if not member.isreg() or not stem or kind not in (*IMAGE_KINDS, LABEL_KIND):
                continue
            if member.issparse():
                raise UsageError(f"tar shard {shard}: {member.name} is stored sparse; write the shard again without (tar's --sparse)")
            if len(member.name) > MAX_NAME_LENGTH:
                raise UsageError(f"tar shard {shard}: a name of {len(member.name):,} letters; the longest allowed is {MAX_NAME_LENGTH:,}")
            if key in (labels if kind == LABEL_KIND else images):
                raise UsageError(f"tar shard {shard}: {member.name}: a second {'label' if kind == LABEL_KIND else 'image'} of this sample")
            if kind == LABEL_KIND:
                labels[key] = _label(shard, member, tar)
            else:
                images[key] = member.name, member.offset_data, member.size
        # tarfile takes a damaged header, and the end of a file that was cut off, for the end of the archive: that is a block of zeros.
        file.seek(tar.offset)
        if file.read(_BLOCK) != bytes(_BLOCK):
            raise _damaged(shard, tar.offset, images)
    return images, labels


def _damaged(shard: Path, at: int, images: Sized) -> UsageError:
    return UsageError(f"tar shard {shard}: cut off or damaged at byte {at:,}, after {len(images):,} images; fetch it again")


class _Bounded:
    """A file for tarfile, which reads headers whole: none of more than MAX_HEADER_BYTES."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def _label(shard: Path, member: tarfile.TarInfo, tar: tarfile.TarFile) -> str:
    content = tar.extractfile(member).read(MAX_LABEL_BYTES + 1)
    text = content.decode("ascii", errors="replace").strip()
    if len(content) > MAX_LABEL_BYTES or not text.isalnum() or not text.isascii():
        raise UsageError(f"tar shard {shard}: {member.name} holds no class: wanted one number or one WordNet id")
    return text
