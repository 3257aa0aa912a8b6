"""xPos: RoPE whose planes also fade with distance, the slow ones fastest.

B batch, H heads, K tokens, D content dims, P = D / 2 planes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .positions import Positions
from .rotary import Rope
from .scheme import ModelShape, Role

GAMMA = 0.4  # section 3.2


class RopeXpos(Rope):
    """xPos (Sun et al., arXiv 2212.10554): plane p of a logit is RoPE's times zeta_p^((i - j) / scale_base), zeta_p = (2p/D + 0.4) / 1.4.

    Queries are multiplied by zeta^(i / scale_base) and keys by zeta^(-j / scale_base): relative, but no isometry. These factors leave
    the range of float32 beyond 32,768 tokens (0.29^64 = 1e-35), so longer sequences are not applicable.
    """

    is_isometry = False
    max_positions = 32_768
    why_limited = "leave the range of float32"

    def __init__(self, shape: ModelShape, base: float = 10_000.0, scale_base: float = 512.0) -> None:
        super().__init__(shape, base)
        self.length_variants = ()
        if not 0 < scale_base < float("inf"):
            raise ValueError(f"option scale_base = {scale_base}: a positive number of tokens")
        self.scale_base = scale_base

    def rotate(self, x: Tensor, positions: Positions, role: Role) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        key = (RopeXpos, self.shape, self.scale_base, role, dtype)
        scales = positions.remember(key, lambda: self.scales(positions, role).to(dtype))
        return (super().rotate(x.to(dtype), positions, role) * scales).to(x.dtype)

    def scales(self, positions: Positions, role: Role) -> Tensor:
        """[B|1, 1, K, D] float64."""
        planes = torch.arange(self.shape.head_dim // 2, dtype=torch.float64, device=positions.coords.device)
        zeta = (2 * planes / self.shape.head_dim + GAMMA) / (1 + GAMMA)
        exponent = positions.coords[..., :1] / self.scale_base
        scales = zeta ** (exponent if role is Role.QUERY else -exponent)
        return torch.cat((scales, scales), dim=-1)[:, None]
