"""A learned table of 2D offsets, as in Swin (Liu et al., arXiv 2103.14030) and BEiT (Bao et al., arXiv 2106.08254).

H query heads, grid of h x w patches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Grid, Positions
from ..scheme import ModelShape, PositionScheme
from .pairs import take


class RelativeTable(PositionScheme):
    """log_prior[h, i, j] = table[y_i - y_j, x_i - x_j, h], per layer, (2h - 1) x (2w - 1) entries for the training grid, N(0, 0.02).

    On another grid the table is resampled to its size (bicubic, as in Swin's released code), so that offsets are stretched with the
    image. Prefix tokens have three entries per head of their own (BEiT): prefix to patch, patch to prefix, prefix to prefix; they are
    not resampled.
    """

    coordinate_modes = ("resampled",)

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        if shape.causal or shape.num_axes != 2:
            raise ValueError("rpb is for images; for sequences use t5")
        self.table = nn.Parameter(torch.empty(*(2 * n - 1 for n in shape.train_extent), shape.num_heads))
        self.prefix_rows = nn.Parameter(torch.empty(3, shape.num_heads)) if shape.num_prefix else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.table, std=0.02)
        if self.prefix_rows is not None:
            nn.init.trunc_normal_(self.prefix_rows, std=0.02)

    def for_layer(self, layer_index: int) -> RelativeTable:
        return type(self)(self.shape)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        grid, query, key = self._cells(query_positions, key_positions)
        table = self.table if grid == self.shape.train_extent else _stretch(self.table, grid)
        rows = table.flatten(0, 1)
        num_offsets, width = rows.shape[0], 2 * grid[1] - 1
        if self.prefix_rows is not None:
            rows = torch.cat((rows, self.prefix_rows.to(rows.dtype)))
        query_prefix, key_prefix = query_positions.is_prefix, key_positions.is_prefix

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            offset = take(query, batch, i) - take(key, batch, j)  # [..., 2]
            index = (offset[..., 0] + grid[0] - 1) * width + offset[..., 1] + grid[1] - 1
            from_prefix, to_prefix = take(query_prefix, batch, i), take(key_prefix, batch, j)
            kind = num_offsets + torch.where(from_prefix, torch.where(to_prefix, 2, 0), 1)
            return rows[torch.where(from_prefix | to_prefix, kind, index), head]

        return LogPrior(biases=(bias,))

    def _cells(self, query: Positions, key: Positions) -> tuple[tuple[int, int], Tensor, Tensor]:
        """The grid, and the (y, x) cells of queries and keys, int64 [B|1, K, 2]. Scattered patches are those of the training grid."""
        if isinstance(query.layout, Grid) and query.layout == key.layout:
            cells = Positions.grid(key.layout.height, key.layout.width, key.layout.num_prefix, key.coords.device).coords.long()
            return (key.layout.height, key.layout.width), cells, cells
        cells = [(p.coords * ~p.is_prefix[..., None]).round().long() for p in (query, key)]
        extent = torch.tensor(self.shape.train_extent, device=key.coords.device)
        if any(bool(((c < 0) | (c >= extent)).any()) for c in cells):
            raise ValueError(
                f"rpb: patches outside the training grid {self.shape.train_extent} without a whole grid to resample for; "
                "drop patches at the training resolution only"
            )
        return self.shape.train_extent, *cells


def _stretch(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """A table of offsets [2h - 1, 2w - 1, H] resampled for a grid, in float32 or better."""
    image = table.permute(2, 0, 1)[None].to(torch.promote_types(table.dtype, torch.float32))
    size = tuple(2 * n - 1 for n in grid)
    return F.interpolate(image, size=size, mode="bicubic", align_corners=False)[0].permute(1, 2, 0).to(table.dtype)
