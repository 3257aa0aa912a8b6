"""Trains a module through Lightning's Trainer, keeps the epoch that is best on validation, and accounts for what it cost."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor

from ..progress import tell
from ..spec import TrainerSpec
from . import memory
from .checkpoint import load_checkpoint, save_checkpoint
from .module import TrainingModule
from .process_settings import cheap_device_checks, determinism, plain_interrupt, quiet
from .ranks import gather
from .resume import RESUME, Checkpoints, ResumeFile
from .waiting import LoaderClock

__all__ = ["FitResult", "TimeLimitError", "fit", "load_checkpoint", "save_checkpoint"]


class TimeLimitError(Exception):
    """Training ran into trainer.time_limit_minutes; no weights were saved."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """What training did and cost. Times leave validation out; CPU time is this process's (rank 0's), without data workers."""

    selected_epoch: int  # 1 is the state after the first epoch; of equal values the earliest
    selected_on: str  # the quantity, 'validation top1 at base resolution'
    selected_value: float  # its value in that epoch
    validation_values: list[float]  # one value an epoch
    steps: int  # optimizer steps
    samples: int  # training examples seen, over all ranks
    train_cpu_seconds: float
    train_wall_seconds: float
    train_wait_seconds: float  # of train_wall_seconds, for batches: waiting.LoaderClock, on rank 0
    peak_memory_bytes: int
    peak_memory_method: str
    resumed_at_steps: list[int] = field(default_factory=list)  # where a later process went on from a checkpoint


def fit(
    module: TrainingModule,
    data: lightning.LightningDataModule,
    trainer_spec: TrainerSpec,
    epochs: int,
    checkpoint_path: Path,
    progress: bool = True,
    *,
    seed: int = 0,
    meta: dict[str, Any] | None = None,
    retrain: bool = False,
) -> FitResult:
    """Trains for `epochs` epochs with a validation after each; then `module.net` holds the weights of the best epoch, and so does
    the checkpoint, whose meta is `meta`, the result under "fit", and under "unreadable" the training examples that `data` says it has
    left out.

    Random draws of training come from (seed, rank) alone (drop path), or from (seed, epoch, batch) (mixup), however many numbers
    initialisation has used: equal for every attention. `data` must shard its batches over the ranks itself. Raises TimeLimitError,
    FloatingPointError.
    On the way, a checkpoint lies beside the result; if one lies there already, the training goes on from it, to the same bits. It is
    gone when the training is done. retrain: only from one of the same run (meta's run_id), as after a requeue.
    Under fsdp2 only the first rank's `module.net` holds the weights.
    """
    torch.set_num_threads(trainer_spec.num_threads)
    watch = _Watch(module, epochs, trainer_spec, progress)
    name = f"{RESUME}-{meta['run_id']}.ckpt" if retrain and meta else f"{RESUME}.ckpt"
    checkpoints = Checkpoints(checkpoint_path.with_name(name), trainer_spec, seed)
    whole = module.net
    if trainer_spec.strategy == "fsdp2":
        module.net = copy.deepcopy(whole)  # what is sharded once stays so: the caller's net is for evaluation
    with quiet(), determinism(), cheap_device_checks(trainer_spec), plain_interrupt():
        trainer = _make_trainer(trainer_spec, epochs, [watch, checkpoints], watch.loader_clock)
        if trainer_spec.compile:
            if trainer.is_global_zero:
                tell("compiling the net: the first steps take a minute or more")
            module.compile_net()
        start = checkpoints.path if checkpoints.path.exists() else None
        module.train()  # Lightning trains in the mode that it finds, and looking at the net's kernels leaves it in evaluation
        trainer.fit(module, datamodule=data, ckpt_path=start, weights_only=True)
        result = watch.result(trainer, checkpoints.resumed_at)
        if trainer.is_global_zero:
            whole_meta = {**(meta or {}), "fit": asdict(result), "unreadable": getattr(data, "unreadable", [])}
            save_checkpoint(checkpoint_path, watch.best_weights, whole_meta)
            checkpoints.path.unlink(missing_ok=True)
        trainer.strategy.barrier()
    module.net = whole
    if watch.best_weights:
        whole.load_state_dict(watch.best_weights)
    if checkpoints.asked:  # in the last epoch; the training is done and saved, the rest is for the next start
        checkpoints.stop(checkpoints.asked, result.steps)
    return result


def _make_trainer(spec: TrainerSpec, epochs: int, callbacks: list[lightning.Callback], profiler: LoaderClock) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator=spec.accelerator,
        devices=spec.devices,
        num_nodes=spec.num_nodes,
        strategy=_strategy(spec),
        precision=spec.precision,
        accumulate_grad_batches=spec.accumulate,
        max_epochs=epochs,
        callbacks=callbacks,
        plugins=[ResumeFile()],
        profiler=profiler,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        deterministic=True,
        benchmark=False,
        inference_mode=not spec.compile,  # a compiled net would be traced again for inference tensors
    )


def _strategy(spec: TrainerSpec) -> str | Strategy:
    size = spec.devices * spec.num_nodes
    if spec.strategy == "fsdp2":  # TrainingModule.configure_model shards; one file, whole, for every checkpoint
        return ModelParallelStrategy(data_parallel_size=size, tensor_parallel_size=1, save_distributed_checkpoint=False)
    if size > 1:
        # every parameter is used, buffers are constants: nothing to search for, nothing to send, and uneven validation shards cannot hang
        return DDPStrategy(find_unused_parameters=False, broadcast_buffers=False, gradient_as_bucket_view=True)
    return spec.strategy


class _Watch(lightning.Callback):
    """Follows one training: clock, progress, time limit, sharding check, and the weights of the best epoch."""

    def __init__(self, module: TrainingModule, epochs: int, spec: TrainerSpec, progress: bool) -> None:
        self.module = module
        self.epochs = epochs
        self.show_progress = progress
        self.time_limit = None if spec.time_limit_minutes is None else 60 * spec.time_limit_minutes
        self.samples = 0
        self.cpu_seconds = 0.0
        self.wall_seconds = 0.0
        self.loader_clock = LoaderClock()
        self.curve: list[float] = []
        self.best_weights: dict[str, Tensor] = {}
        self.peak_bytes = 0
        self.bar: Any = None
        self.shown_steps = 0

    def on_train_start(self, trainer: lightning.Trainer, module: TrainingModule) -> None:
        steps = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches) * self.epochs
        if steps != module.total_steps:
            raise ValueError(f"the schedule was made for {module.total_steps} steps, but the data give {steps}")
        memory.start(module.device)
        self.started = time.monotonic()
        if self.show_progress and trainer.is_global_zero:
            from ..progress import Progress

            self.bar = Progress("training", total=steps, unit="step")
            self.bar.__enter__()
            self.bar.advance(trainer.global_step)  # what an earlier process has done
            self.shown_steps = trainer.global_step
            if trainer.global_step:
                tell(f"training goes on from step {trainer.global_step}")
        self._resume()

    def _resume(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def _pause(self) -> None:
        self.cpu_seconds += time.process_time() - self._cpu
        self.wall_seconds += time.perf_counter() - self._wall

    def on_train_batch_start(self, trainer: lightning.Trainer, module: TrainingModule, batch: Any, batch_idx: int) -> None:
        if trainer.world_size > 1 and self.samples == 0:
            ids = gather(batch[-1])  # of any lengths: a rank may have lost an unreadable image
            if ids.unique().numel() < ids.numel():
                raise ValueError("the ranks were given the same training examples: the data module must shard its batches over the ranks")

    def on_train_batch_end(self, trainer: lightning.Trainer, module: TrainingModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.samples += len(batch[-1])
        if self.bar is not None and trainer.global_step > self.shown_steps:
            self._show(trainer.global_step, outputs["loss"] * trainer.accumulate_grad_batches)
        if self.time_limit is not None:
            is_over = time.monotonic() - self.started > self.time_limit
            if trainer.world_size > 1:
                is_over = trainer.strategy.reduce_boolean_decision(is_over, all=False)
            if is_over:
                raise TimeLimitError(
                    f"training exceeded the time limit of {self.time_limit / 60:g} minutes after {trainer.global_step} steps"
                )

    def _show(self, steps: int, loss: Tensor) -> None:
        is_look_free = loss.device.type == "cpu" or steps % 50 == 0  # reading a loss makes an accelerator wait
        self.bar.advance(steps - self.shown_steps, **({"loss": float(loss)} if is_look_free else {}))
        self.shown_steps = steps

    def on_validation_start(self, trainer: lightning.Trainer, module: TrainingModule) -> None:
        self._pause()

    def on_validation_end(self, trainer: lightning.Trainer, module: TrainingModule) -> None:
        value = module.selection_value
        if not self.curve or _best(module, [*self.curve, value]) != _best(module, self.curve):
            self.best_weights = module.whole_weights()
        self.curve.append(value)
        self._resume()

    def on_train_end(self, trainer: lightning.Trainer, module: TrainingModule) -> None:
        self._pause()
        self.peak_bytes, self.peak_method = self._peak()
        self.total_samples = int(trainer.strategy.reduce(torch.tensor(self.samples, device=module.device), reduce_op="sum"))
        self._close()

    def on_exception(self, trainer: lightning.Trainer, module: TrainingModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
            self.bar = None

    def _peak(self) -> tuple[int, str]:
        """Bytes and method; of all processes that took part one after the other, the most."""
        now = memory.peak(self.module.device)
        return max(now.num_bytes, self.peak_bytes), now.method

    def state_dict(self) -> dict[str, Any]:
        """Written while training runs; what happens between the checkpoint and the end of its process is not counted."""
        self._pause()
        self._resume()
        names = ("samples", "cpu_seconds", "wall_seconds", "curve", "best_weights")
        more = {"peak_bytes": self._peak()[0], "wait_seconds": self.loader_clock.seconds}
        return {name: getattr(self, name) for name in names} | more

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader_clock.seconds = state.get("wait_seconds", 0.0)  # checkpoints of earlier versions have none
        for name in state.keys() - {"wait_seconds"}:
            setattr(self, name, state[name])

    def result(self, trainer: lightning.Trainer, resumed_at: list[int]) -> FitResult:
        assert len(self.curve) == self.epochs, f"{len(self.curve)} validations in {self.epochs} epochs"
        best = _best(self.module, self.curve)
        return FitResult(
            selected_epoch=self.curve.index(best) + 1,
            selected_on=self.module.selected_on,
            selected_value=best,
            validation_values=self.curve,
            steps=trainer.global_step,
            samples=self.total_samples,
            train_cpu_seconds=self.cpu_seconds,
            train_wall_seconds=self.wall_seconds,
            train_wait_seconds=self.loader_clock.seconds,
            peak_memory_bytes=self.peak_bytes,
            peak_memory_method=self.peak_method,
            resumed_at_steps=resumed_at,
        )


def _best(module: TrainingModule, values: list[float]) -> float:
    return {"max": max, "min": min}[module.selection_direction](values)
