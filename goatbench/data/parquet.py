"""Local parquet shards in the layout of the Hugging Face hub: columns `image` (struct of bytes and path) and `label`.

Reading one image decodes its row group (about 100 images), and the last row group is kept: evaluation, which reads in order,
is fast; shuffled training is not. For training at full scale write the images to a folder once (image_folder).
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import UsageError
from ..progress import Progress
from .decode import UnreadableImageError, decode
from .image_shards import ShardImages, check_numbering

QUIET_SECONDS = 2.0
PREFIXES = {"train": ("train-", "train."), "val": ("validation-", "validation.", "val-", "val.")}


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError("image_parquet needs pyarrow: pip install 'goatbench[parquet]'") from error
    return pyarrow.parquet


class ParquetSplit:
    """Rows of shards. rows: int64 [n, 3] = shard, row group, row in the group."""

    array = None

    def __init__(self, root: str, shards: tuple[str, ...], rows: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
        self._root, self._shards, self._rows, self.labels, self.ids = root, shards, rows, labels, ids
        self._held: tuple[tuple[int, int], list[dict]] | None = None  # the row group read last

    def __len__(self) -> int:
        return len(self.labels)

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_held": None}

    def path(self, index: int) -> str:
        """What the image was called before it came into a shard; '' if nobody says."""
        return self._cell(index)[1].get("path") or ""

    def image(self, index: int) -> Image.Image:
        where, cell = self._cell(index)
        if not cell.get("bytes"):
            raise UnreadableImageError(where, "the shard holds no bytes for it")
        return decode(io.BytesIO(cell["bytes"]), where)

    def _cell(self, index: int) -> tuple[str, dict]:
        """(where it is, the struct of bytes and path). UnreadableImageError if the file has changed or gone since its index was read."""
        shard, group, row = (int(value) for value in self._rows[index])
        where = f"{Path(self._root, self._shards[shard])} row group {group}"
        if self._held is None or self._held[0] != (shard, group):
            self._held = (shard, group), self._read(shard, group, where)
        cells = self._held[1]
        if row >= len(cells):
            raise UnreadableImageError(where, f"it has {len(cells)} rows now, row {row} was there when the run began")
        cell = cells[row] or {}
        return f"{where} row {row} ({cell.get('path') or 'no path'})", cell

    def _read(self, shard: int, group: int, where: str) -> list[dict]:
        """The images of a row group."""
        import pyarrow

        try:
            table = _pyarrow_parquet().ParquetFile(Path(self._root, self._shards[shard])).read_row_group(group, columns=["image"])
            return table.column("image").to_pylist()
        except (OSError, KeyError, pyarrow.ArrowException) as error:
            reason = os.strerror(error.errno) if getattr(error, "errno", None) else f"{type(error).__name__}: {error}"
            raise UnreadableImageError(where, " ".join(reason.split())) from error

    def take(self, indices: np.ndarray) -> ParquetSplit:
        return ParquetSplit(self._root, self._shards, self._rows[indices], self.labels[indices], self.ids[indices])


class ImageParquetSource(ShardImages):
    """Shards train-*.parquet and validation-*.parquet (or val-*) in `root` or `root`/data; labels are class indices.

    train, validation, test: as in an image folder, minival chosen by "<shard>:<row>". fingerprint: hash of the shards' names, sizes
    and labels.
    """

    name = "image_parquet"
    origin = "real: local parquet shards; validation = fixed 1% of train by shard and row, test = validation shards"

    def __init__(self, root: str | None = None, class_map: str | None = None) -> None:
        if root is None:
            raise UsageError("image_parquet needs data.root=FOLDER, with train-*.parquet and validation-*.parquet")
        if class_map is not None:
            raise UsageError("image_parquet takes no class_map: its labels are class indices")
        _pyarrow_parquet()
        shown = {part: [f"{prefix}*.parquet" for prefix in prefixes[::2]] for part, prefixes in PREFIXES.items()}
        super().__init__(root, ".parquet", shown, lambda name, part: name.startswith(PREFIXES[part]))

    @cached_property
    def _index(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """part -> rows [n, 3], labels [n]."""
        parquet, index = _pyarrow_parquet(), {}
        for part, shards in self._shards.items():
            rows, labels = [], []
            with Progress(f"reading the labels of {part}", len(shards), "shard", after=QUIET_SECONDS) as progress:
                for number, shard in enumerate(shards):
                    file = parquet.ParquetFile(self._root / shard)
                    if missing := {"image", "label"} - set(file.schema_arrow.names):
                        raise UsageError(f"{self._root / shard}: no column {sorted(missing)[0]}; wanted: image, label")
                    for group in range(file.num_row_groups):
                        count = file.metadata.row_group(group).num_rows
                        rows.append(np.stack([np.full(count, number), np.full(count, group), np.arange(count)], 1))
                    labels.append(file.read(columns=["label"]).column("label").to_numpy())
                    progress.advance(1)
            index[part] = np.concatenate(rows), np.concatenate(labels).astype(np.int64)
            if index[part][1].min() < 0:
                raise UsageError(f"{self._root}: the shards of {part} hold images without a label (negative)")
        check_numbering(self._root, *(set(index[part][1].tolist()) for part in ("train", "val")))
        return index

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        return tuple(str(k) for k in range(1 + max(int(labels.max()) for _, labels in self._index.values())))

    def _hash(self, parts: Sequence[str]) -> str:
        whole = hashlib.sha256()
        for part in parts:
            whole.update(self._sizes(part))
            whole.update(self._index[part][1])
        return whole.hexdigest()

    def split(self, name: str) -> ParquetSplit:
        part = self._part(name)
        (rows, labels), shards = self._index[part], self._shards[part]
        keep, ids = self._chosen(name, [f"{shards[shard]}:{group}:{row}" for shard, group, row in rows.tolist()], self._root)
        return ParquetSplit(str(self._root), shards, rows[keep], labels[keep], ids)
