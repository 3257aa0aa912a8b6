"""Absolute positions, added to the tokens once at the input.

B batch, K tokens, C embed dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .positions import Grid, Line, Positions
from .scheme import ModelShape, PositionScheme, check_base


class LearnedAbsolute(PositionScheme):
    """A learned table of the train extent, N(0, 0.02); prefix tokens have none (they are learned themselves).

    1D: position t reads row t; beyond the table there is nothing to read, so longer sequences are an error, never clamped.
    2D: resampled to any grid in float32 (or better), bicubic with antialias (ViT practice: Dosovitskiy et al., arXiv 2010.11929; the
    resampler is timm's choice). The table is stretched over the grid, so raw and scaled coordinates are the same thing.
    """

    is_relative = False
    coordinate_modes = ("resampled",)

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        self.max_positions = shape.train_extent[0] if shape.num_axes == 1 else None
        self.table = nn.Parameter(torch.empty(*shape.train_extent, shape.embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.table, std=0.02)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        if self.shape.num_axes == 1:
            longest = self.shape.train_extent[0]
            index = positions.order.clamp_min(0)  # left padding has order < 0
            if isinstance(positions.layout, Line):  # known without reading a tensor: no wait for a GPU, and fake tensors will do
                last = positions.layout.offset + positions.layout.length - 1
            else:
                last = int(index.max()) if index.numel() else -1
            if last >= longest:
                raise ValueError(
                    f"learned_absolute has {longest} positions, got position {last}: not applicable beyond the training length"
                )
            return x + self.table[index].to(x.dtype)
        if not isinstance(positions.layout, Grid):
            raise ValueError("learned_absolute needs a whole grid: embed before patches are dropped")
        grid = (positions.layout.height, positions.layout.width)
        table = self.table if grid == self.shape.train_extent else resample(self.table, grid)
        rows = F.pad(table.flatten(0, 1), (0, 0, positions.layout.num_prefix, 0))
        return x + rows.to(x.dtype)


def resample(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """A table [H, W, C] stretched to [*grid, C], bicubic with antialias, in float32 or better."""
    image = table.permute(2, 0, 1)[None].to(torch.promote_types(table.dtype, torch.float32))
    # One column: torch's antialias is wrong when it shrinks the height in the same call (seen in 2.14), so the height goes first.
    for size in ((grid[0], image.shape[-1]), grid) if grid[1] == 1 else (grid,):
        image = F.interpolate(image, size=size, mode="bicubic", antialias=True, align_corners=False)
    return image[0].permute(1, 2, 0).to(table.dtype)


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines of every axis' coordinate (Vaswani et al., arXiv 1706.03762; 2D: half of the dims per axis).

    base 10,000. Prefix tokens get nothing. amplitude: None is the token embeddings' std at the start, so that positions drown no token:
    at amplitude 1 beside embeddings of 0.02 a byte model does not learn in 150 steps.
    """

    is_relative = False

    def __init__(self, shape: ModelShape, base: float = 10_000.0, amplitude: float | None = None) -> None:
        super().__init__(shape)
        check_base(base)
        self.amplitude = shape.embedding_std if amplitude is None else amplitude
        if shape.embed_dim % (2 * shape.num_axes):
            raise ValueError(f"embed_dim {shape.embed_dim} is not a multiple of {2 * shape.num_axes}, which sinusoidal positions need")
        count = shape.embed_dim // (2 * shape.num_axes)
        self.register_buffer("frequencies", base ** (-torch.arange(count, dtype=torch.float64) / count), persistent=False)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        phase = positions.coords[..., None] * self.frequencies.to(torch.float64)  # [B|1, K, A, F]
        waves = torch.cat((phase.sin(), phase.cos()), dim=-1).flatten(-2)
        return x + (self.amplitude * waves * ~positions.is_prefix[..., None]).to(x.dtype)
