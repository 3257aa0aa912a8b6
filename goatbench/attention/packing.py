"""Several documents in one row of tokens: none sees another, and positions start again with each.

B batch, K tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .mask import Mask
from .positions import Positions


def packed(is_start: Tensor) -> tuple[Positions, Mask]:
    """Causal positions and mask of rows whose documents begin where is_start ([B, K] bool) is True; what stands before the first
    start is a document as well. Each token has the place that it would have if its document were alone."""
    place = torch.arange(is_start.shape[1], device=is_start.device).expand_as(is_start)
    begin = torch.where(is_start, place, 0).cummax(dim=1).values
    return Positions.scattered(place - begin, reach=is_start.shape[1] - 1), Mask(causal=True, segment=is_start.cumsum(dim=1))
