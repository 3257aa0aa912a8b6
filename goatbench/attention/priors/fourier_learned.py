"""GOAT with frequencies that are learned: their lengths (any number of axes), or whole wave vectors in the plane.

H query heads, K key tokens, A axes, F frequencies an axis. Features then hold parameters, so no two layers share them. Phases are worked
out in float64 from parameters in float32 or better.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..positions import Positions
from ..scheme import ModelShape
from .fourier import Goat, _Features


class _LearnedWaves(Goat):
    """Subclasses make their parameters and say what the phases are."""

    def __init__(self, shape: ModelShape, **options: object) -> None:
        super().__init__(shape, **options)
        if not self.spectral:
            raise ValueError(f"{type(self).__name__} with spectral=False has no frequency to learn")

    def _features(self, positions: Positions) -> _Features:
        return self._make_features(positions, self.even.dtype)


class GoatLearnedFreqs(_LearnedWaves):
    """The F frequencies of a layer are w = w0 exp(log_ratio): positive, starting at GOAT's fixed list w0, the same on every axis and head.

    Not in arXiv 2601.15380, which fixes them.
    """

    def __init__(self, shape: ModelShape, **options: object) -> None:
        super().__init__(shape, **options)
        self.log_ratio = nn.Parameter(torch.zeros(len(self.frequencies)))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if "log_ratio" in self._parameters:  # not yet while the base class is being built
            nn.init.zeros_(self.log_ratio)

    def _phases(self, positions: Positions) -> Tensor:
        frequencies = self.frequencies.to(torch.float64) * self.log_ratio.to(torch.float64).exp()
        return (positions.coords[..., None] * frequencies).flatten(-2)[:, None]


class GoatMixed(_LearnedWaves):
    """2 F learned wave vectors in the plane per head and layer, where GOAT's prior is a sum over axes:

        sum over v of  even[h,v] cos(<v, p_i - p_j>) + odd[h,v] sin(<v, p_i - p_j>)

    Start as in RoPE-Mixed (Heo et al., arXiv 2403.13298): GOAT's frequencies along one random direction per head and, for the second half,
    along its perpendicular. Keys then differ by head, so heads cannot share them. Not in arXiv 2601.15380.
    """

    def __init__(self, shape: ModelShape, **options: object) -> None:
        if shape.num_axes != 2:
            raise ValueError("goat_mixed is two-dimensional; for sequences use goat_learned_freqs")
        if shape.num_kv_heads != shape.num_heads:
            raise ValueError(f"goat_mixed has wave vectors per head, so num_kv_heads must equal num_heads ({shape.num_heads})")
        super().__init__(shape, **options)
        self.wave_vectors = nn.Parameter(torch.empty(shape.num_heads, 2 * len(self.frequencies), 2))  # (y, x)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if "wave_vectors" not in self._parameters:  # not yet while the base class is being built
            return
        direction = 2 * math.pi * torch.rand(self.shape.num_heads, 1)
        turned = torch.cat((direction, direction + math.pi / 2), dim=1)[..., None]  # [H, 2, 1]
        with torch.no_grad():
            along = [self.frequencies * turned.sin(), self.frequencies * turned.cos()]  # [H, 2, F] each
            self.wave_vectors.copy_(torch.stack(along, dim=-1).flatten(1, 2))

    def _phases(self, positions: Positions) -> Tensor:
        return torch.einsum("bka,hpa->bhkp", positions.coords, self.wave_vectors.to(torch.float64))
