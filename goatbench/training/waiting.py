"""How long training stood still for its batches, and the line that says so when that was most of the time."""

from __future__ import annotations

import time

from lightning.pytorch.profilers import Profiler

from ..spec import RunSpec

BOUND_BY_LOADER = 0.5  # of the wall time: from here on a faster model would not train faster
SHORTEST_SECONDS = 10.0  # of wall time; less is mostly the start
_FETCH = "[_TrainingEpochLoop].train_dataloader_next"  # how Lightning calls the taking of a training batch from its loader


class LoaderClock(Profiler):
    """Wall time between the batches of a training in which this process's loop stood still for the next one, in `seconds`.

    Only the loader counts: validation, checkpoints, copies to the device and what ranks agree on between two steps do not (some of
    that waits for the device). Without workers it is the time it takes to make the batches. The first batch of the process is left out,
    because with workers it measures their start; the first of a later epoch counts. On a GPU, work that was queued before may go on
    meanwhile: then the device has waited for less than this.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._began = 0.0
        self._is_first = True

    def start(self, action_name: str) -> None:
        if action_name == _FETCH:
            self._began = time.perf_counter()

    def stop(self, action_name: str) -> None:
        if action_name == _FETCH:
            self.seconds += 0.0 if self._is_first else time.perf_counter() - self._began
            self._is_first = False


def loader_notice(spec: RunSpec, wait_seconds: float, wall_seconds: float) -> str | None:
    """One line for a training that waited for most of its time, with what to do; None for others and for short ones."""
    if wall_seconds < SHORTEST_SECONDS or wait_seconds <= BOUND_BY_LOADER * wall_seconds:
        return None
    images = spec.domain == "vision"
    advice = f"raise trainer.num_workers (now {spec.trainer.num_workers})"
    if spec.data.name == "image_parquet":  # bench image_loader, "parquet, shuffled"
        advice += ", or keep the images as files or in tar shards: shuffled, each image of a parquet shard costs a row group"
    advice += "; goatbench bench image_loader says what a core can do" if images else ""
    return f"training waited {wait_seconds / wall_seconds:.0%} of its time for {'images' if images else 'data'}: {advice}"
