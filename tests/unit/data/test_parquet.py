"""Local parquet shards in the layout of the hub."""

from __future__ import annotations

import sys
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from made_up_images import WNIDS

from goatbench.data.decode import UnreadableImageError
from goatbench.data.folder import ImageFolderSource
from goatbench.data.parquet import ImageParquetSource
from goatbench.errors import UsageError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def shards(tree):
    """The tree's images in data/: two training shards and one of validation, three rows a group."""
    target = tree / "shards" / "data"
    target.mkdir(parents=True)
    for part, prefix, count in (("train", "train", 2), ("val", "validation", 1)):
        paths = sorted((tree / part).rglob("*.JPEG"))
        for shard in range(count):
            rows = paths[shard::count]
            table = pa.table(
                {
                    "image": [{"bytes": path.read_bytes(), "path": path.name} for path in rows],
                    "label": [WNIDS.index(path.parent.name) for path in rows],
                }
            )
            pq.write_table(table, target / f"{prefix}-{shard:05d}-of-{count:05d}.parquet", row_group_size=3)
    return tree / "shards"


def test_same_images_and_labels_as_the_folder(tree, shards):
    ours, folder = ImageParquetSource(str(shards)).split("test"), ImageFolderSource(str(tree)).split("test")
    assert ours.labels.tolist() == folder.labels.tolist() and len(ours) == 21
    for index in (0, 20, 7, 8):  # out of order, across row groups
        assert np.array_equal(np.asarray(ours.image(index)), np.asarray(folder.image(index)))


def test_splits_ids_and_classes(shards):
    source = ImageParquetSource(str(shards))
    train, validation = source.split("train"), source.split("validation")
    assert len(train) + len(validation) == 62 and len(validation) >= 1 and source.class_names == ("0", "1", "2")
    assert len({*train.ids.tolist(), *validation.ids.tolist(), *source.split("test").ids.tolist()}) == 83
    assert len(ForkingPickler.dumps(train)) < 20_000  # rows and names, no image


def test_fingerprint_sees_labels(shards):
    first = ImageParquetSource(str(shards)).fingerprint
    assert first == ImageParquetSource(str(shards / "data")).fingerprint
    path = next((shards / "data").glob("validation-*"))
    table = pq.read_table(path)
    relabelled = table.set_column(1, "label", pa.array([2] * len(table)))
    pq.write_table(relabelled, path, row_group_size=3)
    assert ImageParquetSource(str(shards)).fingerprint != first


def test_a_row_without_a_readable_image_is_named(shards):
    path = next((shards / "data").glob("validation-*"))
    cells = [{"bytes": b"broken", "path": "a.JPEG"}, {"bytes": None, "path": "b.JPEG"}]
    pq.write_table(pa.table({"image": cells, "label": [0, 2]}), path)
    split = ImageParquetSource(str(shards)).split("test")
    for index, name in enumerate(("a.JPEG", "b.JPEG")):
        with pytest.raises(UnreadableImageError, match=rf"validation-00000-of-00001.parquet row group 0 row {index} \({name}\): cannot"):
            split.image(index)


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"image": [{"bytes": b"", "path": "a"}], "label": [0]}, "it has 1 rows now, row 2 was there when the run began"),
        ({"label": [0, 1, 2]}, "KeyError: "),
    ],
)
def test_a_shard_that_is_replaced_under_a_run_is_named(shards, replaced, reason):
    path = next((shards / "data").glob("validation-*"))
    split = ImageParquetSource(str(shards)).split("test")
    pq.write_table(pa.table(replaced), path)
    with pytest.raises(UnreadableImageError, match=f"validation-00000-of-00001.parquet row group 0: cannot be decoded \\({reason}"):
        split.image(2)


def test_a_subset_that_counts_its_own_classes_is_refused(shards):
    """ImageNet-A's 200 classes are 0 to 199 in its own shards: beside ImageNet's training they scored 0.08 %."""
    path = next((shards / "data").glob("validation-*"))
    table = pq.read_table(path)
    for labels, is_refused in (([0, 1], True), ([0, 2], False)):
        pq.write_table(table.slice(0, 2).set_column(1, "label", pa.array(labels)), path)
        if is_refused:
            with pytest.raises(UsageError, match=r"3 classes are in the training shards, classes 0 to 1 alone in those of validation"):
                ImageParquetSource(str(shards)).split("test")
        else:
            assert ImageParquetSource(str(shards)).split("test").labels.tolist() == labels


def test_errors(shards, monkeypatch):
    with pytest.raises(UsageError, match=r"no train-\*\.parquet"):
        ImageParquetSource(str(shards.parent / "val"))
    path = next((shards / "data").glob("validation-*"))
    pq.write_table(pa.table({"image": [{"bytes": b"", "path": ""}], "label": [-1]}), path)
    with pytest.raises(UsageError, match="without a label"):
        ImageParquetSource(str(shards)).split("test")
    pq.write_table(pa.table({"picture": [1], "label": [1]}), path)
    with pytest.raises(UsageError, match="no column image"):
        ImageParquetSource(str(shards)).split("test")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pip install 'goatbench\[parquet\]'"):
        ImageParquetSource(str(shards))
