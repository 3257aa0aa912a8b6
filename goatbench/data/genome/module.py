"""The DNA of a run as a LightningDataModule: a stream of training windows, and exact tilings for evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...records.record import DataInfo
from ...spec import DecoderSpec, GenomeDataSpec, GenomeEvaluationSpec
from ..causal import CausalData
from .codes import reverse_complement
from .sources import fingerprint_of, load_sequence
from .splits import Interval, check_disjoint, of_split
from .windows import EvaluationWindows, TrainingWindows

TRAINING_SPLITS = ("train", "validation")


def _evaluation_batch(samples: list[tuple[Tensor, Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    tokens, masked, ids = zip(*samples, strict=True)
    return torch.stack(tokens), torch.tensor(ids), torch.stack(masked)[:, 1:]


class GenomeData(CausalData):
    """Training batches are (tokens int64 [B, L + 1], ids [B]), evaluation batches (tokens, ids, soft-masked targets bool [B, L]).

    longest_context: of any evaluation; splits must lie at least that far apart. Other arguments: see CausalData. UsageError for
    whatever is wrong with the FASTA, the split or the numbers.
    """

    collate = staticmethod(_evaluation_batch)

    def __init__(
        self,
        data: GenomeDataSpec,
        model: DecoderSpec,
        evaluation: GenomeEvaluationSpec,
        *,
        seed: int,
        batch_size: int,
        longest_context: int = 0,
        **machine: int,
    ) -> None:
        super().__init__(data, model, evaluation, seed=seed, batch_size=batch_size, **machine)
        self.sequence = load_sequence(data)
        self.genome = self.sequence.genome
        check_disjoint(self.sequence.intervals, max(longest_context, model.seq_len))
        self.check_batch_size()

    # What the data are

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of(self.data)

    @cached_property
    def training_fingerprint(self) -> str:
        """Of what can change trained weights: the test windows are left out."""
        return fingerprint_of(self.data, TRAINING_SPLITS)

    @cached_property
    def num_train(self) -> int:
        """Windows an epoch."""
        if self.data.num_train is not None:
            return self.data.num_train
        return max(1, sum(len(stretch) for stretch in self.stretches("train")) // self.model.seq_len)

    @cached_property
    def info(self) -> DataInfo:
        windows = {"train windows": self.num_train, "validation windows": len(self.validation_windows)}
        counts = {**windows, "train bases": self.num_bases("train")}
        return DataInfo(name=self.data.name, fingerprint=self.fingerprint, counts=counts, source=self.sequence.origin)

    def intervals(self, split: str) -> list[Interval]:
        return of_split(self.sequence.intervals, split)

    def has_split(self, split: str) -> bool:
        return any(interval.split == split for interval in self.sequence.intervals)

    def stretches(self, split: str) -> list[np.ndarray]:
        """uint8 codes of the split's intervals, one array each, on the strand given."""
        return [self.genome.codes(i.contig, i.start, i.end) for i in self.intervals(split)]

    def num_bases(self, split: str) -> int:
        """A C G T of the split."""
        return sum(int(((stretch & 7) < 4).sum()) for stretch in self.stretches(split))

    # Training

    @cached_property
    def training_set(self) -> TrainingWindows:
        return TrainingWindows(
            self.genome, self.intervals("train"), self.model.seq_len, self.seed, self.num_train, self.data.reverse_complement
        )

    @cached_property
    def validation_windows(self) -> EvaluationWindows:
        return self.windows("validation")

    # Evaluation

    def windows(self, split: str) -> EvaluationWindows:
        """The tiling of a split at the training length, evenly thinned to data.num_<split> windows; other splits to at most num_test."""
        wanted = self.data.num_validation if split == "validation" else self.data.num_test
        if split not in ("validation", "test") and wanted is not None:
            wanted = min(wanted, len(EvaluationWindows(self.genome, self.intervals(split), self.model.seq_len)))
        return EvaluationWindows(self.genome, self.intervals(split), self.model.seq_len, wanted)


def codes_of(windows: EvaluationWindows) -> np.ndarray:
    """uint8 [n, context + 1]: all windows of a tiling at once, for models that need no batches."""
    length = windows.context + 1
    codes = np.stack([windows.genome.codes(contig, start, start + length) for contig, start in windows.loci])
    return reverse_complement(codes) if windows.reverse_complement else codes


def regions_of(windows: EvaluationWindows, intervals: Sequence[Interval]) -> np.ndarray:
    """str [n]: the region that the targets of each window lie in. Cores are disjoint, what lies around them is context only."""
    ordered = sorted(intervals, key=lambda interval: interval.core_start)
    starts = {contig: np.array([i.core_start for i in ordered if i.contig == contig]) for contig in {i.contig for i in ordered}}
    names = {contig: [i.region for i in ordered if i.contig == contig] for contig in starts}
    lead = windows.context + 1 - windows.targets
    return np.array([names[contig][np.searchsorted(starts[contig], start + lead, "right") - 1] for contig, start in windows.loci])
