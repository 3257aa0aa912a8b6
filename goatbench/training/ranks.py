"""The processes of one run, as evaluations see them; one process where torch.distributed is not initialised."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def world_size() -> int:
    return torch.distributed.get_world_size() if is_distributed() else 1


def rank() -> int:
    return torch.distributed.get_rank() if is_distributed() else 0


def gather(tensor: Tensor) -> Tensor:
    """The ranks' tensors, of any lengths, one after the other."""
    return torch.cat(gather_all_tensors(tensor)) if is_distributed() else tensor


def total(tensor: Tensor) -> Tensor:
    """The sum over the ranks, on each of them; every rank must call it, with one shape."""
    if is_distributed():
        torch.distributed.all_reduce(tensor := tensor.clone())
    return tensor


def first_error(error: Exception | None, device: torch.device) -> Exception | None:
    """What this rank has to raise: its own error, or word of another rank's; None if all went well. Every rank must call it, so that
    none waits in a collective for one that has left."""
    failed = gather(torch.tensor([error is not None], device=device, dtype=torch.int64))
    if error is not None:
        return error
    return EvaluationError(f"the evaluation failed on rank {int(failed.nonzero()[0])}: see its message") if failed.any() else None


class EvaluationError(Exception):
    """The evaluation cannot be trusted: samples missing or counted twice, or outputs that are not finite."""
