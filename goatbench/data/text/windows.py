"""Windows of tokens for a DataLoader: drawn for training, tiled for evaluation. Token 0 of each is BOS.

A window of context L is L + 1 tokens: BOS and L tokens of text. The model reads the first L and predicts the last L. BOS is set in
training windows too, wherever they begin, so that evaluation shows a model nothing at position 0 that it has not learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...errors import UsageError
from ..order import Draw
from ..philox import WINDOWS, uniforms
from .shards import TokenShard


class TextTrainingWindows(Dataset):
    """Samples (tokens int64 [context + 1], index int), asked for with order.Draw(epoch, index).

    The documents follow each other, each after its BOS ('concat' packing). A window's start is drawn uniformly, from (seed, epoch,
    index) and nothing else.
    """

    def __init__(self, shard: TokenShard, context: int, seed: int, num_windows_per_epoch: int) -> None:
        self.shard, self.context, self.seed, self.num_windows_per_epoch = shard, context, seed, num_windows_per_epoch
        self.num_starts = shard.num_tokens - context
        if self.num_starts < 1:
            raise UsageError(f"the training documents have {shard.num_tokens} tokens, and a window needs {context + 1}")

    def __len__(self) -> int:
        return self.num_windows_per_epoch

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw]) -> list[tuple[Tensor, int]]:
        return [
            (_window(self.shard, start, self.context), draw.index) for draw, start in zip(draws, self.starts(draws).tolist(), strict=True)
        ]

    def starts(self, draws: Sequence[Draw]) -> np.ndarray:
        """int64 [n]: where in the shard the window of each draw begins."""
        epochs, indices = np.array([(draw.epoch, draw.index) for draw in draws]).T
        numbers = np.empty((len(draws), 4))
        for epoch in np.unique(epochs).tolist():
            numbers[epochs == epoch] = uniforms(self.seed, epoch, indices[epochs == epoch], 4, WINDOWS)
        exact = numbers[:, 0] + numbers[:, 1] * 2.0**-32
        return np.minimum((exact * self.num_starts).astype(np.int64), self.num_starts - 1)


class TextWindows(Dataset):
    """Samples (tokens int64 [context + 1], index int). ends: [n], where in the shard each window's text ends (exclusive)."""

    def __init__(self, shard: TokenShard, ends: np.ndarray, context: int) -> None:
        self.shard, self.ends, self.context = shard, ends, context

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return _window(self.shard, int(self.ends[index]) - self.context - 1, self.context), index

    def with_context(self, context: int) -> TextWindows:
        """The same last tokens, each under less text."""
        assert context <= self.context
        return TextWindows(self.shard, self.ends, context)

    def cut_into(self, context: int) -> TextWindows:
        """All the text of these windows in windows of `context` without overlap, which must divide it."""
        assert self.context % context == 0
        back = np.arange(self.context // context)[::-1] * context
        return TextWindows(self.shard, (self.ends[:, None] - back).ravel(), context)

    def scored_bytes(self, num_bytes: np.ndarray, last: int | None = None) -> np.ndarray:
        """int64 [n], bytes of text in the last `last` targets of each window (None: all). num_bytes: of each token id."""
        tokens, count = self.shard.tokens, last or self.context
        return np.array([num_bytes[tokens[end - count : end]].sum() for end in self.ends.tolist()], np.int64)


def tiling(shard: TokenShard, context: int, stride: int, num_windows: int | None, split: str) -> TextWindows:
    """Windows within one document, ending every `stride` tokens from the first that fits; num_windows of them, evenly spread.

    Documents with less than `context` tokens have none. UsageError if there are fewer windows than asked for.
    """
    begins, stops = shard.offsets[:-1] + 1, np.asarray(shard.offsets[1:])
    counts = np.maximum((stops - begins - context) // stride + 1, 0)  # windows of each document
    places = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)  # of each window among those of its document
    ends = np.repeat(begins + context, counts) + stride * places
    if not len(ends):
        longest = int((stops - begins).max(initial=0))
        raise UsageError(
            f"no {split} document has {context} {shard.unit} (the longest has {longest}); give shorter contexts or longer documents"
        )
    if num_windows is not None:
        if num_windows > len(ends):
            raise UsageError(
                f"the {split} documents have {len(ends)} windows of {context} {shard.unit}; ask for at most that, not {num_windows}"
            )
        ends = ends[[(2 * i + 1) * len(ends) // (2 * num_windows) for i in range(num_windows)]]
    return TextWindows(shard, ends, context)


def _window(shard: TokenShard, start: int, context: int) -> Tensor:
    tokens = shard.tokens[start : start + context + 1].astype(np.int64)
    tokens[0] = shard.bos
    return torch.from_numpy(tokens)
