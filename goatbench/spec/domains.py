"""The run of each domain: its parts, and what must fit between them."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from pydantic import Field, model_validator

from .data import AugmentationSpec, GenomeDataSpec, ImageDataSpec, StoryDataSpec, TextDataSpec, ToyDataSpec
from .evaluation import GenomeEvaluationSpec, ImageEvaluationSpec, StoryEvaluationSpec, TextEvaluationSpec, ToyEvaluationSpec
from .image_size import misfit, sides, size_label
from .models import DecoderSpec, VitSpec
from .run import RunSpec
from .strict import Strict
from .tasks import SequenceTaskSpec, VisionTaskSpec
from .training import TrainingSpec

TOY_KEYS = {  # of data: the tasks that they are for
    "num_needles": ("multi_needle",),
    "num_asked": ("multi_needle",),
    "num_distractors": ("needle", "passkey", "needle_tuning", "attention_stats_needle"),
}
DOMAIN_AXES = {"vision": 2, "genome": 1, "text": 1, "toy": 1, "stories": 1}  # axes of position


class VocabularyError(ValueError):
    """A model of another vocabulary than its data. wanted: what these need; model: the one that does not fit."""

    def __init__(self, data: str, wanted: dict[str, int], model: DecoderSpec) -> None:
        has = f"model {model.name} has vocab_size {model.vocab_size} and num_scored {model.num_scored}"
        super().__init__(f"{has}; {data} needs {' and '.join(f'{key} {value}' for key, value in wanted.items())}")
        self.wanted, self.model = wanted, model


class PretrainingSpec(Strict):
    """An earlier stage of a training, at model.position_size and with a recipe of its own; its best weights begin the rest."""

    training: TrainingSpec
    drop_path: float = Field(ge=0, lt=1)
    repeats: int = Field(default=1, ge=1, le=8)
    augmentation: AugmentationSpec


class VisionRunSpec(RunSpec):
    """A ViT on images."""

    path_keys: ClassVar[tuple[str, ...]] = ("root", "class_map")

    task: VisionTaskSpec
    model: VitSpec
    data: ImageDataSpec
    evaluation: ImageEvaluationSpec
    pretraining: PretrainingSpec | None = None

    @model_validator(mode="after")
    def _stages_fit(self) -> VisionRunSpec:
        if (self.pretraining is None) != (self.model.position_size is None):
            raise ValueError("pretraining and model.position_size (the size of that stage in pixels) go together: set both or none")
        stages = [("data.", self.data.augmentation, "", self.training)]
        if self.pretraining is not None:
            self.check_recipe(self.pretraining.training, "pretraining.training.")
            stages.append(("pretraining.", self.pretraining.augmentation, "pretraining.", self.pretraining.training))
        parts = self.trainer.devices * self.trainer.num_nodes * self.trainer.accumulate
        for where, augmentation, owner, training in stages:
            if augmentation.rand_augment is not None and self.model.in_chans != 3:
                raise ValueError(f"{where}augmentation.rand_augment works on colours: set model.in_chans=3, or rand_augment=null")
            if (augmentation.mixup or augmentation.cutmix) and training.batch_size // parts % 2:
                raise ValueError(
                    f"{owner}training.batch_size {training.batch_size}: mixup and cutmix pair the images of a forward pass, of which "
                    f"devices * num_nodes * accumulate = {parts} give it an odd number: choose a multiple of {2 * parts}"
                )
        return self

    @property
    def seen_in_training(self) -> dict[str, Any]:
        """How training images are resized, and how those are cropped that the epoch is chosen on."""
        return {"interpolation": self.evaluation.interpolation, "crop": self.evaluation.crop_at(*sides(self.model.image_size))}

    @property
    def first_stage(self) -> VisionRunSpec | None:
        """The earlier stage as a run of its own, where there is one."""
        if (first := self.pretraining) is None:
            return None
        size = self.model.position_size
        return self.model_copy(update={
            "training": first.training,
            "model": self.model.model_copy(update={"image_size": size, "drop_path": first.drop_path}),
            "data": self.data.model_copy(update={"repeats": first.repeats, "augmentation": first.augmentation}),
            "evaluation": self.evaluation.model_copy(update={"pixels": {**self.evaluation.pixels, self.evaluation.base: size}}),
            "pretraining": None,
        })  # fmt: skip

    @model_validator(mode="after")
    def _resolutions_fit(self) -> VisionRunSpec:
        known = sorted(self.evaluation.pixels)
        for nominal in (self.evaluation.base, *self.task.resolutions):
            if nominal not in self.evaluation.pixels:
                raise ValueError(f"resolution {nominal} is not one of {known}")
        for nominal in {self.evaluation.base, *self.task.resolutions}:
            if odd := misfit(self.evaluation.pixels[nominal], self.model.patch_size):
                raise ValueError(f"{odd} (nominal {nominal}) is not a multiple of patch_size {self.model.patch_size}")
        base, trained = self.evaluation.base, self.model.image_size
        if self.evaluation.pixels[base] != trained:
            means, given = size_label(self.evaluation.pixels[base]), json.dumps(trained, separators=(",", ":"))
            raise ValueError(
                f"base resolution {base} means {means} px, but the model trains at {size_label(trained)}: "
                f"set evaluation.pixels.{base}={given}"
            )
        return self


class CausalRunSpec(RunSpec):
    """A causal decoder on sequences: what the domains of sequences share."""

    task: SequenceTaskSpec
    model: DecoderSpec

    @model_validator(mode="after")
    def _loss_fits(self) -> CausalRunSpec:
        if self.training.loss != "cross_entropy":
            raise ValueError("training.loss: a causal decoder is trained with cross_entropy")
        return self

    def _check_targets(self, num_targets: int) -> None:
        seq_len = self.model.seq_len
        if num_targets > seq_len:
            raise ValueError(
                f"evaluation.num_targets {num_targets} exceeds the training length {seq_len}: set evaluation.num_targets={seq_len} or less"
            )


class GenomeRunSpec(CausalRunSpec):
    """A causal decoder on DNA."""

    path_keys: ClassVar[tuple[str, ...]] = ("fasta", "split_file")

    data: GenomeDataSpec
    evaluation: GenomeEvaluationSpec

    @model_validator(mode="after")
    def _lengths_fit(self) -> GenomeRunSpec:
        if self.model.vocab_size < 5 or self.model.num_scored != 4:
            raise VocabularyError("DNA (A C G T N)", {"vocab_size": 5, "num_scored": 4}, self.model)
        if max(self.evaluation.markov_orders, default=0) > self.evaluation.markov_interpolated:
            raise ValueError(f"evaluation.markov_orders go beyond markov_interpolated {self.evaluation.markov_interpolated}")
        self._check_targets(self.evaluation.num_targets)
        return self


class TextRunSpec(CausalRunSpec):
    """A causal decoder on text. The vocabulary of a tokenizer that is not bytes is compared with the model's when it is read."""

    path_keys: ClassVar[tuple[str, ...]] = ("path", "tokenizer_file", "lambada")

    data: TextDataSpec
    evaluation: TextEvaluationSpec

    @model_validator(mode="after")
    def _lengths_fit(self) -> TextRunSpec:
        if self.data.tokenizer == "bytes" and self.data.tokenizer_file is not None:
            raise ValueError("data.tokenizer_file is read with data.tokenizer=gpt2 or =file only: set one of them, or leave it out")
        if self.data.tokenizer == "bytes" and (self.model.vocab_size, self.model.num_scored) != (257, 256):
            wanted = {"vocab_size": 257, "num_scored": 256}  # with BOS
            raise VocabularyError("data.tokenizer=bytes (gpt2 and file read other tokens)", wanted, self.model)
        self._check_targets(self.evaluation.num_targets)
        return self


