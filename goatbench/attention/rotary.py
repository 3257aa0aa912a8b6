"""Rotary embeddings: q and k are rotated in planes by angles linear in the position, so that logits see offsets only.

B batch, H heads, K tokens, D content dims (even), P = D / 2 planes, A axes. Plane p pairs dims p and p + D/2 ("rotate half").
Phases are worked out in float64 and applied in float32: with bf16 phases neighbouring positions fall together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .positions import Positions
from .rope_scaling import LENGTH_VARIANTS, Ladder, rope_scaling
from .scheme import ModelShape, PositionScheme, Role, check_base


class Rotary(PositionScheme):
    """Base class: subclasses say what `angles` are. Prefix tokens are not rotated, so what they see of a patch (and a patch of them)
    depends on where the patch is: without prefix tokens the scheme is relative, with them it is not."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        self.is_relative = shape.num_prefix == 0
        if shape.head_dim % (2 * shape.num_axes):
            needed = 2 * shape.num_axes
            raise ValueError(f"head_dim {shape.head_dim} is not a multiple of {needed}, which {shape.num_axes}D rotary embeddings need")

    @property
    def is_rotation_relative(self) -> bool:
        """Of tokens that have a coordinate: angles linear in it."""
        return True

    def angles(self, positions: Positions) -> Tensor:
        """[B|1, 1|H, K, P] float64."""
        raise NotImplementedError

    def tables(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(cos, cos) and (-sin, sin) of the angles, in that dtype: [B|1, 1|H, K, D] each; 1 and 0 on prefix tokens."""
        angles = self.angles(positions)
        if positions.is_prefix.shape[-1] and self.shape.num_prefix:
            angles = angles * ~positions.is_prefix[:, None, :, None]
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)

    def tables_key(self, dtype: torch.dtype) -> Hashable | None:
        """What the tables depend on besides the positions: layers with the same key share them. None: on parameters, not shared."""
        return None

    def rotate(self, x: Tensor, positions: Positions, role: Role) -> Tensor:
        """x * (cos, cos) + (second half of x, first half) * (-sin, sin): three passes over x, where halves apart need seven."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        key = self.tables_key(dtype)
        cos, sin = self.tables(positions, dtype) if key is None else positions.remember(key, lambda: self.tables(positions, dtype))
        x_wide, half = x.to(dtype), x.shape[-1] // 2
        # in memory as fused kernels want it: queries token by token like their output, keys head by head (see kernels/fold.py)
        if role is Role.KEY:
            return torch.addcmul(x_wide.roll(half, dims=-1) * sin, x_wide, cos).to(x.dtype)
        swapped = x_wide.transpose(1, 2).roll(half, dims=-1).transpose(1, 2)
        return torch.addcmul(x_wide * cos, swapped, sin).to(x.dtype)


class Rope(Rotary):
    """RoPE (Su et al., arXiv 2104.09864): plane p turns by base^(-2p/D) per token. One axis.

    scaling, factor: see `rope_scaling`; 'none' trains plain RoPE, which can then be evaluated under `length_variants`.
    """

    def __init__(self, shape: ModelShape, base: float = 10_000.0, scaling: str = "none", factor: float = 1.0) -> None:
        super().__init__(shape)
        check_base(base)
        if shape.num_axes != 1:
            raise ValueError("rope is one-dimensional; for images use rope_axial or rope_mixed")
        self.base = base
        self.scaling = rope_scaling(scaling, factor)
        self.is_relative = self.is_relative and not self.scaling.reads_length
        self.length_variants = LENGTH_VARIANTS if scaling == "none" and base > 1 else ()
        planes = shape.head_dim // 2
        frequencies = base ** (-torch.arange(planes, dtype=torch.float64) / planes)
        self.register_buffer("frequencies", frequencies, persistent=False)

    @contextmanager
    def length_variant(self, name: str, factor: float) -> Iterator[None]:
        trained, self.scaling = self.scaling, rope_scaling(name, factor)
        try:
            yield
        finally:
            self.scaling = trained

    @property
    def is_rotation_relative(self) -> bool:
        return not self.scaling.reads_length

    def tables_key(self, dtype: torch.dtype) -> Hashable:
        return (Rope, self.shape, self.base, self.scaling, dtype)

    def angles(self, positions: Positions) -> Tensor:
        ladder = Ladder(self.base, self.shape.head_dim // 2, self.shape.train_extent[0])
        places = positions.coords[..., :1]
        return (places * (self.frequencies.to(torch.float64) * self.scaling.multipliers(ladder, places[..., 0].amax(-1))))[:, None]

    def temperature(self, query_positions: Positions) -> Tensor | None:
        factor = self.scaling.temperature
        if factor == 1:
            return None
        return torch.full((1, 1, query_positions.num_tokens), factor, device=query_positions.coords.device)


class RopeAxial(Rotary):
    """RoPE-Axial (Heo et al., ECCV 2024, arXiv 2403.13298): half of the planes turn with x, half with y, base 100."""

    def __init__(self, shape: ModelShape, base: float = 100.0) -> None:
        super().__init__(shape)
        check_base(base)
        self.base = base
        per_axis = shape.head_dim // (2 * shape.num_axes)
        frequencies = base ** (-torch.arange(per_axis, dtype=torch.float64) / per_axis)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def tables_key(self, dtype: torch.dtype) -> Hashable:
        return (RopeAxial, self.shape, self.base, dtype)

    def angles(self, positions: Positions) -> Tensor:
        return (positions.coords.flip(-1)[..., None] * self.frequencies.to(torch.float64)).flatten(-2)[:, None]


class RopeMixed(Rotary):
    """RoPE-Mixed (Heo et al., ECCV 2024, arXiv 2403.13298): every plane has a learned frequency vector, per head and layer.

    Initial magnitudes are base^(-4k/D) (base 10), along one random direction per head and, for the second half of the planes,
    its perpendicular. The frequencies belong to the position scheme and are not decayed.
    """

    def __init__(self, shape: ModelShape, base: float = 10.0) -> None:
        super().__init__(shape)
        check_base(base)
        if shape.num_axes != 2:
            raise ValueError("rope_mixed is two-dimensional; for sequences use rope")
        self.base = base
        self.frequencies = nn.Parameter(torch.empty(shape.num_heads, shape.head_dim // 2, 2))  # (y, x)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        quarter = self.shape.head_dim // 4
        magnitude = self.base ** (-torch.arange(quarter) / quarter)
        direction = 2 * math.pi * torch.rand(self.shape.num_heads, 1)
        with torch.no_grad():
            for half, turn in enumerate((0.0, math.pi / 2)):
                planes = slice(half * quarter, (half + 1) * quarter)
                self.frequencies[:, planes, 0] = magnitude * torch.sin(direction + turn)
                self.frequencies[:, planes, 1] = magnitude * torch.cos(direction + turn)

    def for_layer(self, layer_index: int) -> RopeMixed:
        return type(self)(self.shape, self.base)

    def angles(self, positions: Positions) -> Tensor:
        if self.shape.num_kv_heads != self.shape.num_heads:
            raise ValueError("rope_mixed has one set of frequencies per head, so num_kv_heads must equal num_heads")
        return torch.einsum("bka,hpa->bhkp", positions.coords, self.frequencies.to(torch.float64))
