"""The models: a ViT for images, a causal decoder for sequences."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ..records.record import NAME_PATTERN
from .image_size import ImageSize, misfit
from .strict import Strict


class VitSpec(Strict):
    """A plain pre-norm ViT (timm's vocabulary). image_size is the base resolution in pixels: a side, or [height, width].
    position_size: the size whose grid position tables and periods are made for, where an earlier stage of training had another."""

    kind: Literal["vit"]
    name: str = Field(pattern=NAME_PATTERN)
    image_size: ImageSize
    patch_size: int = Field(gt=0)
    in_chans: int = Field(gt=0)
    num_classes: int = Field(gt=1)
    embed_dim: int = Field(gt=0, le=65_536)
    depth: int = Field(gt=0, le=1024)
    num_heads: int = Field(gt=0, le=1024)
    mlp_ratio: float = Field(gt=0)
    drop_path: float = Field(ge=0, lt=1)
    class_token: bool = True
    num_reg_tokens: int = Field(default=0, ge=0)
    init_values: float | None = None  # LayerScale
    position_size: ImageSize | None = None

    @model_validator(mode="after")
    def _fits(self) -> VitSpec:
        for name, size in (("image_size", self.image_size), ("position_size", self.position_size)):
            if size is not None and (odd := misfit(size, self.patch_size)):
                raise ValueError(f"{name}: {odd} is not a multiple of patch_size {self.patch_size}")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        return self


class DecoderSpec(Strict):
    """A causal pre-norm decoder. seq_len is the training length; tokens from num_scored on are never targets (genome: N).
    weight_std, embedding_std: of the initial weights and token embeddings; GPT-2's 0.02 by default."""

    kind: Literal["decoder"]
    name: str = Field(pattern=NAME_PATTERN)
    vocab_size: int = Field(gt=1, le=2**20)
    num_scored: int = Field(gt=1)
    seq_len: int = Field(gt=0)
    embed_dim: int = Field(gt=0, le=65_536)
    depth: int = Field(gt=0, le=1024)
    num_heads: int = Field(gt=0, le=1024)
    num_kv_heads: int | None = Field(default=None, gt=0)  # None: num_heads
    mlp_ratio: float = Field(gt=0)
    tie_embeddings: bool = False
    weight_std: float = Field(default=0.02, gt=0)
    embedding_std: float = Field(default=0.02, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> DecoderSpec:
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}")
        if self.num_scored > self.vocab_size:
            raise ValueError(f"num_scored {self.num_scored} is more than vocab_size {self.vocab_size}")
        return self
