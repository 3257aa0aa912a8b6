"""Budget and recipe of a training, and the machine that does it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

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
    """The machine side: handed to Lightning. Not part of a run's identity, but for precision.

    checkpoint_steps, checkpoint_minutes: how often a training that is under way is saved; None: not on this account.
    time_limit_minutes: of one stage of a training.
    """

    accelerator: Literal["cpu", "gpu", "auto"] = "cpu"
    devices: int = Field(default=1, gt=0)
    num_nodes: int = Field(default=1, gt=0)
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    precision: Literal["32-true", "bf16-mixed", "bf16-true"] = "32-true"
    num_threads: int = Field(default=1, gt=0, le=1024)
    num_workers: int = Field(default=0, ge=0)
    accumulate: int = Field(default=1, gt=0)
    checkpoint_activations: bool = False
    compile: bool = False
    time_limit_minutes: float | None = Field(default=None, gt=0)
    checkpoint_steps: int | None = Field(default=None, gt=0)
    checkpoint_minutes: float | None = Field(default=10, gt=0)

    @model_validator(mode="after")
    def _has_gpus_to_shard_over(self) -> TrainerSpec:
        if self.strategy == "fsdp2" and self.accelerator != "gpu":
            raise ValueError(f"strategy=fsdp2 shards over GPUs, but accelerator={self.accelerator}: use trainer=fsdp2, or strategy=ddp")
        return self

    @property
    def numerics(self) -> dict[str, Any]:
        """What changes the order of sums, beside threads and processes, where it is not at its default."""
        found = {"accumulate": self.accumulate > 1 and self.accumulate, "compile": self.compile, "sharded": self.strategy == "fsdp2"}
        return {name: value for name, value in found.items() if value}


class LaunchSpec(Strict):
    """Where the processes of a run start: local, or as jobs of a Slurm cluster, which the rest is for. No part of a run's identity.

    Each rank is a task of a job, with a GPU if the trainer uses them. grace_seconds: from SIGUSR1 to the end of a job; time for a
    checkpoint. max_requeues: how often a job that ran out of time_minutes goes on. parallel: jobs of an array at a time.
    setup: lines of shell before the run.
    """

    kind: Literal["local", "slurm"] = "local"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_minutes: int = Field(default=240, gt=0)
    memory_gb: float | None = Field(default=None, gt=0)
    grace_seconds: int = Field(default=120, ge=30)
    max_requeues: int = Field(default=20, ge=0)
    parallel: int = Field(default=64, gt=0)
    setup: list[str] = []
