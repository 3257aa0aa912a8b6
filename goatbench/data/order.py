"""Which samples come when: a function of (seed, epoch) in training, a shard without padding in evaluation.

Workers, ranks and resuming cannot change the stream: batch b of an epoch is a slice of its permutation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from torch.utils.data import Sampler

from ..errors import UsageError
from .philox import permutation

if TYPE_CHECKING:
    import lightning


class Draw(NamedTuple):
    """A training sample as the dataset is asked for it. The epoch travels along: workers live longer than an epoch."""

    epoch: int
    index: int
    copy: int = 0  # of repeated augmentation: which of the image's looks in this epoch


class TrainSampler(Sampler[Draw]):
    """This rank's samples of an epoch in order; rank r takes every world_size-th of each global batch, from the r-th.

    So the samples of a step are the same for every world size. The last incomplete global batch of an epoch is left out.
    batch_size is what one optimizer step sees: over all ranks, and over `accumulate` forward passes.
    is_shuffled: False asks for 0, 1, 2, ...: for samples that are drawn anew each epoch anyway.
    repeats: an epoch has `size` draws still, of 1 / repeats of the samples, each so many times and one behind the other (repeated
    augmentation, Hoffer et al., arXiv 1901.09335; DeiT's order): in one step, and on different ranks where there are as many.
    Give DataLoader batch_size=sampler.local_batch_size, drop_last=True.
    UsageError if world_size * accumulate does not divide batch_size, or batch_size exceeds size.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        is_shuffled: bool = True,
        repeats: int = 1,
    ) -> None:
        if batch_size % (world_size * accumulate):
            raise UsageError(
                f"training.batch_size={batch_size} is that of an optimizer step and must be a multiple of "
                f"processes x trainer.accumulate = {world_size} x {accumulate}"
            )
        if batch_size > size:
            raise UsageError(f"training.batch_size={batch_size} exceeds the {size} training samples; give at most that")
        self.size, self.batch_size, self.seed, self.rank, self.world_size = size, batch_size, seed, rank, world_size
        self.local_batch_size = batch_size // (world_size * accumulate)
        self.steps_per_epoch = size // batch_size
        self.is_shuffled, self.repeats = is_shuffled, repeats
        self.epoch, self.start_step = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each epoch. A new epoch starts at its first step."""
        if epoch != self.epoch:
            self.epoch, self.start_step = epoch, 0

    def __len__(self) -> int:
        """Of the whole epoch, wherever the iteration starts: Lightning counts an epoch's batches from its first."""
        return self.steps_per_epoch * (self.batch_size // self.world_size)

    def __iter__(self) -> Iterator[Draw]:
        order = permutation(self.seed, self.epoch, self.size).tolist() if self.is_shuffled else range(self.size)
        for step in range(self.start_step, self.steps_per_epoch):
            batch = range(step * self.batch_size, (step + 1) * self.batch_size)[self.rank :: self.world_size]
            yield from (Draw(self.epoch, order[place // self.repeats], place % self.repeats) for place in batch)

    def state_dict(self) -> dict[str, int]:
        """Where the next iteration starts, and what must agree for that to mean the same samples."""
        names = ("epoch", "start_step", "seed", "size", "batch_size")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue there, on any number of ranks. UsageError if seed, size or batch_size differ."""
        for name in ("seed", "size", "batch_size"):
            if state[name] != getattr(self, name):
                raise UsageError(f"cannot resume the sample order: {name} was {state[name]} and is {getattr(self, name)}")
        self.epoch, self.start_step = state["epoch"], state["start_step"]


class ShardSampler(Sampler[int]):
    """rank, rank + world_size, ... below size: over all ranks every index exactly once, nothing padded."""

    def __init__(self, size: int, rank: int = 0, world_size: int = 1) -> None:
        self._indices = range(rank, size, world_size)

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)


def check_validation(size: int, world_size: int) -> None:
    """UsageError where a rank would have nothing to validate on, which Lightning does not take."""
    if size < world_size:
        raise UsageError(f"{size} validation examples for {world_size} processes: give data.num_validation of as many, or fewer devices")


def training_place(trainer: lightning.Trainer | None) -> tuple[int, int]:
    """(epoch, batch of it) at which this trainer is about to start: not the first where it goes on from a checkpoint.

    Lightning has read its counters when it asks for the loader, but has not yet moved current_epoch on.
    """
    if trainer is None:
        return 0, 0
    loop = trainer.fit_loop
    done = loop.epoch_loop.batch_progress.current.ready if loop.restarting else 0
    return loop.epoch_progress.current.processed, done
