"""The patch grid of a ViT: its `Positions`, and which image sizes have one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention.positions import Positions


class GridPositions(nn.Module):
    """The rope-like module: turns a grid shape into `Positions`. No parameters, no buffers, nothing cached.

    train_grid: (height, width) in patches at training, what 'scaled' coordinates are scaled to. feat_shape: the nominal grid.
    """

    def __init__(self, train_grid: tuple[int, int], num_prefix: int) -> None:
        super().__init__()
        self.train_grid = tuple(train_grid)
        self.feat_shape = tuple(train_grid)
        self.num_prefix = num_prefix
        self.mode = "raw"

    def get_embed(self, shape: tuple[int, int] | None = None, device: torch.device | None = None) -> Positions:
        """Positions of num_prefix prefix tokens and shape = (height, width) patches, row by row."""
        height, width = self.feat_shape if shape is None else shape
        positions = Positions.grid(height, width, self.num_prefix, device)
        if self.mode == "scaled" and (height, width) != self.train_grid:
            positions = positions.rescaled((self.train_grid[0] / height, self.train_grid[1] / width))
        return positions

    def update_feat_shape(self, feat_shape: tuple[int, int]) -> None:
        self.feat_shape = tuple(feat_shape)

    def extra_repr(self) -> str:
        return f"train_grid={self.train_grid}, num_prefix={self.num_prefix}, mode={self.mode}"


def as_pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def check_size(size: tuple[int, int], patch: tuple[int, int]) -> None:
    """ValueError unless height and width are positive multiples of the patch; names the nearest sizes that are."""
    if all(s > 0 and s % p == 0 for s, p in zip(size, patch, strict=True)):
        return
    near = [sorted({max(s // p, 1) * p, -(-max(s, 1) // p) * p}) for s, p in zip(size, patch, strict=True)]
    choices = " x ".join(" or ".join(map(str, n)) for n in near)
    raise ValueError(f"image size {size[0]} x {size[1]} is not a multiple of the patch size {patch[0]} x {patch[1]}; nearest: {choices}")


def check_image(patch_embed: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Forward pre-hook of the patch embedding (a plain function: it survives deepcopy)."""
    check_size((args[0].shape[-2], args[0].shape[-1]), patch_embed.patch_size)
