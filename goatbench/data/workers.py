"""Loaders of whole batches, with or without worker processes, which hand over what is wrong with the data in one line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from ..errors import UsageError


def leave_interrupts_to_the_trainer(worker: int) -> None:
    """A terminal sends Ctrl-C to all processes: a worker that died of it would take the last steps before the checkpoint with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Batches(Dataset):
    """What a loader asks for whole batches at once. Subclasses have `batch(requests)`."""

    def __getitems__(self, requests: list) -> Any:
        try:
            return self.batch(requests)
        except UsageError as error:
            if get_worker_info() is None:
                raise
            return error


class Collated(Batches):
    """The batches of a data set of single samples. collate: samples -> batch; None: tensors stacked."""

    def __init__(self, samples: Dataset, collate: Callable[[list], Any] | None = None) -> None:
        self.samples, self.collate = samples, collate or default_collate

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, requests: list) -> Any:
        at_once = getattr(self.samples, "__getitems__", None)
        return self.collate(at_once(requests) if at_once else [self.samples[request] for request in requests])


class Loader(DataLoader):
    """A DataLoader whose worker processes hand over a UsageError as it is, not wrapped in a traceback: one line names the file."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            if isinstance(batch, UsageError):
                raise batch
            yield batch


def make_loader(batches: Batches, sampler: Any, batch_size: int, num_workers: int, drop_last: bool) -> Loader:
    return Loader(
        batches,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=num_workers,
        worker_init_fn=leave_interrupts_to_the_trainer,
        collate_fn=as_is,
        drop_last=drop_last,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=num_workers > 0,
        generator=torch.Generator(),  # its own: a loader must not move the global stream that dropout draws from
    )


def as_is(batch: Any) -> Any:
    """The collate function: the data sets return batches."""
    return batch
