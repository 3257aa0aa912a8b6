"""Peak memory of one training step on one device, and the largest batch that a device holds.

Fake tensors run the step (forward with loss, backward, optimizer) of the run's own model, batch and precision, and their live
storages are counted: training.step_cost's method `estimate`, under the kernels of the CPU. A GPU adds its context, workspaces of
libraries and what its allocator cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..attention.kernels.select import get_kernel
from ..attention.packing import packed
from ..metrics.token_nll import token_nll
from ..models import build_vit
from ..registry import tasks
from ..spec import sides
from ..training.classifier import make_criterion
from ..training.step_cost import TrainingStep, fake_levels
from .undrawn import Undrawn

METHOD = "estimate: live storages of fake tensors in one training step, under the kernels of the CPU"
SHARDED = "fsdp2 divides weights, gradients and optimizer states; two blocks, and what is in none, count whole; evaluation needs whole nets"
Phases = dict[str, int]  # phase -> most bytes held in it


class PlannedStep(TrainingStep):
    """A training step of a decoder as its task trains it: with gradients of earlier batches where they accumulate."""

    def __init__(self, spec: Any, batch: int, accumulates: bool) -> None:
        super().__init__(spec, getattr(spec.model, "seq_len", 0), batch, torch.device("cpu"))
        self.accumulates = accumulates

    @property
    def phases(self) -> dict[str, Callable[[], None]]:
        earlier = {"first forward": self.forward, "first backward": self.backward} if self.accumulates else {}
        return {**earlier, "forward": self.forward, "backward": self.backward, "optimizer": self.optimize}

    def forward(self) -> None:
        last = tasks.get(self.spec.task.name).answer_tokens(self.spec)
        inputs, targets = self.tokens[:, :-1], self.tokens[:, 1:]
        is_packed = getattr(self.spec.data, "packing", "concat") == "documents"
        with self.autocast():
            where = packed(inputs == self.spec.model.vocab_size - 1) if is_packed else ()
            hidden = self.net.hidden(inputs, *where)
            logits = self.net.head(hidden if last is None else hidden[:, -last:])
            nll, is_scored = token_nll(logits, targets if last is None else targets[:, -last:], self.spec.model.num_scored)
            self.loss = nll.sum() / is_scored.sum().clamp_min(1)


class ImageStep(PlannedStep):
    """A training step of a ViT."""

    def build(self) -> nn.Module:
        spec = self.spec
        net = build_vit(spec.model, spec.attention, get_kernel(spec.kernel))
        net.set_grad_checkpointing(spec.trainer.checkpoint_activations)
        return net.to(torch.bfloat16) if spec.trainer.precision == "bf16-true" else net

    def prepare(self, net: nn.Module | None = None) -> None:
        model, augmentation = self.spec.model, self.spec.data.augmentation
        dtype = torch.bfloat16 if self.spec.trainer.precision == "bf16-true" else torch.float32
        self.tokens = torch.zeros(self.batch, model.in_chans, *sides(model.image_size), dtype=dtype)
        is_mixed = augmentation.mixup > 0 or augmentation.cutmix > 0
        self.targets = torch.zeros(self.batch, model.num_classes) if is_mixed else torch.zeros(self.batch, dtype=torch.int64)
        self.criterion = make_criterion(self.spec.training, augmentation)
        self.set_up(self.build() if net is None else net)
        self.whole()

    def forward(self) -> None:
        with self.autocast():
            self.loss = self.criterion(self.net(self.tokens).float(), self.targets)


def planned_step(spec: Any, batch: int, accumulates: bool) -> PlannedStep:
    """batch: samples of one forward pass. Kernels of a GPU are replaced by those of the CPU, since fake tensors live there."""
    spec = spec.model_copy(update={"kernel": "auto"}) if spec.kernel in ("flash", "flex") else spec
    return (ImageStep if spec.domain == "vision" else PlannedStep)(spec, batch, accumulates)


def build_undrawn(spec: Any) -> nn.Module:
    """The run's model, its large weights without values. ValueError if a mechanism or kernel objects."""
    with Undrawn():
        return planned_step(spec, 1, False).build()


def estimate(spec: Any, net: nn.Module, batch: int, accumulates: bool) -> Phases:
    """Most bytes in each phase of a step on one device. ValueError if the mechanism or its kernel objects."""
    step = planned_step(spec, batch, accumulates)
    peaks = {name: level.peak for name, level in fake_levels(step, net).items() if name != "prepare"}
    if spec.trainer.strategy != "fsdp2":
        return peaks
    states = sum(_bytes(state.values()) for state in step.optimizer.state.values())
    elsewhere = 1 - 1 / (spec.trainer.devices * spec.trainer.num_nodes)
    weights, gathered = _bytes(net.parameters()), _gathered(net)
    held = {name: weights + states + weights * (accumulates or name == "optimizer") for name in peaks}  # gradients are as large as weights
    return {name: round(peak - elsewhere * held[name]) + gathered * (name != "optimizer") for name, peak in peaks.items()}


def _gathered(net: nn.Module) -> int:
    """Bytes of parameters that a device holds whole under fsdp2: a block, the one that is fetched ahead, and what is in no block."""
    blocks = [_bytes(block.parameters()) for block in net.blocks]
    outside = _bytes(net.parameters()) - sum(blocks)
    return outside + sum(sorted(blocks)[-2:]) if outside >= 0 else _bytes(net.parameters())  # blocks that share parameters are one piece


def _bytes(values: Iterable[object]) -> int:
    return sum(value.untyped_storage().nbytes() for value in values if isinstance(value, torch.Tensor))


@dataclass(frozen=True, slots=True)
class Fit:
    """What a device of the given memory holds. batch: most samples of one forward pass (0: not even one). accumulate: trainer.accumulate
    with which the global batch stays as it is and fits, and its peak; None if there is none."""

    batch: int
    peak_of_one: int
    accumulate: int | None = None
    peak: int = 0


def largest_fit(spec: Any, net: nn.Module, limit: int, here: Phases) -> Fit:
    """here: the phases at the run's own batch, which do not fit. Phases grow linearly with the batch; the answer is estimated again."""
    machine = spec.trainer
    share = spec.training.batch_size // (machine.devices * machine.num_nodes)  # samples of a device in one optimizer step
    own, accumulates = share // machine.accumulate, machine.accumulate > 1
    one = estimate(spec, net, 1, accumulates)
    if max(one.values()) > limit:
        return Fit(0, max(one.values()))
    batch = max(1, min((1 + (limit - one[p]) * (own - 1) // (here[p] - one[p]) for p in here if here[p] > limit), default=1))
    while batch > 1 and max(estimate(spec, net, batch, accumulates).values()) > limit:
        batch -= 1
    step = 2 if _pairs(spec) else 1  # mixup pairs the images of a batch
    for part in sorted((d for d in range(step, batch + 1, step) if share % d == 0), reverse=True):
        peak = max(estimate(spec, net, part, True).values())
        if peak <= limit:
            return Fit(batch - batch % step, max(one.values()), share // part, peak)
    return Fit(batch - batch % step, max(one.values()))


def _pairs(spec: Any) -> bool:
    return spec.domain == "vision" and (spec.data.augmentation.mixup > 0 or spec.data.augmentation.cutmix > 0)


def show_bytes(count: int) -> str:
    """'61.3 GiB', '812 MiB'."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
