"""What computes attention in a run, seen where the run will be: on its device, in its precision, with its determinism."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..models import kernels_used
from ..models.backbone import Backbone
from ..spec import RunSpec
from .process_settings import as_in_training


def observed_kernels(
    spec: RunSpec, net: Backbone, device: str, train: Tensor, evaluation: Tensor, beside: Callable[[Tensor], tuple[Any, ...]] = lambda _: ()
) -> dict[str, str]:
    """`kernel_train` and `kernel_eval` of a record. train, evaluation: one example each (image or token ids); on a GPU training is
    looked at with the batch of a forward pass, as kernels may refuse what would be too large. beside: what training gives the net beside
    these (positions, mask). ValueError if no kernel can do it.

    The net stays where it is and what it is: elsewhere, and in bf16-true, a copy is looked at.
    """
    precision, place = spec.trainer.precision, _own(torch.device(device))
    dtype = torch.bfloat16 if precision == "bf16-true" else torch.float32
    if place.type != "cpu" or precision == "bf16-true":
        net = copy.deepcopy(net).to(place, dtype)
    autocast = torch.autocast(place.type, torch.bfloat16) if precision == "bf16-mixed" else contextlib.nullcontext()
    with autocast:
        with as_in_training():
            inputs = _moved(train, place, dtype, _examples(spec, place))
            found = kernels_used(net.train(), inputs, *beside(inputs))
        with torch.inference_mode():
            return {"kernel_train": found, "kernel_eval": kernels_used(net.eval(), _moved(evaluation, place, dtype, 1))}


def _own(device: torch.device) -> torch.device:
    """This rank's GPU of its machine."""
    if device.type == "cpu":
        return device
    rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
    return torch.device(device.type, rank % torch.cuda.device_count())


def _examples(spec: RunSpec, device: torch.device) -> int:
    """Of a forward pass in training."""
    parts = spec.trainer.devices * spec.trainer.num_nodes * spec.trainer.accumulate
    return 1 if device.type == "cpu" else max(1, spec.training.batch_size // parts)


def _moved(example: Tensor, device: torch.device, dtype: torch.dtype, batch: int) -> Tensor:
    """A batch of one example, images in the net's dtype."""
    moved = example.to(device).expand(batch, *example.shape[1:])
    return moved.to(dtype) if moved.is_floating_point() else moved
