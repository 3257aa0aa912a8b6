"""Passages and the last word that is asked for: from the held-out documents, or the real LAMBADA from a local file.

A passage is (context, word) in bytes: the context ends right before a blank, the word begins with it. As tokens: BOS, context, word.
LAMBADA: Paperno et al., arXiv 1606.06031.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...errors import UsageError
from ...records.record import DataInfo
from .module import TextData
from .passage_files import Passage, PassageFile, fingerprint_with, read_passages
from .shards import TokenShard
from .tokenizers import Tokenizer

BYTES_PER_TOKEN = 8  # as much text is kept before a word, for each token of context
LAST_WORD = re.compile(rb"(?<= )[A-Za-z]{4,}(?=[.?!,;:])")  # a phrase ends with it


class PassageWindows(Dataset):
    """Samples (tokens int64 [context + 1], index int, mask bool [context]): the mask marks the targets that are the word.

    passages: (BOS and the context, the word). Shorter ones are filled up behind the word, where nothing causal can see it; the filling
    is BOS, which is never a target.
    """

    def __init__(self, passages: Sequence[tuple[np.ndarray, np.ndarray]], bos: int) -> None:
        self.passages, self.bos = passages, bos
        self.context = max(len(context) + len(word) for context, word in passages) - 1

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, index: int) -> tuple[Tensor, int, Tensor]:
        context, word = self.passages[index]
        tokens, mask = np.full(self.context + 1, self.bos, np.int64), np.zeros(self.context, bool)
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
        words = held_out_words(self.corpus.shards[split], self.tokenizer, min(contexts.values()), max(contexts.values()), count, split)
        bos = self.tokenizer.bos
        return {m: PassageWindows([as_tokens(self.tokenizer, p, context) for p in words], bos) for m, context in contexts.items()}

    def _fitting(self, context: int) -> PassageWindows:
        assert self.file is not None
        tokens = [as_tokens(self.tokenizer, passage) for passage in self.file.passages]
        fitting = [(before, word) for before, word in tokens if len(before) + len(word) - 1 <= context]
        if not fitting:
            least = min(len(before) + len(word) - 1 for before, word in tokens)
            raise UsageError(
                f"data.lambada: none of {len(tokens)} passages fits into {context} tokens (the shortest has {least}); "
                "they are never cut: set a larger model.seq_len, or task.multiples"
            )
        return PassageWindows(fitting, self.tokenizer.bos)


def held_out_words(shard: TokenShard, tokenizer: Tokenizer, shortest: int, longest: int, count: int, split: str) -> list[Passage]:
    """`count` passages, evenly spread, each with at least `longest` tokens of context and word.

    The word occurs, as a word, among the `shortest` tokens that end with it.
    """
    reach = longest * min(BYTES_PER_TOKEN, int(tokenizer.num_bytes.max()))
    found = []
    for begin, stop in zip(shard.offsets[:-1], shard.offsets[1:], strict=True):
        text = tokenizer.decode(shard.tokens[begin + 1 : stop])
        for match in LAST_WORD.finditer(text):
            start, end = match.start() - 1, match.end()  # from the blank on
            if end < longest:  # a token has one byte or more
                continue
            passage = text[max(0, start - reach) : start], text[start:end]
            before, _ = as_tokens(tokenizer, passage, shortest)
            if _has_word(tokenizer.decode(before), match[0]) and _num_tokens(tokenizer, passage) >= longest:
                found.append(passage)
    if count > len(found):
        raise UsageError(
            f"evaluation.num_passages={count}, but the {split} documents have {len(found)} passages of {longest} {tokenizer.unit} that end "
            "with a word read before; ask for fewer"
        )
    return [found[(2 * i + 1) * len(found) // (2 * count)] for i in range(count)]


def _has_word(context: bytes, word: bytes) -> bool:
    return re.search(rb"(?<![A-Za-z])" + word + rb"(?![A-Za-z])", context) is not None


def _num_tokens(tokenizer: Tokenizer, passage: Passage) -> int:
    return sum(len(tokenizer.encode(part)) for part in passage)


def as_tokens(tokenizer: Tokenizer, passage: Passage, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """BOS and the context, its latest tokens where `limit` of context and word are wanted; the word.

    Joined as tokens: a text encoded as a whole may be cut across the blank.
    """
    context, word = (tokenizer.encode(part).astype(np.int64) for part in passage)
    if limit is not None:
        context = context[max(0, len(context) + len(word) - limit) :]
    return np.append(tokenizer.bos, context), word
