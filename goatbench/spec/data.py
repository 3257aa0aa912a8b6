"""What a run is trained on and tested with, one model a domain."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from ..records.record import NAME_PATTERN
from .strict import Strict


class AugmentationSpec(Strict):
    """Training transform: random resized crop from the native image, then flip; the rest is for paper scale."""

    crop_min_scale: float = Field(gt=0, le=1)
    crop_max_ratio: float = Field(default=4 / 3, ge=1)
    horizontal_flip: bool = True
    three_augment: bool = False
    color_jitter: float = Field(default=0.0, ge=0)
    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    rand_augment: str | None = None  # as timm writes it

    @field_validator("rand_augment")
    @classmethod
    def _is_timms(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"rand(-m(10|\d)|-n[1-9]\d?|-inc[01]|-mstd\d{1,2}(\.\d+)?|-p(1|0(\.\d+)?))*", text):
            raise ValueError(
                f"'{text}' is not written as timm does: rand, then -m0 to -m10 (magnitude), -n1 on (operations), "
                "-mstd, -p (0 to 1), -inc0 or -inc1, such as rand-m9-mstd0.5-inc1"
            )
        return text


class ImageDataSpec(Strict):
    """Images. source is a name of the data registry; root a local folder for the sources that need one."""

    kind: Literal["images"]
    name: str = Field(pattern=NAME_PATTERN)
    root: str | None = None
    class_map: str | None = None
    num_train: int | None = Field(default=None, gt=0)  # None: all
    num_validation: int | None = Field(default=None, gt=0)
    num_test: int | None = Field(default=None, gt=0)
    max_unreadable: int = Field(default=0, ge=0)  # training images that may be skipped (and are counted) before the run fails
    repeats: int = Field(default=1, ge=1, le=8)  # looks of an image in one epoch, which then has 1 / repeats of the images
    augmentation: AugmentationSpec


class GenomeDataSpec(Strict):
    """DNA from a FASTA file. name: of the genome-source registry; fasta: the file, for the sources that need one; split: the name of
    a preset, or 'file' with split_file (contig, start, end, split, core_start, core_end). Counts are windows; null: all (training:
    as many as cover the bases once)."""

    kind: Literal["genome"]
    name: str = Field(pattern=NAME_PATTERN)
    fasta: str | None = None
    split: str = Field(pattern=NAME_PATTERN)
    split_file: str | None = None
    num_train: int | None = Field(default=None, gt=0)  # windows an epoch
    num_validation: int | None = Field(default=None, gt=0)
    num_test: int | None = Field(default=None, gt=0)
    reverse_complement: bool = False  # training windows from either strand, drawn for each sample

    @model_validator(mode="after")
    def _split_is_named_once(self) -> GenomeDataSpec:
        if (self.split == "file") != (self.split_file is not None):
            raise ValueError("split=file needs split_file=PATH, and split_file is read with split=file only")
        return self


class TextDataSpec(Strict):
    """Documents. name: of the text-source registry; path: a file or folder, for the sources that need one. Counts are windows; null:
    all (training: as many as cover the tokens once).
    tokenizer: bytes, gpt2 (byte-pair encoding from tokenizer_file, a folder with GPT-2's two files) or file (any tokenizer.json).
    packing: concat lets a window reach over document borders; documents masks attention at them and restarts positions.
    lambada: a local file of the real LAMBADA, for the task of that name."""

    kind: Literal["text"]
    name: str = Field(pattern=NAME_PATTERN)
    path: str | None = None
    tokenizer: Literal["bytes", "gpt2", "file"] = "bytes"
    tokenizer_file: str | None = None
    packing: Literal["concat", "documents"] = "concat"
    lambada: str | None = None
    num_train: int | None = Field(default=None, gt=0)  # windows an epoch
    num_validation: int | None = Field(default=None, gt=0)


class ToyDataSpec(Strict):
    """Sequences made up as they are needed; the task says which. min_length: the shortest training length, drawn uniformly from there
    to the model's seq_len in every second step; null: always seq_len. num_test: sequences of each length and depth.
    num_needles, num_asked: multi_needle only. num_distractors: needle and passkey only."""

    kind: Literal["toy"]
    name: str = Field(pattern=NAME_PATTERN)
    num_train: int = Field(gt=0)  # sequences an epoch
    num_validation: int = Field(gt=0)
    num_test: int = Field(gt=0)
    min_length: int | None = Field(default=None, gt=0)
    num_needles: int = Field(default=4, gt=0, le=6)
    num_asked: int = Field(default=2, gt=0, le=6)
    num_distractors: int = Field(default=0, ge=0, le=6)

    @model_validator(mode="after")
    def _asks_for_what_is_there(self) -> ToyDataSpec:
        if self.num_asked > self.num_needles:
            raise ValueError(f"num_asked {self.num_asked} is more than num_needles {self.num_needles}")
        return self


class StoryDataSpec(Strict):
    """Stories with questions. name: of the story-source registry; path: the folder of the real BABILong, for data=babilong.
    text, text_path: the documents that the other sentences come from, a name of the text-source registry and its file or folder.
    num_test: stories of each question and length."""

    kind: Literal["stories"]
    name: str = Field(pattern=NAME_PATTERN)
    path: str | None = None
    text: str = Field(pattern=NAME_PATTERN)
    text_path: str | None = None
    questions: list[Literal["qa1", "qa2", "qa3", "qa4", "qa5"]] = Field(min_length=1)
    num_train: int = Field(gt=0)  # stories an epoch
    num_validation: int = Field(gt=0)
    num_test: int = Field(gt=0)

    @model_validator(mode="after")
    def _questions_once(self) -> StoryDataSpec:
        if len(set(self.questions)) < len(self.questions):
            raise ValueError(f"questions {self.questions} names one twice")
        return self
