"""FIRE: a small network of the distance's logarithm, divided by that of the largest distance (Li et al., arXiv 2310.04418).

H query heads, Q query tokens, K key tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme
from .pairs import along_line, take

EPS = 1e-6  # beside the normaliser, as published
HIDDEN = 32  # units of the network, as published
CONTRACTION = 0.1  # initial c, as published


class _Network(PositionScheme):
    """What both forms share: c, the threshold L = |multiplier * first_threshold| and the network 1 -> 32 -> H with ReLU, per layer."""

    def __init__(self, shape: ModelShape, first_threshold: float) -> None:
        super().__init__(shape)
        if not 0 < first_threshold < math.inf:
            raise ValueError(f"option threshold = {first_threshold}: the shortest distance that normalises is a positive number")
        self.first_threshold = first_threshold
        self.contraction = nn.Parameter(torch.empty(()))
        self.multiplier = nn.Parameter(torch.empty(()))
        self.hidden = nn.Linear(1, HIDDEN)
        self.out = nn.Linear(HIDDEN, shape.num_heads, bias=shape.num_prefix > 0)  # a constant over all keys is nothing to a softmax
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.contraction, CONTRACTION)
        nn.init.ones_(self.multiplier)
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def normaliser(self, reach: Tensor) -> Tensor:
        """ln(1 + |c max(reach, L)|) + eps, of the largest distance `reach`."""
        threshold = (self.multiplier * self.first_threshold).abs()
        return torch.log1p((self.contraction * torch.maximum(reach, threshold)).abs()) + EPS

    def of_distance(self, distance: Tensor, normaliser: Tensor, head: Tensor) -> Tensor:
        """The network at ln(1 + |c distance|) / normaliser. Unit by unit, so that nothing of 32 x H x Q x K is ever held."""
        x = torch.log1p((self.contraction * distance).abs()) / normaliser
        total = 0.0 if self.out.bias is None else self.out.bias[head]
        for unit in range(HIDDEN):
            total = total + self.out.weight[head, unit] * torch.relu(self.hidden.weight[unit, 0] * x + self.hidden.bias[unit])
        return total


class Fire(_Network):
    """log_prior[h, i, j] = network(ln(1 + |c (i - j)|) / (ln(1 + |c max(i, L)|) + eps))[h]: no function of i - j alone.

    threshold: the initial L, 512 as published. The normaliser is the query's own place, so a cached query must bring it.
    """

    is_relative = False

    def __init__(self, shape: ModelShape, threshold: float = 512.0) -> None:
        if not shape.causal or shape.num_axes != 1:
            raise ValueError("fire is causal and one-dimensional: its normaliser is the query's place; for images use fire_2d")
        super().__init__(shape, threshold)

    def for_layer(self, layer_index: int) -> Fire:
        return type(self)(self.shape, self.first_threshold)

    def published_extra_parameters(self) -> int:
        return self.shape.num_heads  # the bias of the output layer

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        dtype = self.contraction.dtype
        query, key = along_line(query_positions, dtype), along_line(key_positions, dtype)
        normaliser = self.normaliser(query)

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return self.of_distance(take(query, batch, i) - take(key, batch, j), take(normaliser, batch, i), head)

        return LogPrior(biases=(bias,))


class Fire2D(_Network):
    """FIRE of the Euclidean distance of two patches, normalised by that to the farthest corner of the grid (in one dimension: the
    first token, hence the query's own place), or L if that is more; 0 in the rows and columns of prefix tokens.

    threshold: the initial L in patches; null: the diagonal of the training grid, so that until L is learned otherwise all distances of
    larger images fall into the range seen in training. This form is ours; the paper has the one-dimensional one.
    """

    def __init__(self, shape: ModelShape, threshold: float | None = None) -> None:
        if shape.causal or shape.num_axes != 2:
            raise ValueError("fire_2d is for images; for causal sequences use fire")
        diagonal = max(1.0, math.hypot(*(n - 1 for n in shape.train_extent)))
        super().__init__(shape, diagonal if threshold is None else threshold)

    def for_layer(self, layer_index: int) -> Fire2D:
        return type(self)(self.shape, self.first_threshold)

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        dtype = self.contraction.dtype
        query, key = query_positions.coords.to(dtype), key_positions.coords.to(dtype)  # [B|1, Q, 2], [B|1, K, 2]
        query_patch, key_patch = ~query_positions.is_prefix, ~key_positions.is_prefix
        normaliser = self.normaliser(_farthest(query, key, key_patch))

        def bias(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            distance = (take(query, batch, i) - take(key, batch, j)).square().sum(-1).sqrt()
            patches = take(query_patch, batch, i) & take(key_patch, batch, j)
            return torch.where(patches, self.of_distance(distance, take(normaliser, batch, i), head), 0.0)

        return LogPrior(biases=(bias,))


def _farthest(query: Tensor, key: Tensor, key_patch: Tensor) -> Tensor:
    """[B|1, Q]: the distance from each query to the farthest corner of the rectangle that holds all patches."""
    low = key.masked_fill(~key_patch[..., None], torch.inf).amin(dim=1, keepdim=True)
    high = key.masked_fill(~key_patch[..., None], -torch.inf).amax(dim=1, keepdim=True)
    return torch.maximum(query - low, high - query).square().sum(-1).sqrt()
