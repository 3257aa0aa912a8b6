"""Exact evaluation of a classifier under ONE condition (one resolution): each image once, counted, on any number of processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ..metrics.classification import ClassificationMetrics, binomial_stderr
from . import ranks
from .ranks import EvaluationError as EvaluationError
from .shard import Shard

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
    image_nll_nats: np.ndarray  # float64 [n], by ascending sample id


def evaluate(
    net: nn.Module,
    loader: Loader,
    *,
    num_examples: int,
    num_classes: int,
    device: torch.device | str,
    classes: np.ndarray | None = None,
    progress_label: str | None = None,
    autocast_dtype: torch.dtype | None = None,
) -> Evaluation:
    """Evaluates `net` (images -> logits [B, num_classes]) on a loader that can be iterated again. classes: the class indices, ascending,
    whose logits are compared, where the images show no others; None: all.

    With torch.distributed initialised, each rank's loader gives its own shard, of any size and without padding; no collective runs
    before a rank is through its shard. num_examples is the size of the whole data set: any other count, or an id seen twice, raises
    EvaluationError. autocast_dtype: None computes in the net's own dtype; metrics are always float32.
    Out of memory, the rank halves its batch and starts its shard again from the first sample.
    """
    shard = _Shard(
        net=net, device=torch.device(device), num_examples=num_examples, autocast_dtype=autocast_dtype, progress_label=progress_label,
        classes=np.arange(num_classes) if classes is None else classes,
    )  # fmt: skip
    shard.run(loader)
    return _summary(shard)


@dataclass(kw_only=True)
class _Shard(Shard):
    """One rank's images, and what came out."""

    unit: ClassVar[str] = "image"

    classes: np.ndarray  # int64, ascending
    metrics: ClassificationMetrics = field(init=False)
    outcomes: list[Tensor] = field(init=False)  # [b, 3] float64: sample id, correct, nll
    resolution: tuple[int, int] = field(init=False)
    dtype: torch.dtype = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = next((p.dtype for p in self.net.parameters()), torch.float32)  # bfloat16 after training in bf16-true

    def reset(self) -> None:
        self.metrics = ClassificationMetrics(len(self.classes)).to(self.device)  # torchmetrics: one object a condition
        self.outcomes, self.resolution = [], (0, 0)

    def check(self, batch: tuple[Tensor, ...]) -> None:
        images, _, ids = batch
        size = (images.shape[-2], images.shape[-1])
        if self.resolution not in ((0, 0), size):
            raise EvaluationError(f"two resolutions in one evaluation: {self.resolution} and {size}, from sample {int(ids[0])}")
        self.resolution = size

    def score(self, images: Tensor, labels: Tensor, ids: Tensor) -> None:
        images = images.to(self.device, self.dtype, non_blocking=True)
        labels = labels.to(self.device, non_blocking=True)
        with self.forward(len(labels)):
            logits = self.net(images)
        logits = logits.float()
        finite = torch.isfinite(logits).all(dim=1).cpu()
        if not finite.all():
            height, width = self.resolution
            first = int(ids[int((~finite).nonzero()[0])])
            raise EvaluationError(
                f"logits are not finite at {height}x{width} px: first for sample {first}, {int((~finite).sum())} in its batch"
            )
        if len(self.classes) < logits.shape[1]:
            kept = torch.from_numpy(self.classes).to(self.device)
            logits, labels = logits[:, kept], torch.searchsorted(kept, labels)
        self.metrics.update(logits, labels)
        correct = logits.argmax(dim=1) == labels
        nll = nn.functional.cross_entropy(logits, labels, reduction="none")
        self.outcomes.append(torch.stack([ids.double(), correct.double().cpu(), nll.double().cpu()], dim=1))


def _summary(shard: _Shard) -> Evaluation:
    num_examples = shard.num_examples
    outcomes = torch.cat(shard.outcomes) if shard.outcomes else torch.zeros(0, 3, dtype=torch.float64)
    outcomes = ranks.gather(outcomes.to(shard.device)).cpu()
    ids = outcomes[:, 0].long()
    shard.require_all(ids)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The ``compute`` method of metric")  # a rank may well be without images
        values = shard.metrics.compute()
    assert values["n"] == num_examples, f"the metrics hold {values['n']} examples of {num_examples}"
    costs = shard.costs()
    height, width = shard.gathered(*shard.resolution).max(dim=0).values.tolist()
    _, correct, nll = outcomes[ids.argsort()].numpy().T
    return Evaluation(
        n=num_examples,
        top1=values["top1"],
        top1_stderr=binomial_stderr(values["top1"], num_examples),
        top5=values["top5"],
        top5_stderr=binomial_stderr(values["top5"], num_examples),
        nll_nats=values["nll_nats"],
        nll_stderr=values["nll_stderr"] if num_examples > 1 else None,
        ece=values["ece"],
        images_per_second=costs.examples_per_second,
        images_per_second_method=costs.speed_method,
        peak_memory_bytes=costs.peak_memory_bytes,
        peak_memory_method=costs.peak_memory_method,
        batch_size=costs.batch_size,
        resolution=(height, width),
        correct=np.packbits(correct.astype(bool)).tobytes(),
        image_nll_nats=nll,
    )
