"""What happens between projections and output; here its plain form, softmax attention: one kernel call."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..kernels.problem import Kernel, Problem
from ..log_prior import LogPrior
from ..mask import BoundMask
from ..scheme import ModelShape


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """What the layer has to project: heads and dims of queries, keys and values, and of the output."""

    num_q: int
    num_k: int
    num_v: int
    content_dim: int  # D, dims of q and k
    value_dim: int  # V, dims of v
    out_dim: int  # width of the merged heads


class InnerAttention(nn.Module):
    """The slot between projections and output: [B,H,Q,D], [B,G,K,D], [B,G,K,V] -> [B,H,Q,V].

    Built with the model's shape, the layer's index and the kernel. ValueError in the constructor: what it cannot do in such a model.

    query_maps, key_maps: attention maps that a head of the position scheme has, if more than one is weighed against another. Those
                          of a head lie beside one another in q and k, and each is rotated as that head.
    holds_position:       its parameters are those of a position mechanism: never decayed, and counted with the scheme's.
    num_past_queries:     queries before the present ones that the layer brings back from the cache (the stream "q" of
                          `token_state`); q, prior and mask then begin with them, and so does the output.
    """

    query_maps: int = 1
    key_maps: int = 1
    holds_position: bool = False
    num_past_queries: int = 0

    def __init__(self, shape: ModelShape, layer_index: int, kernel: Kernel) -> None:
        super().__init__()
        self.shape, self.layer_index = shape, layer_index
        self.kernel = kernel

    @classmethod
    def scheme_shape(cls, shape: ModelShape) -> ModelShape:
        """The shape that the position scheme is built for: its heads are those of the prior."""
        return shape

    def head_layout(self, num_heads: int, num_kv_heads: int, head_dim: int, content_dim: int) -> HeadLayout:
        raise NotImplementedError

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, prior: LogPrior, mask: BoundMask, scale: float, state: dict[str, Tensor]
    ) -> Tensor:
        raise NotImplementedError

    def token_state(self, x: Tensor, q: Tensor) -> dict[str, Tensor]:
        """Per-token streams that the cache keeps for this inner attention (multi-token attention: its past queries)."""
        return {}


class Softmax(InnerAttention):
    """out = softmax(scale * q k^T + log_prior) v."""

    def head_layout(self, num_heads: int, num_kv_heads: int, head_dim: int, content_dim: int) -> HeadLayout:
        return HeadLayout(num_heads, num_kv_heads, num_kv_heads, content_dim, head_dim, num_heads * head_dim)

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, prior: LogPrior, mask: BoundMask, scale: float, state: dict[str, Tensor]
    ) -> Tensor:
        out, _ = self.kernel(Problem(q, k, v, prior, mask, scale))
        return out