class ToyRunSpec(CausalRunSpec):
    """A causal decoder on made-up sequences."""

    data: ToyDataSpec
    evaluation: ToyEvaluationSpec

    @model_validator(mode="after")
    def _task_takes_them(self) -> ToyRunSpec:
        for key, tasks in TOY_KEYS.items():
            if self.task.name not in tasks and getattr(self.data, key) != ToyDataSpec.model_fields[key].default:
                raise ValueError(f"data.{key} makes no difference to task={self.task.name}; it is for {', '.join(tasks)}")
        return self


class StoryRunSpec(CausalRunSpec):
    """A causal decoder on stories with questions. A token is a word."""

    path_keys: ClassVar[tuple[str, ...]] = ("path", "text_path")

    data: StoryDataSpec
    evaluation: StoryEvaluationSpec

    @model_validator(mode="after")
    def _words_fit(self) -> StoryRunSpec:
        if self.model.num_scored != self.model.vocab_size - 5 or self.model.num_scored < 100:
            raise ValueError("model: words of stories need num_scored of 100 or more, and vocab_size 5 above it (five marks)")
        return self


RUN_SPECS: dict[str, type[RunSpec]] = {  # by domain
    "vision": VisionRunSpec,
    "genome": GenomeRunSpec,
    "text": TextRunSpec,
    "toy": ToyRunSpec,
    "stories": StoryRunSpec,
}
