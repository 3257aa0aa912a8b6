"""Documents in, tokens out: the embedded text, files of the user's, and a cache that trusts only what was finished."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from goatbench.data.text import shards, sources
from goatbench.data.text.shards import BOS, load_shards
from goatbench.data.text.sources import Embedded, TextFiles, fingerprint_of
from goatbench.errors import UsageError
from goatbench.spec import TextDataSpec

DOCUMENTS = [(f"d{i}", bytes([65 + i]) * (i + 1)) for i in range(10)]


def read(shard) -> list[bytes]:
    """The documents of a shard, by its BOS tokens instead of its offsets."""
    tokens = np.fromfile(shard.path, "<u2")
    starts = [*np.flatnonzero(tokens == BOS).tolist(), len(tokens)]
    assert starts == list(shard.offsets)
    return [tokens[a + 1 : b].astype(np.uint8).tobytes() for a, b in zip(starts[:-1], starts[1:], strict=True)]  # noqa: RUF007


def never():
    raise AssertionError("the documents were read again")
    yield


def test_every_eighth_document_is_validation_and_another_eighth_test(tmp_path):
    found = load_shards("key", DOCUMENTS, tmp_path)
    assert found["validation"].names == ("d0", "d8") and found["test"].names == ("d4",)
    assert read(found["validation"]) == [b"A", b"I" * 9] and read(found["test"]) == [b"E" * 5]
    assert read(found["train"]) == [text for name, text in DOCUMENTS if name in ("d1", "d2", "d3", "d5", "d6", "d7", "d9")]
    assert load_shards("key", never(), tmp_path) == found


@pytest.mark.parametrize("damage", ["cut", "no index", "half an index", "unfinished"])
def test_what_is_not_whole_is_made_again(damage, tmp_path):
    found = load_shards("key", DOCUMENTS, tmp_path)
    folder = Path(found["train"].path).parent
    before = {path.name: path.read_bytes() for path in folder.glob("*.*")}
    if damage == "cut":
        Path(found["test"].path).write_bytes(b"\0\1")
    elif damage == "no index":
        (folder / "index.json").unlink()
    elif damage == "half an index":
        (folder / "index.json").write_bytes(before["index.json"][:100])
    else:
        (folder / "index.json").unlink()
        (folder / ".unfinished-abc").write_bytes(b"what a killed process left")
    assert load_shards("key", DOCUMENTS, tmp_path) == found
    assert {path.name: path.read_bytes() for path in folder.glob("*.*")} == before


def test_a_source_that_fails_leaves_nothing_that_is_trusted(tmp_path):
    def failing():
        yield from DOCUMENTS[:9]
        raise UsageError("line 10 is broken")

    with pytest.raises(UsageError, match="line 10"):
        load_shards("key", failing(), tmp_path)
    assert not list(tmp_path.rglob("index.json")) and not list(tmp_path.rglob("*.tokens"))
    assert len(read(load_shards("key", DOCUMENTS, tmp_path)["train"])) == 7


def test_too_few_documents(tmp_path):
    with pytest.raises(UsageError, match="has 7 documents, and at least 8"):
        load_shards("key", DOCUMENTS[:7], tmp_path)


def test_the_embedded_text_is_the_published_one():
    """Names, years and texts that anyone can look up; the sum is that of the files of the npm package in the order of their names."""
    documents = list(Embedded(None).documents())
    whole = b"".join(text for _, text in documents)
    assert len(documents) == 233 and len(whole) == 10_761_413 and (np.frombuffer(whole, np.uint8) > 127).sum() == 2_065
    assert hashlib.sha256(whole).hexdigest() == "805ccd2b2645318eb01caa3d4a0d374bee2544c1d5e48d2c66f8feaf7ae25790"
    texts = dict(documents)
    assert texts["1790_george_washington_n"].startswith(b"Fellow-Citizens of the Senate and House of Representatives: In meeting you again")
    assert b"state of our union" in texts["2010_barack_obama_d"].lower() or b"union is strong" in texts["2010_barack_obama_d"].lower()
    assert [int(name[:4]) for name, _ in documents] == [row["year"] for row in sources.manifest()["documents"]]
    places = [shards.split_of(i) for i in range(233)]
    assert (places.count("train"), places.count("validation"), places.count("test")) == (174, 30, 29)


def write_everywhere(folder: Path) -> dict[str, Path]:
    """The same documents as .txt files, .jsonl and .parquet."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = [f"text number {i} \N{SNOWMAN}" for i in range(9)]
    (folder / "texts").mkdir()
    for i, text in enumerate(texts):
        (folder / "texts" / f"{i}.txt").write_text(text, encoding="utf-8")
    (folder / "lines.jsonl").write_text("\n".join(json.dumps({"text": text, "id": 1}) for text in texts), encoding="utf-8")
    parquet.write_table(pyarrow.table({"text": texts}), folder / "table.parquet")
    return {"txt": folder / "texts", "jsonl": folder / "lines.jsonl", "parquet": folder / "table.parquet"}


def test_the_same_documents_in_any_format(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    paths = write_everywhere(tmp_path)
    specs = {kind: TextDataSpec(kind="text", name="text_files", path=str(path)) for kind, path in paths.items()}
    assert len({fingerprint_of(spec) for spec in specs.values()}) == 1
    assert read(sources.load_text(specs["txt"]).shards["test"]) == ["text number 4 \N{SNOWMAN}".encode()]
    (paths["txt"] / "4.txt").write_text("changed")
    sources._load.cache_clear()
    assert fingerprint_of(specs["txt"]) != fingerprint_of(specs["jsonl"])
    assert fingerprint_of(specs["txt"], ("train", "validation")) == fingerprint_of(specs["jsonl"], ("train", "validation"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"txt": "y"}\n', "a.jsonl, line 2: wanted a JSON object"),
        ("a.jsonl", b'{"text": 3}\n', "line 1"),
        ("a.jsonl", b"[1, 2]\n", "line 1"),
        ("a.pdf", b"", "holds no .txt, .jsonl, .parquet, .jsonl.gz, .json.gz file"),
        ("missing", None, "no such file or folder"),
        (None, None, "data.path=PATH"),
    ],
)
def test_mistakes_are_one_line(name, content, says, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as raised:
        list(TextFiles(None if name is None else str(tmp_path / name)).documents())
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_the_embedded_text_takes_no_path():
    with pytest.raises(UsageError, match="data=text_files"):
        Embedded("x.txt")
