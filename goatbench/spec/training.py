"""Budget and recipe of a training, and the machine that does it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .strict import Strict


class TrainingSpec(Strict):
    """The budget and recipe; equal for every attention but for the learning rate, which a committed sweep chose for each."""

    epochs: int = Field(gt=0)
    batch_size: int = Field(gt=0)  # global
    learning_rate: Annotated[float, Field(gt=0)] | Literal["tuned"] = "tuned"
    default_learning_rate: float = Field(gt=0)  # where no sweep has been run
    min_learning_rate_ratio: float = Field(default=0.01, ge=0, le=1)
    warmup_fraction: float = Field(default=0.1, ge=0, lt=1)
    optimizer: Literal["adamw", "lamb"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(default=0.05, ge=0)
    clip_norm: float | None = 1.0
    loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"


class TrainerSpec(Strict):
    """The machine side: handed to Lightning. Not part of a run's identity, but for precision."""

    accelerator: Literal["cpu", "gpu", "auto"] = "cpu"
    devices: int = Field(default=1, gt=0)
    num_nodes: int = Field(default=1, gt=0)
    strategy: Literal["auto", "ddp"] = "auto"
    precision: Literal["32-true", "bf16-mixed", "bf16-true"] = "32-true"
    num_threads: int = Field(default=1, gt=0, le=1024)
    num_workers: int = Field(default=0, ge=0)
    accumulate: int = Field(default=1, gt=0)
    checkpoint_activations: bool = False
    compile: bool = False
    time_limit_minutes: float | None = Field(default=None, gt=0)
