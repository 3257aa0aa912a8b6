"""What an elementwise bias reads at a pair (i, j): values of query i and of key j, densely or one element at a time.

B batch, Q query tokens, K key tokens. Arguments of a bias broadcast to [B|1, H, Q, K], or are scalars inside a score_mod.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..positions import Positions


def take(table: Tensor, batch: Tensor, *index: Tensor) -> Tensor:
    """table[row, *index] of a table [B|1, ...]; one row serves every batch row, and then the dense form keeps a batch axis of 1."""
    if table.shape[0] > 1:
        return table[(batch, *index)]
    row = batch * 0
    return table[(row[:1] if row.ndim else row, *index)]


def along_line(positions: Positions, dtype: torch.dtype) -> Tensor:
    """[B|1, K] places on the first axis; whole numbers are exact in float32 up to 16,777,216."""
    return positions.coords[..., 0].to(dtype)
