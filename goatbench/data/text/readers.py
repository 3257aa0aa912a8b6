"""Files with documents: .txt, .jsonl (plain or gzip) and .parquet, read one document at a time."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ...errors import UsageError
from ...progress import Progress

Document = tuple[str, bytes]  # name, UTF-8
QUIET_SECONDS = 2.0


class FileDocuments:
    """The documents of all files, but for those without text; shows how far it came once that takes more than two seconds.

    place: number of the file, and number in that file, of the document given last. An iteration begins with the document at `place`, and
    files before it are not opened. UsageError for a file that cannot be read.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.files, self.place = list(files), (0, 0)

    def __iter__(self) -> Iterator[Document]:
        first, begin = self.place
        sizes = [file.stat().st_size for file in self.files]
        with Progress("reading text", sum(sizes[first:]), "byte", after=QUIET_SECONDS) as bar:
            before = 0
            for number in range(first, len(self.files)):
                for index, (position, (name, text)) in enumerate(_read(self.files[number], begin), begin):
                    bar.advance(max(before + position - bar.done, 0))
                    if text:
                        self.place = number, index
                        yield name, text
                before += sizes[number]
                bar.advance(before - bar.done)
                begin = 0


def _read(path: Path, begin: int) -> Iterator[tuple[int, Document]]:
    """The documents of a file from number `begin` on, each with how many bytes of the file have been read."""
    suffix = suffix_of(path)
    assert suffix is not None, path
    try:
        with path.open("rb") as file:
            for document in islice(READERS[suffix](path.name.removesuffix(suffix), file), begin, None):
                yield file.tell(), document
    except OSError as error:
        raise UsageError(f"text file {path}: {error.strerror or error}; once it can be read, give the same command again") from None


def suffix_of(path: Path) -> str | None:
    """The key of READERS that the file's name ends with."""
    return next((suffix for suffix in READERS if path.name.endswith(suffix)), None)


def _read_txt(stem: str, file: BinaryIO) -> Iterator[Document]:
    yield stem, file.read()


def _read_jsonl(stem: str, file: BinaryIO) -> Iterator[Document]:
    for number, line in enumerate(file, 1):
        try:
            yield f"{stem}:{number}", json.loads(line)["text"].encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f'{Path(file.name).name}, line {number}: wanted a JSON object with a string "text"') from None


def _read_jsonl_gz(stem: str, file: BinaryIO) -> Iterator[Document]:
    try:
        with gzip.GzipFile(filename=file.name, fileobj=file) as lines:
            yield from _read_jsonl(stem, lines)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{Path(file.name).name} is not a whole gzip file: {error}") from None


def _read_parquet(stem: str, file: BinaryIO) -> Iterator[Document]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"{stem}.parquet: reading parquet needs pyarrow; install it with: pip install 'goatbench[parquet]'") from None
    opened = parquet.ParquetFile(file)
    if "text" not in opened.schema_arrow.names:
        raise UsageError(f"{stem}.parquet has no column 'text'; it has {', '.join(opened.schema_arrow.names)}")
    number = 0
    for batch in opened.iter_batches(batch_size=1024, columns=["text"]):
        for value in batch.column(0).to_pylist():
            number += 1
            yield f"{stem}:{number}", (value or "").encode()


READERS: dict[str, Callable[[str, BinaryIO], Iterator[Document]]] = {
    ".txt": _read_txt,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".jsonl.gz": _read_jsonl_gz,
    ".json.gz": _read_jsonl_gz,  # C4's name for the same
}
