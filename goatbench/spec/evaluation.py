"""How a trained model is measured, one model a domain."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..records.record import NAME_PATTERN
from .image_size import ImageSize, sides
from .strict import Strict


class ImageEvaluationSpec(Strict):
    """pixels maps the nominal resolutions of the card to the pixels of this scale (paper scale: the identity): a side, or
    [height, width].
    crop_pct: the short side is resized to pixels / crop_pct before the centre crop; base_crop_pct replaces it at the base
    resolution (LookHere's published protocol), None: the same everywhere.
    classes: present compares the logits of those classes alone that the test images show (ImageNet-A and -R have 200 of 1,000)."""

    kind: Literal["images"]
    preset: str = Field(pattern=NAME_PATTERN)
    base: int = Field(gt=0)  # nominal base resolution
    pixels: dict[int, ImageSize]
    crop_pct: float = Field(gt=0, le=1)
    base_crop_pct: float | None = Field(default=None, gt=0, le=1)
    interpolation: Literal["bicubic", "bilinear"]
    batch_tokens: int = Field(default=16384, gt=0)  # batch size = batch_tokens // tokens, at least 1
    coords: list[Literal["raw", "scaled"]] = ["raw", "scaled"]
    classes: Literal["all", "present"] = "all"

    def crop_at(self, height: int, width: int) -> float:
        """The crop that goes with this size in pixels: LookHere crops 0.875 at base and not at all elsewhere."""
        is_base = (height, width) == sides(self.pixels[self.base])
        return self.base_crop_pct if is_base and self.base_crop_pct is not None else self.crop_pct


class GenomeEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass. both_strands: score the reverse complement as well.
    num_targets, num_blocks: genome_length scores the last num_targets bases of windows of every context, at num_blocks places.
    prompt, generate, num_prompts, num_samples: free running (genome_gc). gc_window: bases of one GC window, of which
    generate holds a whole number.
    lengths: genome_memory. markov_orders, markov_interpolated: the Markov models beside the score, the last one over 0 to that order."""

    kind: Literal["genome"]
    preset: str = Field(pattern=NAME_PATTERN)
    batch_tokens: int = Field(default=16384, gt=0)
    both_strands: bool = True
    num_targets: int = Field(gt=0)
    num_blocks: int = Field(gt=0)
    gc_window: int = Field(gt=0)
    prompt: int = Field(gt=0)
    generate: int = Field(gt=0)
    num_prompts: int = Field(gt=0)
    num_samples: int = Field(ge=8)  # of each prompt: one alone says little of a distribution
    lengths: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    markov_orders: list[Annotated[int, Field(ge=0, le=12)]] = [2, 6, 10]
    markov_interpolated: int = Field(default=12, ge=0, le=12)

    @model_validator(mode="after")
    def _whole_windows(self) -> GenomeEvaluationSpec:
        if self.generate % self.gc_window:
            raise ValueError(f"gc_window={self.gc_window} does not divide generate={self.generate}: set both, such as to one number")
        return self


class TextEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass. num_targets, num_blocks: lm_length scores the last num_targets bytes of windows of
    every context, at num_blocks places. num_spans: stretches of the longest context that are cut into windows without overlap.
    streaming: also read the windows as streams, with a cache of num_sinks first tokens and the latest training length of others
    (StreamingLLM). streaming_grid: and in the three other ways that two questions span, first tokens kept or not (the window is then
    as much longer), numbered by their place in the cache or in the text. num_passages: passages of the lambada task."""

    kind: Literal["text"]
    preset: str = Field(pattern=NAME_PATTERN)
    batch_tokens: int = Field(default=16384, gt=0)
    num_targets: int = Field(gt=0)
    num_blocks: int = Field(gt=0)
    num_spans: int = Field(gt=0)
    streaming: bool = False
    streaming_grid: bool = False
    num_sinks: int = Field(default=4, ge=0)
    num_passages: int = Field(default=500, gt=0)

    @model_validator(mode="after")
    def _grid_of_streams(self) -> TextEvaluationSpec:
        if self.streaming_grid and not (self.streaming and self.num_sinks):
            raise ValueError("streaming_grid=true compares streams with first tokens and without: set streaming=true, num_sinks=4")
        return self


class ToyEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass. depths: places of the needle, 0 the start of the filler and 1 its end."""

    kind: Literal["toy"]
    preset: str = Field(pattern=NAME_PATTERN)
    batch_tokens: int = Field(default=16384, gt=0)
    depths: list[Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)


class StoryEvaluationSpec(Strict):
    """batch_tokens: tokens of one forward pass."""

    kind: Literal["stories"]
    preset: str = Field(pattern=NAME_PATTERN)
    batch_tokens: int = Field(default=16384, gt=0)
