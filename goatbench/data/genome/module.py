"""The DNA of a run as a LightningDataModule: a stream of training windows, and exact tilings for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ...errors import UsageError
from ...records.record import DataInfo
from ...spec import DecoderSpec, GenomeDataSpec, GenomeEvaluationSpec
from ..order import ShardSampler, TrainSampler
from .codes import reverse_complement
from .sources import fingerprint_of, load_sequence
from .splits import Interval, check_disjoint, of_split
from .windows import EvaluationWindows, TrainingWindows

TRAINING_SPLITS = ("train", "validation")


class GenomeData(lightning.LightningDataModule):
    """Training batches are (tokens int64 [B, L + 1], ids [B]), evaluation batches (tokens, ids, soft-masked targets bool [B, L]).

    batch_size is that of an optimizer step, over all ranks and `accumulate` batches. longest_context: of any evaluation; splits
    must lie at least that far apart. UsageError for whatever is wrong with the FASTA, the split or the numbers.
    """

    def __init__(
        self,
        data: GenomeDataSpec,
        model: DecoderSpec,
        evaluation: GenomeEvaluationSpec,
        *,
        seed: int,
        batch_size: int,
        num_workers: int = 0,
        accumulate: int = 1,
        longest_context: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__()
        self.data, self.model, self.evaluation = data, model, evaluation
        self.seed, self.batch_size, self.num_workers, self.accumulate = seed, batch_size, num_workers, accumulate
        self._rank, self._world_size = rank, world_size
        self.sequence = load_sequence(data)
        self.genome = self.sequence.genome
        check_disjoint(self.sequence.intervals, max(longest_context, model.seq_len))
        if batch_size > self.num_train:
            raise UsageError(f"training.batch_size={batch_size}, but an epoch has {self.num_train} windows here; set a smaller one")

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
        counts = {"train windows": self.num_train, "validation windows": len(self._validation), "train bases": self.num_bases("train")}
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

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps."""
        return self.num_train // self.batch_size

    @cached_property
    def _training(self) -> TrainingWindows:
        return TrainingWindows(
            self.genome, self.intervals("train"), self.model.seq_len, self.seed, self.num_train, self.data.reverse_complement
        )

    def train_loader(self, epoch: int, start_step: int = 0) -> DataLoader:
        """The batches of an epoch from `start_step` on: a function of (seed, epoch) alone."""
        sampler = TrainSampler(self.num_train, self.batch_size, self.seed, *self._place(), self.accumulate)
        sampler.epoch, sampler.start_step = epoch, start_step
        return self._loader(self._training, sampler, sampler.local_batch_size, drop_last=True)

    def train_dataloader(self) -> DataLoader:
        """For Lightning, which calls sampler.set_epoch before each epoch."""
        return self.train_loader(self.trainer.current_epoch if self.trainer is not None else 0)

    @cached_property
    def _validation(self) -> EvaluationWindows:
        return self.windows("validation")

    def val_dataloader(self) -> DataLoader:
        """What checkpoints are selected on."""
        return self.eval_loader(self._validation)

    # Evaluation

    def windows(self, split: str) -> EvaluationWindows:
        """The tiling of a split at the training length, evenly thinned to data.num_<split> windows; other splits to at most num_test."""
        wanted = self.data.num_validation if split == "validation" else self.data.num_test
        if split not in ("validation", "test") and wanted is not None:
            wanted = min(wanted, len(EvaluationWindows(self.genome, self.intervals(split), self.model.seq_len)))
        return EvaluationWindows(self.genome, self.intervals(split), self.model.seq_len, wanted)

    def eval_loader(self, windows: EvaluationWindows) -> DataLoader:
        """This rank's share: over all ranks every window exactly once."""
        sampler = ShardSampler(len(windows), *self._place())
        batch_size = max(1, self.evaluation.batch_tokens // windows.context)
        return self._loader(windows, sampler, batch_size, drop_last=False, collate=_evaluation_batch)

    # Both

    def _place(self) -> tuple[int, int]:
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
        return self._rank, self._world_size

    def _loader(
        self, dataset: Dataset, sampler: Any, batch_size: int, drop_last: bool, collate: Callable[[list], Any] | None = None
    ) -> DataLoader:
        return DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=collate,
            drop_last=drop_last,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=self.num_workers > 0,
            generator=torch.Generator(),  # its own: a loader must not move the global stream that dropout draws from
        )


def _evaluation_batch(samples: list[tuple[Tensor, Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    tokens, masked, ids = zip(*samples, strict=True)
    return torch.stack(tokens), torch.tensor(ids), torch.stack(masked)[:, 1:]


def codes_of(windows: EvaluationWindows) -> np.ndarray:
    """uint8 [n, context + 1]: all windows of a tiling at once, for models that need no batches."""
    length = windows.context + 1
    codes = np.stack([windows.genome.codes(contig, start, start + length) for contig, start in windows.loci])
    return reverse_complement(codes) if windows.reverse_complement else codes


def regions_of(windows: EvaluationWindows, intervals: Sequence[Interval]) -> np.ndarray:
    """str [n]: the region that each window lies in (of overlapping intervals the later one)."""
    ordered = sorted(intervals, key=lambda interval: interval.start)
    starts = {contig: np.array([i.start for i in ordered if i.contig == contig]) for contig in {i.contig for i in ordered}}
    names = {contig: [i.region for i in ordered if i.contig == contig] for contig in starts}
    return np.array([names[contig][np.searchsorted(starts[contig], start, "right") - 1] for contig, start in windows.loci])
