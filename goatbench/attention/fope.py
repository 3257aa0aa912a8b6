"""FoPE: each plane turns by a mixture of frequencies, and planes too slow to be learned stand still.

B batch, H heads, K tokens, D content dims, P = D / 2 planes, I frequencies kept, O planes that turn.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .positions import Positions
from .rotary import Rotary
from .scheme import ModelShape, check_base


class Fope(Rotary):
    """Fourier Position Embedding (Hua et al., arXiv 2412.17739): of RoPE's frequencies those below 2 pi / training length are clipped
    to 0; a plane that turns has sum_f a_hf cos(f n) and sum_f b_hf sin(f n) for its cosine and sine.

    init_gain: of the Xavier-normal draw of a and b [H, I, O] around the frequency that leads each plane; each plane's coefficients are
               divided by their sum. learned: whether they are trained; the released code freezes the draw.

    O is at most D / 4, as released, its leading frequencies evenly spread over the I kept. Where the released code differs: (1) its
    planes that stand still have cosine 1 and sine 1, which doubles what they add to every logit; here sine 0, which is what frequency
    0 means; (2) where O does not divide I it leaves planes without a leading frequency, divided by a sum near 0.
    Neither an isometry nor relative: cosine and sine of a mixture are no longer those of one angle. One set of coefficients per head
    and layer, for queries and keys.
    """

    is_isometry = False

    def __init__(self, shape: ModelShape, base: float = 10_000.0, init_gain: float = 0.3, learned: bool = False) -> None:
        super().__init__(shape)
        check_base(base)
        if shape.num_axes != 1:
            raise ValueError("fope is one-dimensional; for images use rope_axial or rope_mixed")
        if shape.num_kv_heads != shape.num_heads:
            raise ValueError("fope has one set of coefficients per head, so num_kv_heads must equal num_heads")
        planes = shape.head_dim // 2
        frequencies = base ** (-torch.arange(planes, dtype=torch.float64) / planes)
        frequencies = frequencies[frequencies >= 2 * math.pi / shape.train_extent[0]]
        if not len(frequencies):
            raise ValueError(f"fope: no frequency of base {base} turns once in the training length of {shape.train_extent[0]}")
        self.is_relative = False
        self.options = {"base": base, "init_gain": init_gain, "learned": learned}
        self.register_buffer("frequencies", frequencies, persistent=False)
        size = (shape.num_heads, len(frequencies), min(len(frequencies), max(shape.head_dim // 4, 1)))
        self.cos_weights = nn.Parameter(torch.empty(size), requires_grad=learned)
        self.sin_weights = nn.Parameter(torch.empty(size), requires_grad=learned)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _, num_kept, num_turning = self.cos_weights.shape
        planes = torch.arange(num_turning)
        with torch.no_grad():
            for weights in (self.cos_weights, self.sin_weights):
                nn.init.xavier_normal_(weights, gain=self.options["init_gain"])
                weights[:, planes * num_kept // num_turning, planes] += 1.0

    def for_layer(self, layer_index: int) -> Fope:
        return type(self)(self.shape, **self.options)

    @property
    def is_rotation_relative(self) -> bool:
        return False

    def tables(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        def waves() -> tuple[Tensor, Tensor]:
            phases = positions.coords[..., :1] * self.frequencies.to(torch.float64)
            return phases.cos().to(dtype), phases.sin().to(dtype)

        # the waves hold no parameters, so that layers share them; what they are mixed to is each layer's own
        cos, sin = positions.remember((Fope, self.shape, self.options["base"], dtype), waves)  # [B|1, K, I]
        standing = self.shape.head_dim // 2 - self.cos_weights.shape[-1]
        with torch.autocast(cos.device.type, enabled=False):
            cos = F.pad(_mix(cos, self.cos_weights), (0, standing), value=1.0)
            sin = F.pad(_mix(sin, self.sin_weights), (0, standing), value=0.0)
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _mix(waves: Tensor, weights: Tensor) -> Tensor:
    """[B|1, K, I] and [H, I, O] -> [B|1, H, K, O]; the weights of a plane sum to 1."""
    return torch.einsum("bki,hio->bhko", waves, (weights / weights.sum(1, keepdim=True)).to(waves.dtype))
