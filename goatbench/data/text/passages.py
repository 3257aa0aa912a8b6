"""Passages and the last word that is asked for: from the held-out documents, or the real LAMBADA from a local file.

A passage is (context, word) in bytes: the context ends right before a blank, the word begins with it. As tokens: BOS, context, word.
LAMBADA: Paperno et al., arXiv 1606.06031.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...errors import UsageError
from ...records.record import DataInfo
from .module import TextData
from .passage_files import Passage, PassageFile, fingerprint_with, read_passages
from .shards import BOS, TokenShard, encode

LAST_WORD = re.compile(rb"(?<= )[A-Za-z]{4,}(?=[.?!,;:])")  # a phrase ends with it


class PassageWindows(Dataset):
    """Samples (tokens int64 [context + 1], index int, mask bool [context]): the mask marks the targets that are the word.

    Shorter passages are filled up behind the word, where nothing causal can see it; the filling is BOS, which is never a target.
    """

    def __init__(self, passages: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        self.passages = passages
        self.context = max(len(context) + len(word) for context, word in passages) - 1

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, index: int) -> tuple[Tensor, int, Tensor]:
        context, word = self.passages[index]
        tokens, mask = np.full(self.context + 1, BOS, np.int64), np.zeros(self.context, bool)
        tokens[: len(context) + len(word)] = np.concatenate((context, word))
        mask[len(context) - 1 : len(context) + len(word) - 1] = True
        return torch.from_numpy(tokens), index, torch.from_numpy(mask)

    @property
    def last_tokens(self) -> np.ndarray:
        """int64 [n]: the last token of each word."""
        return np.array([int(word[-1]) for _, word in self.passages])


class PassageData(TextData):
    """TextData with passages: of data.lambada where it is set, else of the held-out documents."""

    @cached_property
    def file(self) -> PassageFile | None:
        return None if self.data.lambada is None else read_passages(self.data.lambada)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_with(super().fingerprint, self.data.lambada)

    @cached_property
    def info(self) -> DataInfo:
        info = super().info
        if self.file is None:
            return info
        counts = {"passages of the file": len(self.file.passages), "texts without a last word": self.file.without_word}
        return info.model_copy(update={"counts": info.counts | counts, "source": f"{info.source}; passages: a local file"})

    def passages(self, split: str, multiples: Sequence[int], count: int) -> dict[int, PassageWindows]:
        """multiple -> passages of at most so many training lengths, BOS not counted.

        Held-out documents: `count` places, the same words under every context, each context full. A file: all that fit, never cut.
        UsageError if there are none (file) or too few (documents).
        """
        contexts = {multiple: multiple * self.model.seq_len for multiple in multiples}
        if self.file is not None:
            return {multiple: self._fitting(context) for multiple, context in contexts.items()}
        shard = self.corpus.shards[split]
        ends = held_out_words(shard, min(contexts.values()), max(contexts.values()), count, split)
        return {m: PassageWindows([_tokens(p) for p in _cut(shard, ends, context)]) for m, context in contexts.items()}

    def _fitting(self, context: int) -> PassageWindows:
        assert self.file is not None
        tokens = [_tokens(passage) for passage in self.file.passages]
        fitting = [(before, word) for before, word in tokens if len(before) + len(word) - 1 <= context]
        if not fitting:
            least = min(len(before) + len(word) - 1 for before, word in tokens)
            raise UsageError(
                f"data.lambada: none of {len(tokens)} passages fits into {context} tokens (the shortest has {least}); "
                "they are never cut: set a larger model.seq_len, or task.multiples"
            )
        return PassageWindows(fitting)


def held_out_words(shard: TokenShard, shortest: int, longest: int, count: int, split: str) -> list[tuple[int, int]]:
    """`count` places, evenly spread: the first byte and the end of a last word in the shard's tokens.

    The word occurs, as a word, in the `shortest` bytes that end with it, and `longest` bytes of its document end with it.
    """
    found = []
    for begin, stop in zip(shard.offsets[:-1], shard.offsets[1:], strict=True):
        text = shard.tokens[begin + 1 : stop].astype(np.uint8).tobytes()
        for match in LAST_WORD.finditer(text):
            start, end = match.span()
            if end >= longest and _has_word(text[end - shortest : start - 1], match[0]):
                found.append((begin + 1 + start, begin + 1 + end))
    if count > len(found):
        raise UsageError(
            f"evaluation.num_passages={count}, but the {split} documents have {len(found)} passages of {longest} bytes that end "
            "with a word read before; ask for fewer"
        )
    return [found[(2 * i + 1) * len(found) // (2 * count)] for i in range(count)]


def _has_word(context: bytes, word: bytes) -> bool:
    return re.search(rb"(?<![A-Za-z])" + word + rb"(?![A-Za-z])", context) is not None


def _cut(shard: TokenShard, words: list[tuple[int, int]], context: int) -> Iterator[Passage]:
    for start, end in words:
        text = shard.tokens[end - context : end].astype(np.uint8).tobytes()
        blank = context - (end - start) - 1
        yield text[:blank], text[blank:]


def _tokens(passage: Passage) -> tuple[np.ndarray, np.ndarray]:
    """BOS and the context; the word. Joined as tokens: a text encoded as a whole may be cut across the blank."""
    context, word = passage
    return encode(context), encode(word)[1:]
