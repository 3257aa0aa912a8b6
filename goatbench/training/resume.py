"""Checkpoints of a training that is under way: when they are written, which signals end it, and how it goes on to the same bits.

The order of samples and their augmentation are functions of (seed, epoch, sample id), so that a place in the epoch says which
batches remain; weights, optimizer, schedule and counters are Lightning's checkpoint; the states of the random generators that
drop path draws from are added here, one of each rank.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from ..errors import REQUEUES, PreemptedError, UsageError
from ..spec import TrainerSpec
from .checkpoint import write_atomic
from .ranks import is_distributed

RESUME = "resume"
SYNC_STEPS = 10  # on accelerators, several ranks agree in every tenth step: asking makes the device wait
SAVE = 1  # below every signal number
PARTS = {"state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks", "epoch", "global_step"}  # of Lightning's checkpoint


class Checkpoints(lightning.Callback):
    """Writes `path` every trainer.checkpoint_steps optimizer steps, every trainer.checkpoint_minutes, and when a signal asks for the
    end: SIGINT (Ctrl-C) and SIGTERM, then KeyboardInterrupt, and SIGUSR1, then PreemptedError.

    All of it happens between two optimizer steps, or, in the last step of an epoch, after the validation; never after the last
    validation, where nothing remains to be trained. A second signal interrupts at once.
    """

    def __init__(self, path: Path, spec: TrainerSpec, seed: int) -> None:
        self.path, self.seed = path, seed
        self.every_steps = spec.checkpoint_steps
        self.every_seconds = None if spec.checkpoint_minutes is None else 60 * spec.checkpoint_minutes
        self.resumed_at: list[int] = []  # optimizer steps after which a process took over
        self.asked = 0  # number of the signal
        self._states: list[dict[str, Any]] | None = None  # of the random generators, by rank

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        if self._states is None:
            _seed(self.seed, trainer.global_rank)
        else:
            _set_random_state(self._states[trainer.global_rank], module.device)
            self.resumed_at.append(trainer.global_step)
        self._saved = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # Lightning puts the old handlers back
                signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        is_requeued = REQUEUES in os.environ and number != signal.SIGINT  # a cluster sends SIGUSR1 and SIGTERM, one after the other
        if self.asked and not is_requeued:
            raise KeyboardInterrupt
        self.asked = signal.SIGUSR1 if is_requeued else number

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        is_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if is_step and batch_idx + 1 < trainer.num_training_batches:
            self._act(trainer, module)

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        if trainer.current_epoch + 1 < (trainer.max_epochs or 0):
            self._act(trainer, module)

    def _act(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        code = self._code(trainer, module)
        if code:
            trainer.save_checkpoint(self.path)
            self._saved = time.monotonic()
        if code > SAVE:
            self.stop(code, trainer.global_step)

    def _code(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> int:
        """0, SAVE, or the number of a signal; the same on every rank."""
        step = trainer.global_step
        is_due = self.every_seconds is not None and time.monotonic() - self._saved >= self.every_seconds
        code = max(self.asked, int(is_due))
        if trainer.world_size > 1:
            is_asking = module.device.type == "cpu" or step % SYNC_STEPS == 0
            code = int(trainer.strategy.reduce(torch.tensor(code, device=module.device), reduce_op="max")) if is_asking else 0
        return max(code, int(self.every_steps is not None and step % self.every_steps == 0))

    def stop(self, number: int, step: int) -> None:
        """Ends the training in the way that the signal means."""
        if number == signal.SIGUSR1:
            raise PreemptedError(f"stopped after {step} steps; the same command goes on from there")
        if self.path.stem != RESUME:  # only the same run could go on, and it ends with a record
            raise KeyboardInterrupt(f"stopped after {step} steps; with retrain=true the same command starts anew")
        raise KeyboardInterrupt(f"training is kept up to step {step}; the same command goes on from there")

    def state_dict(self) -> dict[str, Any]:
        """Called on every rank, written by the first."""
        states: list[Any] = [_random_state()]
        if is_distributed():
            states = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(states, _random_state())
        return {"random_states": states, "resumed_at": self.resumed_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._states, self.resumed_at = state["random_states"], list(state["resumed_at"])


class ResumeFile(TorchCheckpointIO):
    """Lightning's checkpoint as one file that is whole or absent, read without running anything that it says."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike, storage_options: Any = None) -> None:
        write_atomic(Path(path), checkpoint)

    def load_checkpoint(self, path: str | os.PathLike, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        try:
            content = torch.load(path, map_location=map_location, weights_only=True)
            if lacking := PARTS - content.keys():
                raise KeyError(*lacking)
            return content
        except Exception as error:  # a damaged file can fail anywhere in the zip, the unpickler or the layout
            raise UsageError(f"{path} is damaged ({type(error).__name__}): remove it, and the training starts anew") from error


def _seed(seed: int, rank: int) -> None:
    own = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(own)
    np.random.seed(own)
    torch.manual_seed(own)


def _random_state() -> dict[str, Any]:
    """Of this process's global generators, as plain Python and tensors."""
    name, keys, *rest = np.random.get_state()
    version, numbers, gauss = random.getstate()
    state = {"python": [version, list(numbers), gauss], "numpy": [name, keys.tolist(), *rest], "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: dict[str, Any], device: torch.device) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
