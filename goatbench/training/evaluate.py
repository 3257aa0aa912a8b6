"""Exact evaluation of a classifier under ONE condition (one resolution): each image once, counted, on any number of processes."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from ..metrics.classification import ClassificationMetrics, binomial_stderr
from . import memory, ranks
from .ranks import EvaluationError as EvaluationError

Loader = Iterable[tuple[Tensor, Tensor, Tensor]]  # images [B, C, H, W], labels [B] int64, sample ids [B] int64


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All numbers are over all ranks. top1, top5 and ece are shares in 0..1; ece has no standard error."""

    n: int
    top1: float
    top1_stderr: float
    top5: float
    top5_stderr: float
    nll_nats: float
    nll_stderr: float | None  # None for a single image
    ece: float
    images_per_second: float
    images_per_second_method: str
    peak_memory_bytes: int  # of the rank that used most
    peak_memory_method: str
    batch_size: int  # images a forward pass, on one rank; below the loader's if memory did not suffice
    resolution: tuple[int, int]  # height, width in pixels
    correct: bytes  # np.packbits of top-1 correctness, by ascending sample id: for paired tests


def evaluate(
    net: nn.Module,
    loader: Loader,
    *,
    num_examples: int,
    num_classes: int,
    device: torch.device | str,
    progress_label: str | None = None,
    autocast_dtype: torch.dtype | None = None,
) -> Evaluation:
    """Evaluates `net` (images -> logits [B, num_classes]) on a loader that can be iterated again.

    With torch.distributed initialised, each rank's loader gives its own shard, of any size and without padding; no collective runs
    before a rank is through its shard. num_examples is the size of the whole data set: any other count, or an id seen twice, raises
    EvaluationError. autocast_dtype: None computes in the net's own dtype; metrics are always float32.
    Out of memory, the rank halves its batch and starts its shard again from the first sample.
    """
    device = torch.device(device)
    shard = _Shard(net, device, num_classes, autocast_dtype, progress_label, math.ceil(num_examples / ranks.world_size()))
    error: Exception | None = None
    was_training = net.training
    net.to(device).eval()
    memory.start(device)
    try:
        shard.run(loader)
    except Exception as failure:  # kept until all ranks know of it: none may wait in a gather for one that has left
        error = failure
    finally:
        net.train(was_training)
    error = ranks.first_error(error, device)
    if error is not None:
        raise error
    return _summary(shard, num_examples)


