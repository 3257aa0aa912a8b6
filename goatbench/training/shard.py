"""What every exact evaluation does: each example once, on any number of processes, with a smaller batch where memory runs out."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from . import memory, ranks
from .ranks import EvaluationError


@dataclass(frozen=True, slots=True)
class Costs:
    """Of all ranks. batch_size: examples a forward pass, on one rank; below the loader's if memory did not suffice."""

    examples_per_second: float
    speed_method: str
    peak_memory_bytes: int  # of the rank that used most
    peak_memory_method: str
    batch_size: int


@dataclass(kw_only=True)
class Shard(ABC):
    """One rank's part of `num_examples` in all, and what came out. Subclasses score a batch, whose second part is one number an example.

    autocast_dtype: None computes in the net's own dtype. progress_label: None shows no bar.
    """

    unit: ClassVar[str]  # what an example is

    net: nn.Module
    device: torch.device
    num_examples: int
    autocast_dtype: torch.dtype | None
    progress_label: str | None
    batch_limit: int | None = field(default=None, init=False)  # None: the loader's own batches
    timings: list[tuple[int, float]] = field(default_factory=list, init=False)  # examples, seconds of each forward pass

    @abstractmethod
    def reset(self) -> None:
        """Forget what was counted: a pass begins."""

    @abstractmethod
    def check(self, batch: tuple[Tensor, ...]) -> None:
        """EvaluationError if the batch does not belong into one evaluation with those before it."""

    @abstractmethod
    def score(self, *batch: Tensor) -> None:
        """Counts the examples of a batch, of any size; the forward pass is inside `with self.forward(size)`."""

    def run(self, batches: Iterable[tuple[Tensor, ...]]) -> None:
        """Scores this rank's batches, which can be iterated again. An error of any rank is raised on all of them.

        No collective runs before a rank is through its shard. Out of CUDA memory, the rank halves its batch and starts again.
        """
        error: Exception | None = None
        was_training = self.net.training
        self.net.to(self.device).eval()
        memory.start(self.device)
        try:
            while not self._complete(batches):
                torch.cuda.empty_cache()  # here, where the failed batch's tensors are no longer held by its exception
        except Exception as failure:  # kept until all ranks know of it: none may wait in a gather for one that has left
            error = failure
        finally:
            self.net.train(was_training)
        error = ranks.first_error(error, self.device)
        if error is not None:
            raise error

    def _complete(self, batches: Iterable[tuple[Tensor, ...]]) -> bool:
        """One pass from the first example; False if memory ran out and batch_limit was halved."""
        self.timings = []
        self.reset()
        with self._bar() as bar, torch.inference_mode():
            for batch in batches:
                self.check(batch)
                size = len(batch[1])
                step = max(1, min(size, self.batch_limit or size))
                for start in range(0, size, step):
                    try:
                        self.score(*(part[start : start + step] for part in batch))
                    except RuntimeError as error:
                        if not memory.is_out_of_memory(error) or step == 1:
                            raise
                        self.batch_limit = step // 2
                        return False
                if bar is not None:
                    bar.advance(size)
        return True

    def _bar(self) -> AbstractContextManager:
        if self.progress_label is None or ranks.rank() > 0:
            return nullcontext()
        from ..progress import Progress

        return Progress(self.progress_label, total=math.ceil(self.num_examples / ranks.world_size()), unit=self.unit)

    @contextmanager
    def forward(self, size: int) -> Iterator[None]:
        """The forward pass of `size` examples: timed, in the precision that was asked for."""
        autocast = nullcontext() if self.autocast_dtype is None else torch.autocast(self.device.type, self.autocast_dtype)
        self._synchronize()
        begin = time.perf_counter()
        with autocast:
            yield
        self._synchronize()
        self.timings.append((size, time.perf_counter() - begin))

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def throughput(self) -> tuple[int, float]:
        """Examples and seconds of this rank's forward passes, without the first (warm-up) where there are others."""
        timed = self.timings[1:] or self.timings
        return sum(size for size, _ in timed), sum(seconds for _, seconds in timed)

    def gathered(self, *facts: int) -> Tensor:
        """[ranks, facts] int64 on the CPU: what each rank says of itself."""
        return ranks.gather(torch.tensor([facts], device=self.device)).cpu()

    def require_all(self, ids: Tensor) -> None:
        """ids of all ranks. EvaluationError unless each of the examples was counted once."""
        num_distinct = ids.unique().numel()
        if num_distinct != len(ids) or len(ids) != self.num_examples:
            counted = f"{len(ids)} {self.unit}s evaluated, {num_distinct} distinct"
            raise EvaluationError(f"{counted}: each of the {self.num_examples} must be counted once")

    def costs(self) -> Costs:
        size, seconds = self.throughput()
        peak = memory.peak(self.device)
        largest = max((count for count, _ in self.timings), default=self.num_examples)
        facts = self.gathered(size, peak.num_bytes, largest)
        slowest = float(ranks.gather(torch.tensor([seconds], dtype=torch.float64, device=self.device)).max())
        return Costs(
            examples_per_second=int(facts[:, 0].sum()) / slowest,
            speed_method="wall_time of forward passes after the first, slowest rank",
            peak_memory_bytes=int(facts[:, 1].max()),
            peak_memory_method=peak.method,
            batch_size=int(facts[:, 2].min()),
        )
