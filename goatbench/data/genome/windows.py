"""Windows of consecutive bases for a DataLoader: drawn for training, tiled for evaluation. None of them contains N.

A window of context L is L + 1 bases: the model reads the first L and predicts the last L. Datasets hold a Genome and integers, can be
pickled, and work with the default collate function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...errors import UsageError
from ..order import Draw
from ..philox import WINDOWS, uniforms
from .codes import MASK, TOKEN, reverse_complement
from .genome import Genome
from .splits import Interval


class TrainingWindows(Dataset):
    """Samples (tokens int64 [context + 1], index int), asked for with order.Draw(epoch, index).

    A start is drawn uniformly from all starts of windows without N within the intervals (overlapping ones are joined first), and
    with reverse_complement every other window, by a coin of its own, is read on the other strand. Both depend on (seed, epoch, index)
    and on nothing else: not on workers, ranks or batches.
    """

    def __init__(
        self,
        genome: Genome,
        intervals: Iterable[Interval],
        context: int,
        seed: int,
        num_windows_per_epoch: int,
        reverse_complement: bool = False,
    ) -> None:
        self.genome, self.context, self.seed = genome, context, seed
        self.num_windows_per_epoch, self.reverse_complement = num_windows_per_epoch, reverse_complement
        intervals = list(intervals)
        self._contigs = sorted({interval.contig for interval in intervals})
        runs = [(i, *run) for i, name in enumerate(self._contigs) for run in _usable(genome, name, _union(intervals, name))]
        table = np.array([run for run in runs if run[2] - run[1] > context], np.int64).reshape(-1, 3)
        if not len(table):
            raise UsageError(_too_short(intervals, context, max((end - start for _, start, end in runs), default=0)))
        self._contig, self._first = table[:, 0], table[:, 1]
        self._below = np.concatenate(([0], np.cumsum(table[:, 2] - table[:, 1] - context)))  # starts in the runs before each

    @property
    def num_starts(self) -> int:
        """How many different windows there are to draw from, strands aside."""
        return int(self._below[-1])

    def __len__(self) -> int:
        return self.num_windows_per_epoch

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw]) -> list[tuple[Tensor, int]]:
        samples = []
        for draw, (contig, start, flipped) in zip(draws, self.loci(draws), strict=True):
            codes = self.genome.codes(contig, start, start + self.context + 1)
            tokens = (reverse_complement(codes) if flipped else codes) & TOKEN
            samples.append((torch.from_numpy(tokens.astype(np.int64)), draw.index))
        return samples

    def loci(self, draws: Sequence[Draw]) -> list[tuple[str, int, bool]]:
        """(contig, start, other strand) of each draw."""
        epochs, indices = np.array([(draw.epoch, draw.index) for draw in draws]).T
        numbers = np.empty((len(draws), 4))
        for epoch in np.unique(epochs).tolist():
            numbers[epochs == epoch] = uniforms(self.seed, epoch, indices[epochs == epoch], 4, WINDOWS)
        high, low, coin, _ = numbers.T
        drawn = np.minimum(((high + low * 2.0**-32) * self.num_starts).astype(np.int64), self.num_starts - 1)
        run = np.searchsorted(self._below, drawn, "right") - 1
        starts = (self._first[run] + drawn - self._below[run]).tolist()
        flipped = ((coin < 0.5) & self.reverse_complement).tolist()
        return [(self._contigs[i], start, flip) for i, start, flip in zip(self._contig[run], starts, flipped, strict=True)]


class EvaluationWindows(Dataset):
    """Samples (tokens int64 [context + 1], soft-masked bool [context + 1], index int) of a fixed tiling.

    The last `targets` bases of a window are meant to be scored (default: all but its first base). Windows follow each other at
    that stride, within N-free stretches of an interval, so that every base of a core is a target at most once. num_windows: that
    many, evenly spaced over the whole tiling; UsageError if there are fewer. `loci`: contig and start of each window.
    """

    def __init__(
        self, genome: Genome, intervals: Iterable[Interval], context: int, num_windows: int | None = None, targets: int | None = None
    ) -> None:
        self.genome, self.context, self.targets = genome, context, context if targets is None else targets
        if not 1 <= self.targets <= context:
            raise ValueError(f"targets={targets}: a window of context {context} has 1 to {context}")
        intervals = list(intervals)
        self.reverse_complement = False
        loci = [locus for interval in intervals for locus in self._tile(interval)]
        if not loci:
            longest = max((end - start for i in intervals for start, end in _usable(genome, i.contig, [(i.start, i.end)])), default=0)
            raise UsageError(_too_short(intervals, context, longest))
        if num_windows is not None:
            if not 1 <= num_windows <= len(loci):
                wanted = f"ask for 1 to that many, not {num_windows}"
                raise UsageError(f"{_named(intervals)} has {len(loci)} windows of context {context}; {wanted}")
            loci = [loci[(2 * i + 1) * len(loci) // (2 * num_windows)] for i in range(num_windows)]
        self.loci = loci

    def _tile(self, interval: Interval) -> list[tuple[str, int]]:
        loci = []
        for start, end in _usable(self.genome, interval.contig, [(interval.start, interval.end)]):
            lead = self.context + 1 - self.targets  # bases of a window before its first target
            first = max(interval.core_start, start + lead)
            blocks = max(0, (min(end, interval.core_end) - first) // self.targets)
            loci += [(interval.contig, first - lead + i * self.targets) for i in range(blocks)]
        return loci

    def __len__(self) -> int:
        return len(self.loci)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        contig, start = self.loci[index]
        codes = self.genome.codes(contig, start, start + self.context + 1)
        if self.reverse_complement:
            codes = reverse_complement(codes)
        return torch.from_numpy((codes & TOKEN).astype(np.int64)), torch.from_numpy((codes & MASK) != 0), index

    def with_context(self, context: int) -> EvaluationWindows:
        """The same target bases, each window with less context. ValueError unless targets <= context <= this context."""
        if not self.targets <= context <= self.context:
            raise ValueError(f"context {context}: wanted {self.targets} (the targets) to {self.context} (what the windows were tiled for)")
        other = self._copy()
        other.context, other.loci = context, [(contig, start + self.context - context) for contig, start in self.loci]
        return other

    def on_other_strand(self) -> EvaluationWindows:
        """The same windows read backwards on the other strand; the base that is context only is then the last instead of the first."""
        other = self._copy()
        other.reverse_complement = not self.reverse_complement
        return other

    def _copy(self) -> EvaluationWindows:
        other = object.__new__(EvaluationWindows)
        other.__dict__.update(self.__dict__)
        return other


def same_target_windows(
    genome: Genome, intervals: Iterable[Interval], num_targets: int, contexts: Sequence[int], num_windows: int | None = None
) -> dict[int, EvaluationWindows]:
    """context -> windows whose last num_targets bases are the same in every context. All have the longest context within one stretch."""
    longest = EvaluationWindows(genome, intervals, max(contexts), num_windows, num_targets)
    return {context: longest.with_context(context) for context in contexts}


def _union(intervals: Iterable[Interval], contig: str) -> list[tuple[int, int]]:
    """The intervals of a contig with overlapping and touching ones joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((interval.start, interval.end) for interval in intervals if interval.contig == contig):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _usable(genome: Genome, contig: str, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The N-free stretches of these ranges."""
    segments = genome.segments(contig)
    found = []
    for start, end in ranges:
        near = segments[np.searchsorted(segments[:, 1], start, "right") : np.searchsorted(segments[:, 0], end, "left")]
        found += [(max(start, a), min(end, b)) for a, b in near.tolist()]
    return found


def _named(intervals: Sequence[Interval]) -> str:
    return "split " + ", ".join(f"'{name}'" for name in dict.fromkeys(interval.split for interval in intervals))


def _too_short(intervals: Sequence[Interval], context: int, longest: int) -> str:
    return (
        f"{_named(intervals)}: no window of {context + 1} bases fits (the longest stretch without N has {longest}); "
        "give a shorter context or longer intervals"
    )
