"""One run of any domain, and the hashes that name it."""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ..records.canonical import digest
from ..records.record import NAME_PATTERN
from .attention import AttentionSpec
from .strict import Strict
from .training import LaunchSpec, TrainerSpec, TrainingSpec

LATER_FIELDS = {  # dotted name -> default: no part of a run's identity at it, so that older records keep their hash
    "model.weight_std": 0.02,
    "model.embedding_std": 0.02,
    "attention.position": None,
    "attention.gate": "none",
    "attention.inner": "softmax",
    "attention.inner_options": {},
    "evaluation.streaming_grid": False,
    "evaluation.classes": "all",
    "data.repeats": 1,
    "data.num_distractors": 0,
    "data.augmentation.rand_augment": None,
    "model.position_size": None,
    "pretraining": None,
}


SWEEPS = {  # domain -> the committed runs that the tuned learning rates of configs/attention were chosen from
    "vision": "results/vit_tuning@v1",
    "genome": "results/genome_tuning@v1",
    "text": "results/lm_tuning@v1",
    "toy": "results/needle_tuning@v1",
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
    def _recipe_fits(self) -> RunSpec:
        self.check_recipe(self.training, "training.")
        return self

    def check_recipe(self, training: TrainingSpec, where: str) -> None:
        """ValueError where the trainer cannot do it; `where` begins the keys."""
        parts = self.trainer.devices * self.trainer.num_nodes * self.trainer.accumulate
        if training.batch_size % parts:
            raise ValueError(
                f"{where}batch_size {training.batch_size} is global and no multiple of devices * num_nodes * accumulate = {parts}"
            )
        if self.trainer.strategy == "fsdp2" and training.optimizer == "lamb":
            raise ValueError(f"{where}optimizer=lamb takes norms of whole parameters, which strategy=fsdp2 has nowhere: use strategy=ddp")

    @property
    def first_stage(self) -> RunSpec | None:
        """An earlier stage of the training as a run of its own, where there is one."""
        return None

    @property
    def seen_in_training(self) -> dict[str, Any]:
        """What training takes of the evaluation: two runs that differ in it do not share weights."""
        return {}

    @property
    def learning_rate(self) -> float:
        if self.training.learning_rate != "tuned":
            return float(self.training.learning_rate)
        return self.attention.tuned.get(self.domain, {}).get(self.scale, self.training.default_learning_rate)

    @property
    def learning_rate_source(self) -> str:
        """'given', 'default', or 'tuned' with the sweep: 'tuned: results/lm_tuning@v1'."""
        if self.training.learning_rate != "tuned":
            return "given"
        if self.scale not in self.attention.tuned.get(self.domain, {}):
            return "default"
        return f"tuned: {SWEEPS[self.domain]}" if self.domain in SWEEPS else "tuned"

    @property
    def recorded(self) -> dict[str, Any]:
        """The part of the configuration that a record holds: no place of this machine."""
        return self.model_dump(mode="json", exclude={"runs_dir": True, "retrain": True, "launch": True, "data": set(self.path_keys)})

    @property
    def identity(self) -> dict[str, Any]:
        """The part of the configuration that can change a result."""
        full = self.model_dump(mode="json", exclude={"runs_dir", "retrain", "trainer", "launch"})
        full["precision"] = self.trainer.precision
        for path in self.path_keys:
            full["data"].pop(path)
        full["attention"].pop("axes")
        for key, default in LATER_FIELDS.items():
            *parts, name = key.split(".")
            inside = reduce(lambda values, part: values.get(part, {}), parts, full)
            if name in inside and inside[name] == default:
                del inside[name]
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
        part.pop("task")
        part["evaluation"] = self.seen_in_training
        part["attention"].pop("tuned")
        part["training"].pop("default_learning_rate")
        part["training"]["learning_rate"] = self.learning_rate
        if self.first_stage is not None:
            part["pretraining"] = self.first_stage.training_hash(data_fingerprint, source_hash)
        part["data"].pop("num_test", None)
        made_by = [part, self.trainer.num_threads, self.trainer.devices * self.trainer.num_nodes, data_fingerprint, source_hash]
        return digest([*made_by, self.trainer.numerics] if self.trainer.numerics else made_by)
