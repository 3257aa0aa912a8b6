"""A preparation of text that is killed: what it finished is kept and compared, and the next one ends with the same bytes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goatbench.data import cache_files
from goatbench.data.text import readers, sources, writing
from goatbench.data.text.readers import FileDocuments
from goatbench.data.text.shards import load_shards
from goatbench.data.text.tokenizers import Bytes
from goatbench.errors import UsageError

DOCUMENTS = [(f"d{i}", bytes([65 + i % 26]) * (i + 1)) for i in range(40)]
CHILD = """
import os, signal, sys
from goatbench.data.text import writing
from goatbench.data.text.shards import load_shards
from test_writing import DOCUMENTS
def dying():
    for number, document in enumerate(DOCUMENTS):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield document
writing.BATCH_BYTES, writing.STEP_BYTES = 1, 60
load_shards("key", dying(), sys.argv[1])
"""


class Killed(BaseException):
    pass


class Counting(Bytes):
    """Counts the documents, and dies at one of them."""

    def __init__(self, dies_at: int = -1) -> None:
        self.count, self.dies_at = 0, dies_at

    def encode_batch(self, texts):
        self.count += len(texts)
        if self.count == self.dies_at:
            raise Killed
        return super().encode_batch(texts)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """A batch is a document, a step at least 60 bytes of text: after documents 11, 16, 20, 23, 26, 29, 31, 33, .. of DOCUMENTS."""
    monkeypatch.setattr(writing, "BATCH_BYTES", 1)
    monkeypatch.setattr(writing, "STEP_BYTES", 60)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # it matters when power fails; it takes the time of the tests


def contents(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cache.rglob("*") if path.is_file()}


@pytest.fixture
def expected(tmp_path, monkeypatch) -> dict[str, bytes]:
    """The files of a preparation in one step."""
    with monkeypatch.context() as patch:
        patch.setattr(writing, "STEP_BYTES", 2**30)
        load_shards("key", DOCUMENTS, tmp_path / "whole")
    return contents(tmp_path / "whole")


def kept(cache: Path) -> int:
    """Documents that progress.json vouches for, 0 without it."""
    found = list(cache.rglob("progress.json"))
    return json.loads(found[0].read_bytes())["documents"] if found else 0


def killed_at(number: int, cache: Path, documents=None) -> int:
    """Documents that were kept. number: of those that this call encodes."""
    with pytest.raises(Killed):
        load_shards("key", DOCUMENTS if documents is None else documents, cache, Counting(number))
    return kept(cache)


@pytest.mark.parametrize("number", [1, 10, 11, 12, 13, 25, 40])
def test_what_was_finished_is_not_encoded_again(number, tmp_path, expected, capsys):
    cache = tmp_path / "cache"
    before = killed_at(number, cache)
    assert (before == 0) == (number <= 11) and number - 1 - before < 11  # 1 + 2 + .. + 11 > 60
    counting = Counting()
    load_shards("key", iter(DOCUMENTS), cache, counting)
    assert contents(cache) == expected and counting.count == 40 - before
    assert (f"going on behind document {before} of key-" in capsys.readouterr().err) == (before > 0)


def test_killed_again_and_again(tmp_path, expected):
    cache, steps = tmp_path / "cache", []
    while kept(cache) < 34:
        steps.append(killed_at(6 if steps else 12, cache))
        assert len(steps) < 30
    assert steps == sorted(set(steps)) and len(steps) > 5
    load_shards("key", DOCUMENTS, cache)
    assert contents(cache) == expected


@pytest.mark.parametrize("number", [7, 30])
def test_kill_9(number, tmp_path, expected, capsys):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "cache"), str(number)], env=environment, timeout=100)
    assert done.returncode == -signal.SIGKILL and not list(tmp_path.rglob("cache/**/index.json"))
    load_shards("key", DOCUMENTS, tmp_path / "cache")
    assert contents(tmp_path / "cache") == expected
    assert capsys.readouterr().err.partition(" of key-")[0] == {7: "", 30: "going on behind document 29"}[number]


def write_lines(folder: Path) -> list[Path]:
    """DOCUMENTS in four files, some lines without text between them."""
    folder.mkdir()
    for number in range(4):
        rows = [{"text": text.decode()} for _, text in DOCUMENTS[10 * number : 10 * number + 10]]
        lines = [json.dumps(row) for pair in zip(rows, [{"text": ""}] * 10, strict=True) for row in pair]
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    return sorted(folder.iterdir())


def test_files_that_were_read_are_not_opened_again(tmp_path, monkeypatch):
    files = write_lines(tmp_path / "text")
    load_shards("key", FileDocuments(files), tmp_path / "whole")
    cache, opened = tmp_path / "cache", []
    read = readers.READERS[".jsonl"]
    assert killed_at(27, cache, FileDocuments(files)) == 26
    monkeypatch.setitem(readers.READERS, ".jsonl", lambda stem, file: opened.append(stem) or read(stem, file))
    assert killed_at(9, cache, FileDocuments(files)) == 33
    load_shards("key", FileDocuments(files), cache)
    assert opened == ["2", "3", "3"] and contents(cache) == contents(tmp_path / "whole")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    files = write_lines(tmp_path / "text")
    documents = FileDocuments(files)
    given = iter(documents)
    next(given)
    files[1].unlink()
    with pytest.raises(UsageError, match=r"text file .*1\.jsonl: No such file"):
        list(given)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def add_a_digit(path: Path) -> None:
    path.write_text(path.read_text().replace('"num_bytes": ', '"num_bytes": 1'))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "train.tokens", 100),
        lambda folder: flip(folder / "test.offsets", 9),
        lambda folder: os.truncate(folder / "validation.names", 3),
        lambda folder: (folder / "train.lengths").unlink(),
        lambda folder: add_a_digit(folder / "progress.json"),
        lambda folder: os.truncate(folder / "progress.json", 100),
        lambda folder: folder.rename(folder.with_name(f"another-{folder.name}")),
    ],
    ids=["bit of tokens", "bit of offsets", "cut names", "no lengths", "digit of progress", "cut progress", "another key"],
)  # fmt: skip
def test_what_is_damaged_is_made_anew(damage, tmp_path, expected, capsys):
    cache, counting = tmp_path / "cache", Counting()
    assert killed_at(30, cache) == 29
    folder = next(cache.rglob("progress.json")).parent
    damage(folder)
    key = "key" if folder.exists() else "another-key"
    load_shards(key, DOCUMENTS, cache, counting)
    assert contents(cache) == expected and counting.count == 40
    assert f"what was kept of {key}-bytes-bos256-every8-2 is damaged: it is made anew" in capsys.readouterr().err


def test_a_text_that_has_changed_is_begun_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    files = write_lines(tmp_path / "text")
    source = sources.TextFiles(str(tmp_path / "text"))
    with pytest.raises(Killed):
        load_shards(source.key, source.documents(), tokenizer=Counting(27))
    assert kept(tmp_path / "cache") == 26
    files[0].write_text('{"text": "new"}')
    source, counting = sources.TextFiles(str(tmp_path / "text")), Counting()
    found = load_shards(source.key, source.documents(), tokenizer=counting)
    assert counting.count == 31 and found["validation"].names[0] == "0:1" and "going on" not in capsys.readouterr().err


@pytest.mark.parametrize("changed", [[("new", b"?"), *DOCUMENTS], DOCUMENTS[:5]], ids=["shifted", "shorter"])
def test_a_stream_that_gives_other_documents_is_one_line_and_then_begun_anew(changed, tmp_path, expected):
    assert killed_at(27, tmp_path / "cache") == 26
    with pytest.raises(UsageError, match=r"the text has changed: its document 26 is another one .* begins anew$"):
        load_shards("key", iter(changed), tmp_path / "cache")
    load_shards("key", DOCUMENTS, tmp_path / "cache")
    assert contents(tmp_path / "cache") == expected


@pytest.mark.parametrize("number", [3, 30])
def test_a_full_disk_is_one_line_and_keeps_what_was_finished(number, tmp_path, monkeypatch, expected):
    write, calls = writing._File.write, []

    def filling(self, content):
        calls.append(content)
        if len(calls) == 4 * number:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, content)

    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"cannot write .*: No space left on device; make room") as raised:
        patch.setattr(writing._File, "write", filling)
        load_shards("key", DOCUMENTS, tmp_path / "cache")
    assert "\n" not in str(raised.value)
    before, names = kept(tmp_path / "cache"), set(contents(tmp_path / "cache"))
    assert (before, names) == ((0, {"lock"}) if number == 3 else (29, {*expected, "progress.json"} - {"index.json"}))
    counting = Counting()
    load_shards("key", DOCUMENTS, tmp_path / "cache", counting)
    assert contents(tmp_path / "cache") == expected and counting.count == 40 - before


def test_killed_between_the_last_file_and_the_end(tmp_path, monkeypatch, expected):
    """index.json is there, progress.json still: the files are whole, and are made whole again should one be lost."""
    cache = tmp_path / "cache"
    remove = cache_files.remove

    def dying(*paths):
        if paths and paths[0].name == "progress.json" and (paths[0].parent / "index.json").exists():
            raise Killed
        remove(*paths)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(cache_files, "remove", dying)
        load_shards("key", DOCUMENTS, cache)
    counting = Counting()
    load_shards("key", DOCUMENTS, cache, counting)
    assert counting.count == 0 and contents(cache).keys() == {*expected, "progress.json"}
    next(cache.rglob("index.json")).unlink()
    load_shards("key", DOCUMENTS, cache, counting)
    assert contents(cache) == expected and 0 < counting.count < 10
