"""Words as tokens: those of the stories, the most frequent ones of the training documents, and marks behind them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

import numpy as np

from ...errors import UsageError
from ...spec import TextDataSpec
from ..text.shards import TokenShard
from ..text.sources import load_text
from .facts import WORDS

MARKS = ("<unk>", ".", "?", "QUESTION", "ANSWER")  # never targets
WORD = re.compile(rb"[a-z0-9]+(?:'[a-z]+)?|[.?!]")
MIN_SENTENCE = 10  # words; BABILong leaves out shorter sentences of its noise as well


class Vocabulary:
    """`size` tokens. Words come first, from 0; MARKS last."""

    def __init__(self, words: Iterable[str], size: int) -> None:
        self.words = tuple(dict.fromkeys((*WORDS, *words)))[: size - len(MARKS)]
        self.num_scored = size - len(MARKS)
        self._ids = {word: i for i, word in enumerate(self.words)} | {mark: self.num_scored + i for i, mark in enumerate(MARKS)}
        self.unknown, self.question, self.answer = (self._ids[mark] for mark in ("<unk>", "QUESTION", "ANSWER"))

    def ids(self, words: Iterable[str]) -> list[int]:
        return [self._ids.get(word, self.unknown) for word in words]

    def word(self, token: int) -> str:
        """A mark is no word: ''. So is a token without one, where the documents have too few words."""
        return self.words[token] if token < len(self.words) else ""


class Noise:
    """Sentences one after the other. tokens: int64 [N]; starts: int64, where each sentence begins, and N."""

    def __init__(self, sentences: Iterable[list[int]]) -> None:
        tokens: list[int] = []
        starts = [0]
        for sentence in sentences:
            tokens += sentence
            starts.append(len(tokens))
        self.tokens, self.starts = np.array(tokens, np.int64), np.array(starts, np.int64)

    def stretch(self, number: float, length: int) -> tuple[list[int], list[int]]:
        """`length` tokens from a sentence on, chosen by number in [0, 1), the last sentence cut; and the places between sentences:
        0, .., length."""
        if length > len(self.tokens):
            raise UsageError(f"the documents have {len(self.tokens)} words in sentences of {MIN_SENTENCE} or more, and {length} are needed")
        count = int(np.searchsorted(self.starts, len(self.tokens) - length, side="right"))
        first = int(number * count)
        start = int(self.starts[first])
        last = int(np.searchsorted(self.starts, start + length))
        return self.tokens[start : start + length].tolist(), [*(self.starts[first:last] - start).tolist(), length]


def words_of(text: bytes) -> list[str]:
    """Lower-case words and numbers, "." and "?"; "!" ends a sentence as "." does."""
    return [word.decode() for word in WORD.findall(text.lower().replace(b"!", b"."))]


def sentences(text: bytes) -> Iterator[list[str]]:
    """Those of at least MIN_SENTENCE words, each with its mark."""
    words: list[str] = []
    for word in words_of(text):
        words.append(word)
        if word in (".", "?"):
            if len(words) > MIN_SENTENCE:
                yield words
            words = []


class Words:
    """The vocabulary of the training documents, and the noise of each split."""

    def __init__(self, shards: dict[str, TokenShard], size: int) -> None:
        self._shards, self._noise = shards, {}
        self.size = size

    @cached_property
    def vocabulary(self) -> Vocabulary:
        counts: Counter[str] = Counter()
        for text in _documents(self._shards["train"]):
            counts.update(words_of(text))
        del counts["."], counts["?"]
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return Vocabulary((word for word, _ in ranked[: self.size]), self.size)

    def noise(self, split: str) -> Noise:
        if split not in self._noise:
            found = (sentence for text in _documents(self._shards[split]) for sentence in sentences(text))
            self._noise[split] = Noise(self.vocabulary.ids(sentence) for sentence in found)
        return self._noise[split]


@lru_cache(maxsize=4)  # a sweep asks once a job
def load_words(name: str, path: str | None, size: int) -> Words:
    """Of a source of documents. UsageError if it cannot be read."""
    return Words(load_text(TextDataSpec(kind="text", name=name, path=path)).shards, size)


def _documents(shard: TokenShard) -> Iterator[bytes]:
    for begin, stop in zip(shard.offsets[:-1], shard.offsets[1:], strict=True):
        yield shard.tokens[begin + 1 : stop].astype(np.uint8).tobytes()
