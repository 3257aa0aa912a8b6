"""Where the stories of the tests come from: made up, or the real BABILong in a local folder. No torch at the top."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import registry
from ...errors import UsageError
from ...records.canonical import digest
from ...spec import StoryDataSpec, TextDataSpec
from .. import cache_files
from ..text import sources as text_sources
from .facts import LABELS
from .words import Words, words_of

if TYPE_CHECKING:
    from .windows import RealStories, StoryTest

Tests = Iterator[tuple[dict[str, Any], "StoryTest | RealStories"]]  # conditions, windows


class GeneratedStories:
    """Stories of facts.py among sentences of the held-out documents, at each multiple of the training length."""

    origin = "synthetic: stories made up for the task"
    key = "generated-1"

    def __init__(self, path: str | None) -> None:
        if path is not None:
            raise UsageError("data.path: data=stories makes its stories up; use data=babilong data.path=PATH for the real ones")

    def tests(self, words: Words, data: StoryDataSpec, split: str, seq_len: int, multiples: Sequence[int]) -> Tests:
        from .windows import StoryTest

        for multiple in multiples:
            length = multiple * seq_len
            windows = StoryTest(words.vocabulary, words.noise(split), data.questions, length, data.num_test)
            yield {"multiple": multiple, "length": length}, windows


class BabilongFolder:
    """The real data set (RMT-team/babilong) as it lies on the hub: one file for each length and task, with rows of input, question and
    target, such as data/qa1/4k.json or 4k/qa1-00000-of-00001.parquet. The lengths that are there are evaluated.

    The published prompts for chat models put an instruction, two worked examples and a rule for the form of the answer before the
    context, which stands between tags, and the question behind it; 20 tokens are generated greedily. Ours have learned the form
    itself: context, QUESTION, the question, ANSWER. Words that training never had are <unk>.
    """

    origin = "real: BABILong from a local folder, named by its fingerprint"

    def __init__(self, path: str | None) -> None:
        if path is None or not Path(path).expanduser().is_dir():
            raise UsageError(f"data.path={path}: data=babilong needs a folder with files such as data/qa1/4k.json (RMT-team/babilong)")
        self._files: dict[tuple[str, str], Path] = {}
        root = Path(path).expanduser()
        for file in sorted(p for p in root.rglob("*") if p.suffix in READERS):
            name = file.relative_to(root).as_posix().lower()
            length, kind = re.search(r"(?<![a-z0-9])\d+[km](?![a-z0-9])", name), re.search(r"(?<![a-z0-9])qa\d+(?![0-9])", name)
            if length is not None and kind is not None and kind[0] in LABELS:
                self._files[length[0], kind[0]] = file
        if not self._files:
            raise UsageError(f"data.path={path} holds no file of qa1 to qa5 such as data/qa1/4k.json or 4k/qa1-00000-of-00001.parquet")

    @property
    def key(self) -> str:
        return digest([[*key, cache_files.stamp(file)] for key, file in sorted(self._files.items())])

    def tests(self, words: Words, data: StoryDataSpec, split: str, seq_len: int, multiples: Sequence[int]) -> Tests:
        """One for each length, whatever the multiples."""
        from .windows import RealStories

        for length in sorted({length for length, _ in self._files}, key=_tokens_of):
            kinds = [kind for kind in data.questions if (length, kind) in self._files]
            rows = [row for kind in kinds for row in read_rows(self._files[length, kind], kind)]
            if not rows:
                continue
            texts = [(words_of(text.encode()), words_of(question.encode())) for _, text, question, _ in rows]
            windows = RealStories(rows, words.vocabulary, texts)
            yield {"multiple": length, "length": windows.context}, windows


def _tokens_of(length: str) -> int:
    return int(length[:-1]) * {"k": 1, "m": 1024}[length[-1]]


def read_rows(path: Path, kind: str) -> list[tuple[str, str, str, str]]:
    """(kind, input, question, target) of each row. UsageError for rows without these strings or with a target that is no answer."""
    rows = []
    for number, row in enumerate(READERS[path.suffix](path), 1):
        values = [row.get(key) if isinstance(row, dict) else None for key in ("input", "question", "target")]
        if not all(isinstance(value, str) for value in values):
            raise UsageError(f"{path.name}, row {number}: wanted strings input, question and target")
        text, question, target = values[0], values[1], values[2].strip().lower()
        if target not in LABELS[kind]:
            raise UsageError(f"{path.name}, row {number}: target '{target}' is no answer of {kind}: {', '.join(LABELS[kind])}")
        rows.append((kind, text, question.lower(), target))
    return rows


def _read_json(path: Path) -> list[Any]:
    """One array of rows, or a row a line."""
    try:
        content = path.read_text(encoding="utf-8")
        return json.loads(content) if content.lstrip().startswith("[") else [json.loads(line) for line in content.splitlines() if line]
    except ValueError:  # or no UTF-8
        raise UsageError(f"{path.name} is no JSON in UTF-8: wanted an array of rows, or a row a line") from None


def _read_parquet(path: Path) -> list[Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"{path.name}: reading parquet needs pyarrow; install it with: pip install 'goatbench[parquet]'") from None
    return parquet.read_table(path).to_pylist()


READERS = {".json": _read_json, ".jsonl": _read_json, ".parquet": _read_parquet}


def text_of(data: StoryDataSpec) -> TextDataSpec:
    return TextDataSpec(kind="text", name=data.text, path=data.text_path)


def fingerprint_of(data: StoryDataSpec) -> str:
    """Names all that a run reads; needs no torch."""
    key = registry.story_sources.get(data.name)(data.path).key
    values = data.model_dump(mode="json", exclude={"path", "text_path"})
    return digest(["stories-1", key, values, text_sources.fingerprint_of(text_of(data))])
