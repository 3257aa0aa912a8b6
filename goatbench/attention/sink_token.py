"""A learned token before every sequence, for attention that would rather look nowhere.

B batch, K tokens, P prefix tokens, C embed dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .cache import KVCache
from .mask import Mask
from .positions import Positions
from .scheme import ModelShape, PositionScheme


class SinkToken(PositionScheme):
    """One learned embedding, N(0, 0.02), in front of the sequence: before all tokens in order, without a coordinate, never a target.

    One token of the whole model, not one a layer. It carries no position, so rows add a scheme that does. Source: Xiao et al.
    (StreamingLLM), arXiv 2309.17453, section 4.2.
    """

    num_prefix_tokens = 1
    coordinate_modes = ("none",)

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        if not shape.causal or shape.num_axes != 1:
            raise ValueError("sink_token is for causal sequences; images have class and register tokens")
        self.token = nn.Parameter(torch.empty(1, shape.embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.token, std=0.02)

    def prefix(self) -> Tensor:
        return self.token


def behind_prefix(
    prefix: Tensor, x: Tensor, positions: Positions, mask: Mask, cache: KVCache | None
) -> tuple[Tensor, Positions, Mask, int]:
    """The embedded tokens [B, K, C] of a forward pass behind the prefix [P, C], with their positions and mask, and how many tokens stand
    before them now: P, or none where the cache has the prefix already (the mask covers it all the same)."""
    count = len(prefix)
    mask = mask.behind_prefix(count)
    if cache is not None and cache.num_tokens:
        return x, positions, mask, 0
    x = torch.cat((prefix.to(x.dtype).expand(x.shape[0], -1, -1), x), dim=1)
    positions = positions.remember((SinkToken, count), lambda: positions.behind_prefix(count))
    return x, positions, mask, count
