"""Passages of a local file, such as the real LAMBADA (Paperno et al., arXiv 1606.06031), and their last word. No torch.

A passage is (context, word) in bytes: the context ends right before a blank, the word begins with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ...errors import UsageError
from ...records.canonical import digest

Passage = tuple[bytes, bytes]


@dataclass(frozen=True)
class PassageFile:
    """passages of a file, and how many of its texts have no last word: none at all, or no blank before it."""

    passages: tuple[Passage, ...]
    without_word: int
    sha256: str


def fingerprint_with(text: str, lambada: str | None) -> str:
    """Names the documents and the file of passages."""
    return text if lambada is None else digest([text, read_passages(lambada).sha256])


def read_passages(path: str) -> PassageFile:
    """Of a .jsonl file (key "text") or a text file with one passage a line. UsageError if it cannot be read or holds none."""
    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"data.lambada={path}: {error.strerror}; give a .jsonl file, or a text file with one passage a line") from None
    split = [split_last_word(text) for text in _texts(Path(path), content)]
    passages = tuple(passage for passage in split if passage is not None)
    if not passages:
        raise UsageError(f"data.lambada={path} holds no passage that ends with a blank and a word")
    return PassageFile(passages, len(split) - len(passages), sha256(content).hexdigest())


def _texts(path: Path, content: bytes) -> Iterator[str]:
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"] if path.suffix == ".jsonl" else line
            text.encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f'{path.name}, line {number}: wanted a JSON object with a string "text"') from None
        yield text


def split_last_word(text: str) -> Passage | None:
    """(context, blank and word); None where nothing stands before the last word."""
    context, _, word = text.strip().rpartition(" ")
    return (context.encode(), f" {word}".encode()) if context.strip() else None
