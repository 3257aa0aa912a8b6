"""Rotary embeddings with a learned absolute embedding beside them: the +APE rows of Heo et al., arXiv 2403.13298."""

from __future__ import annotations

from torch import Tensor

from .embeddings import LearnedAbsolute
from .positions import Positions
from .rotary import RopeAxial, RopeMixed
from .scheme import ModelShape


class RopeAxialApe(RopeAxial):
    """RoPE-Axial, and a learned vector per patch added to the tokens once, resampled bicubically on other grids."""

    def __init__(self, shape: ModelShape, base: float = 100.0) -> None:
        if shape.num_axes != 2:
            raise ValueError("rope_axial_ape is two-dimensional; for sequences use rope or learned_absolute")
        super().__init__(shape, base)
        self.is_relative = False
        self.absolute = LearnedAbsolute(shape)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return self.absolute.embed(x, positions)


class RopeMixedApe(RopeMixed):
    """RoPE-Mixed with frequencies per layer, and one learned table that all layers hold and the first adds to the tokens."""

    def __init__(self, shape: ModelShape, base: float = 10.0) -> None:
        super().__init__(shape, base)
        self.is_relative = False
        self.absolute = LearnedAbsolute(shape)

    def for_layer(self, layer_index: int) -> RopeMixedApe:
        layer = super().for_layer(layer_index)
        layer.absolute = self.absolute
        return layer

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return self.absolute.embed(x, positions)
