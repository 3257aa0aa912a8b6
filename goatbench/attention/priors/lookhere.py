"""LookHere: heads that look into one direction each, with a penalty of the distance (Fuller et al., arXiv 2405.13985).

H query heads, K key tokens. No parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .pairs import take

# (dy, dx) of the eight directions, 45 degrees apart, clockwise from up. y grows downwards.
COMPASS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
# First diagonals, then axes, as in the released configurations; opposite ones side by side, so that few heads see both ways too.
EIGHT = (7, 3, 1, 5, 0, 4, 6, 2)
WIDTHS = {180: 4, 90: 2, 45: 1}  # field of view in steps of the compass
LAYER_SLOPES = (1.5, 0.5)  # of the first and the last layer, linear between
EDGE = 1e-4  # patches: rescaled coordinates on the edge of a view stay inside


class LookHere(PositionScheme):
    """log_prior[h, i, j] = -slope |p_i - p_j| (Euclidean, patches) inside head h's field of view and -inf outside; 0 in the rows and
    columns of prefix tokens.

    field_of_view: 180, 90 or 45 degrees (the paper's LH-180, LH-90, LH-45), edges included; a patch always sees itself.
    slope:         global factor; the paper tunes it per test resolution, from 1 at the training resolution.

    A third of the heads, at most 4, look everywhere, with slopes 1/4, 1/16, 1/64, 1/256; the others take the eight directions in turn,
    with 1/2 in the first round, 1/4 in the second, and so on. Slopes fall linearly from 1.5 times to 0.5 times over the layers.
    """

    def __init__(self, shape: ModelShape, field_of_view: int = 90, slope: float = 1.0) -> None:
        super().__init__(shape)
        if shape.causal or shape.num_axes != 2:
            raise ValueError("lookhere is for images; for causal sequences use alibi")
        if field_of_view not in WIDTHS:
            raise ValueError(f"lookhere: field_of_view = {field_of_view} degrees; one of {', '.join(map(str, WIDTHS))}")
        self.field_of_view, self.slope = field_of_view, slope
        num_undirected = min(shape.num_heads // 3, 4)
        num_directed = shape.num_heads - num_undirected
        slopes = [0.5 ** (1 + h // 8) for h in range(num_directed)] + [0.25 ** (1 + h) for h in range(num_undirected)]
        normals = [view_normals(EIGHT[h % 8], field_of_view) for h in range(num_directed)] + [((0, 0), (0, 0))] * num_undirected
        self.register_buffer("slopes", slope * torch.tensor(slopes), persistent=False)
        self.register_buffer("normals", torch.tensor(normals, dtype=torch.float32), persistent=False)  # [H, 2, 2]

    def for_layer(self, layer_index: int) -> LookHere:
        first, last = LAYER_SLOPES
        factor = first + (last - first) * layer_index / max(self.shape.depth - 1, 1)
        return type(self)(self.shape, self.field_of_view, self.slope * factor)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        slopes, normals = self.slopes, self.normals
        query, key = query_positions.coords.to(slopes.dtype), key_positions.coords.to(slopes.dtype)  # [B|1, Q, 2], [B|1, K, 2]
        query_patch, key_patch = ~query_positions.is_prefix, ~key_positions.is_prefix

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            offset = take(key, batch, j) - take(query, batch, i)  # [..., 2]
            one, other = ((normals[head, side] * offset).sum(-1) >= -EDGE for side in (0, 1))
            inside = torch.where(one & other, -slopes[head] * offset.square().sum(-1).sqrt(), -torch.inf)
            return torch.where(take(query_patch, batch, i) & take(key_patch, batch, j), inside, 0.0)

        return LogPrior(biases=(bias,))


def view_normals(direction: int, field_of_view: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(dy, dx) of the two half-planes whose common part is the field of view around a direction of the compass.

    The wedge of 45 degrees begins at the direction and goes on clockwise; the others lie around it.
    """
    width = WIDTHS[field_of_view]
    begin = direction - width // 2  # its edges: `begin` and `begin + width`, clockwise
    return COMPASS[(begin + 2) % 8], COMPASS[(begin + width - 2) % 8]
