"""One run of any domain, and the hashes that name it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ..records.canonical import digest
from ..records.record import NAME_PATTERN
from .attention import AttentionSpec
from .strict import Strict
from .training import LaunchSpec, TrainerSpec, TrainingSpec

LATER_FIELDS = {  # part.name -> default: no part of a run's identity at it, so that older records keep their hash
    "model.weight_std": 0.02,
    "model.embedding_std": 0.02,
    "attention.position": None,
    "attention.gate": "none",
    "attention.inner": "softmax",
    "attention.inner_options": {},
    "evaluation.streaming_grid": False,
    "data.repeats": 1,
}


class RunSpec(Strict):
    """One run, whatever its domain. `config_hash` leaves out what may not change a result (where files go, the machine, retrain)."""

    path_keys: ClassVar[tuple[str, ...]] = ()  # of data: where it lies; what it holds is in the data fingerprint

    scale: str = Field(pattern=NAME_PATTERN)
    domain: str = Field(pattern=NAME_PATTERN)
    attention: AttentionSpec
    training: TrainingSpec
    trainer: TrainerSpec
    launch: LaunchSpec = LaunchSpec()
    kernel: Literal["auto", "reference", "sdpa", "flash", "flex"] = "auto"
    seed: int = Field(default=0, ge=0, lt=2**31)
    runs_dir: str = Field(default="runs", min_length=1)
    retrain: bool = False

    @model_validator(mode="after")
    def _batch_divides(self) -> RunSpec:
        parts = self.trainer.devices * self.trainer.num_nodes * self.trainer.accumulate
        if self.training.batch_size % parts:
            raise ValueError(
                f"training.batch_size {self.training.batch_size} is global and no multiple of devices * num_nodes * accumulate = {parts}"
            )
        if self.trainer.strategy == "fsdp2" and self.training.optimizer == "lamb":
            raise ValueError("training.optimizer=lamb takes norms of whole parameters, which strategy=fsdp2 has nowhere: use strategy=ddp")
        return self

    @property
    def learning_rate(self) -> float:
        if self.training.learning_rate != "tuned":
            return float(self.training.learning_rate)
        return self.attention.tuned.get(self.domain, {}).get(self.scale, self.training.default_learning_rate)

    @property
    def learning_rate_source(self) -> str:
        if self.training.learning_rate != "tuned":
            return "given"
        return "tuned" if self.scale in self.attention.tuned.get(self.domain, {}) else "default"

    @property
    def identity(self) -> dict[str, Any]:
        """The part of the configuration that can change a result."""
        full = self.model_dump(mode="json", exclude={"runs_dir", "retrain", "trainer", "launch"})
        full["precision"] = self.trainer.precision
        for path in self.path_keys:
            full["data"].pop(path)
        full["attention"].pop("axes")
        for key, default in LATER_FIELDS.items():
            part, _, name = key.partition(".")
            if name in full[part] and full[part][name] == default:
                del full[part][name]
        rate = self.attention.tuned.get(self.domain, {}).get(self.scale)  # those of other domains and scales are no part of this run
        full["attention"]["tuned"] = {} if rate is None else {self.domain: {self.scale: rate}}
        return full

    @property
    def config_hash(self) -> str:
        return digest(self.identity)

    @property
    def earlier_config_hash(self) -> str:
        """What config_hash was for records that were made while every domain's tuned learning rates counted."""
        return digest({**self.identity, "attention": {**self.identity["attention"], "tuned": self.attention.tuned}})

    def training_hash(self, data_fingerprint: str, source_hash: str) -> str:
        """Names a checkpoint: all runs that would train the same weights share it."""
        part = self.identity
        for key in ("task", "evaluation"):
            part.pop(key)
        part["attention"].pop("tuned")
        part["training"].pop("default_learning_rate")
        part["training"]["learning_rate"] = self.learning_rate
        part["data"].pop("num_test", None)
        made_by = [part, self.trainer.num_threads, self.trainer.devices * self.trainer.num_nodes, data_fingerprint, source_hash]
        return digest([*made_by, self.trainer.numerics] if self.trainer.numerics else made_by)