@dataclass
class _Shard:
    """One rank's part of the data, and what came out."""

    net: nn.Module
    device: torch.device
    num_classes: int
    autocast_dtype: torch.dtype | None
    progress_label: str | None
    expected: int
    batch_limit: int | None = None  # None: the loader's own batches
    metrics: ClassificationMetrics = field(init=False)
    dtype: torch.dtype = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = next((p.dtype for p in self.net.parameters()), torch.float32)  # bfloat16 after training in bf16-true

    def run(self, loader: Loader) -> None:
        while not self._complete(loader):
            torch.cuda.empty_cache()  # here, where the failed batch's tensors are no longer held by its exception

    def _complete(self, loader: Loader) -> bool:
        """One pass from the first sample; False if memory ran out and batch_limit was halved."""
        self._reset()
        with self._bar() as bar, torch.inference_mode():
            for images, labels, ids in loader:
                self._check_resolution(images, ids)
                step = min(len(labels), self.batch_limit or len(labels))
                for start in range(0, len(labels), step):
                    rows = slice(start, start + step)
                    try:
                        self._batch(images[rows], labels[rows], ids[rows])
                    except RuntimeError as error:
                        if not memory.is_out_of_memory(error) or step == 1:
                            raise
                        self.batch_limit = step // 2
                        return False
                if bar is not None:
                    bar.advance(len(labels))
        return True

    def _reset(self) -> None:
        self.metrics = ClassificationMetrics(self.num_classes).to(self.device)  # torchmetrics: one object a condition
        self.outcomes: list[Tensor] = []  # [b, 2] int64: sample id, correct
        self.timings: list[tuple[int, float]] = []  # images, seconds of each forward pass
        self.resolution = (0, 0)

    def _bar(self) -> AbstractContextManager:
        if self.progress_label is None or ranks.rank() > 0:
            return nullcontext()
        from ..progress import Progress

        return Progress(self.progress_label, total=self.expected, unit="image")

    def _check_resolution(self, images: Tensor, ids: Tensor) -> None:
        size = (images.shape[-2], images.shape[-1])
        if self.resolution not in ((0, 0), size):
            raise EvaluationError(f"two resolutions in one evaluation: {self.resolution} and {size}, from sample {int(ids[0])}")
        self.resolution = size

    def _batch(self, images: Tensor, labels: Tensor, ids: Tensor) -> None:
        images = images.to(self.device, self.dtype, non_blocking=True)
        labels = labels.to(self.device, non_blocking=True)
        autocast = nullcontext() if self.autocast_dtype is None else torch.autocast(self.device.type, self.autocast_dtype)
        self._synchronize()
        begin = time.perf_counter()
        with autocast:
            logits = self.net(images)
        self._synchronize()
        self.timings.append((len(labels), time.perf_counter() - begin))
        logits = logits.float()
        finite = torch.isfinite(logits).all(dim=1).cpu()
        if not finite.all():
            height, width = self.resolution
            first = int(ids[int((~finite).nonzero()[0])])
            raise EvaluationError(
                f"logits are not finite at {height}x{width} px: first for sample {first}, {int((~finite).sum())} in its batch"
            )
        self.metrics.update(logits, labels)
        correct = (logits.argmax(dim=1) == labels).cpu()
        self.outcomes.append(torch.stack([ids.cpu().long(), correct.long()], dim=1))

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def throughput(self) -> tuple[int, float]:
        """Images and seconds of the forward passes, without the first (warm-up) where there are others."""
        timed = self.timings[1:] or self.timings
        return sum(images for images, _ in timed), sum(seconds for _, seconds in timed)


def _summary(shard: _Shard, num_examples: int) -> Evaluation:
    outcomes = torch.cat(shard.outcomes) if shard.outcomes else torch.zeros(0, 2, dtype=torch.int64)
    outcomes = ranks.gather(outcomes.to(shard.device)).cpu()
    ids, correct = outcomes[:, 0], outcomes[:, 1]
    num_distinct = ids.unique().numel()
    if num_distinct != len(ids) or len(ids) != num_examples:
        raise EvaluationError(f"{len(ids)} images evaluated, {num_distinct} distinct: each of the {num_examples} must be counted once")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The ``compute`` method of metric")  # a rank may well be without images
        values = shard.metrics.compute()
    assert values["n"] == num_examples, f"the metrics hold {values['n']} examples of {num_examples}"
    images, seconds = shard.throughput()
    peak = memory.peak(shard.device)
    batch_size = max((count for count, _ in shard.timings), default=num_examples)
    sizes = ranks.gather(torch.tensor([[images, peak.num_bytes, batch_size, *shard.resolution]], device=shard.device)).cpu()
    slowest = float(ranks.gather(torch.tensor([seconds], dtype=torch.float64, device=shard.device)).max())
    height, width = sizes[:, 3:].max(dim=0).values.tolist()
    return Evaluation(
        n=num_examples,
        top1=values["top1"],
        top1_stderr=binomial_stderr(values["top1"], num_examples),
        top5=values["top5"],
        top5_stderr=binomial_stderr(values["top5"], num_examples),
        nll_nats=values["nll_nats"],
        nll_stderr=values["nll_stderr"] if num_examples > 1 else None,
        ece=values["ece"],
        images_per_second=int(sizes[:, 0].sum()) / slowest,
        images_per_second_method="wall_time of forward passes after the first, slowest rank",
        peak_memory_bytes=int(sizes[:, 1].max()),
        peak_memory_method=peak.method,
        batch_size=int(sizes[:, 2].min()),
        resolution=(height, width),
        correct=np.packbits(correct[ids.argsort()].numpy().astype(bool)).tobytes(),
    )
