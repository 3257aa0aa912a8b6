"""Made-up sequences with known answers, as data of a run. Each is a function of (seed, epoch, index), tests of (length, index)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...errors import UsageError
from ...records.canonical import digest
from ...records.record import DataInfo
from ...spec import DecoderSpec, ToyDataSpec, ToyEvaluationSpec
from ..causal import CausalData
from ..order import Draw
from ..philox import LENGTHS, SEQUENCES, TESTS, uniforms
from .problems import Problem


class SyntheticTraining(Dataset):
    """Samples (tokens int64 [length + 1] or [2, length], index int), asked for with order.Draw(epoch, index), one step's at a time.

    Every second step has a length of its own, uniform in min_length .. length: steps of one length teach some mechanisms where the
    end is instead of what the mark means.
    """

    def __init__(self, problem: Problem, length: int, min_length: int | None, seed: int, num_samples: int, batch_size: int) -> None:
        self.problem, self.length = problem, length
        self.min_length = length if min_length is None else max(min_length, problem.min_length)
        self.seed, self.num_samples, self.batch_size = seed, num_samples, batch_size

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw]) -> list[tuple[Tensor, int]]:
        epoch, step = draws[0].epoch, draws[0].index // self.batch_size
        assert {(draw.epoch, draw.index // self.batch_size) for draw in draws} == {(epoch, step)}
        ids = np.array([draw.index for draw in draws])
        length = self.length_of(epoch, step)
        tokens = self.problem.build(uniforms(self.seed, epoch, ids, _count(self.problem, length), SEQUENCES), length, None)
        return [(row, int(i)) for row, i in zip(torch.from_numpy(tokens), ids, strict=True)]

    def length_of(self, epoch: int, step: int) -> int:
        if step % 2 == 0:
            return self.length
        drawn = uniforms(self.seed, epoch, np.array([step]), 4, LENGTHS)[0, 0]
        return self.min_length + int(drawn * (self.length - self.min_length + 1))


class SyntheticTest(Dataset):
    """Samples (tokens int64 [context + 1] or [2, context], index int): `each` sequences at every depth, the same for every seed of a run.

    depths: None draws the depth (validation). Sample i lies at depths[i // each].
    """

    def __init__(self, problem: Problem, context: int, depths: Sequence[float] | None, each: int) -> None:
        self.context, self.each = context, each
        ids = np.arange(each * len(depths or [0]))
        numbers = uniforms(0 if depths else 1, context, ids, _count(problem, context), TESTS)
        at = np.repeat(np.array(depths), each) if depths else None
        self.tokens = torch.from_numpy(problem.build(numbers, context, at))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.tokens[index], index


class SyntheticData(CausalData):
    """Batches are (tokens int64 [B, L + 1] or [B, 2, L], ids [B]); arguments: see CausalData. All sequences of a batch have one length."""

    is_shuffled = False  # each sample is drawn anew in each epoch, and a step's samples must lie together

    def __init__(
        self, problem: Problem, data: ToyDataSpec, model: DecoderSpec, evaluation: ToyEvaluationSpec, *, seed: int, batch_size: int,
        **machine: int,
    ) -> None:  # fmt: skip
        super().__init__(data, model, evaluation, seed=seed, batch_size=batch_size, **machine)
        self.problem = problem
        self.check_batch_size()
        self._check_problem()

    def _check_problem(self) -> None:
        model, problem = self.model, self.problem
        if model.num_scored != problem.num_scored or model.vocab_size < problem.vocab_size:
            raise UsageError(
                f"{problem.name} needs a model with num_scored {problem.num_scored} and vocab_size {problem.vocab_size} or more; "
                f"{model.name} has {model.num_scored} and {model.vocab_size}"
            )
        if model.seq_len < problem.min_length:
            raise UsageError(f"model.seq_len={model.seq_len}: {problem.name} takes {problem.min_length} tokens or more")
        if (self.data.min_length or 0) > model.seq_len:
            raise UsageError(f"data.min_length={self.data.min_length} is more than the training length {model.seq_len}")

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.problem, self.data)

    training_fingerprint = fingerprint

    @property
    def info(self) -> DataInfo:
        counts = {"train": self.num_train, "validation": self.data.num_validation, "test, of each length and depth": self.data.num_test}
        return DataInfo(name=self.problem.name, fingerprint=self.fingerprint, counts=counts, source="synthetic: made up for the task")

    @property
    def num_train(self) -> int:
        """Sequences an epoch."""
        return self.data.num_train

    @cached_property
    def training_set(self) -> SyntheticTraining:
        return SyntheticTraining(self.problem, self.model.seq_len, self.data.min_length, self.seed, self.num_train, self.batch_size)

    @cached_property
    def validation_windows(self) -> SyntheticTest:
        return self.windows("validation", self.model.seq_len)

    def windows(self, split: str, length: int, problem: Problem | None = None) -> SyntheticTest:
        """What a split ('test', 'validation') is measured on at a length; problem: another than the run's."""
        if split == "validation":
            return SyntheticTest(problem or self.problem, length, None, self.data.num_validation)
        return SyntheticTest(problem or self.problem, length, self.evaluation.depths, self.data.num_test)


def fingerprint_of(problem: Problem, data: ToyDataSpec) -> str:
    values = data.model_dump(mode="json", exclude=None if data.num_distractors else {"num_distractors"})  # older data have no such key
    return digest(["synthetic-1", problem.name, problem.answer, values])


def _count(problem: Problem, length: int) -> int:
    """Random numbers a sequence, a multiple of 4."""
    return (problem.numbers_per_token * length + problem.extra + 3) // 4 * 4
