"""Differential attention: the difference of two softmax maps, so that what both see as noise cancels (Ye et al., arXiv 2410.05258).

    out = (softmax(scale * q_1 k_1^T + log_prior) - lambda * softmax(scale * q_2 k_2^T + log_prior)) v

The two maps of a head are neighbours in the projections: 2h and 2h + 1. Both use the prior of their head, each is rotated as that
head, and a sink joins both denominators. Rows sum to 1 - lambda and may be negative.

B batch, Q queries, K keys, D content dims, d = head_dim of the model, H and G its query and key/value heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..kernels.problem import Kernel, Problem
from ..log_prior import Bias, LogPrior
from ..mask import BoundMask
from ..scheme import ModelShape
from .softmax import HeadLayout, InnerAttention

RMS_EPS = 1e-5  # of the published code
LAMBDA_STD = 0.1  # paper, section 2.1, and code


def lambda_init(layer_index: int) -> float:
    """0.2 in the first layer (index 0), towards 0.8 in deep ones (paper, section 2.1)."""
    return 0.8 - 0.6 * math.exp(-0.3 * layer_index)


class DifferentialV1(InnerAttention):
    """DIFF Transformer: half as many heads, each with two maps of width d and values of width 2 d; then an RMS norm per head whose
    weight all heads share, times the constant 1 - lambda_init.

    lambda = exp(<q1, k1>) - exp(<q2, k2>) + lambda_init(layer) of four vectors [d] ~ N(0, 0.1), shared by the heads: 6 d
    parameters a layer beyond plain attention's. A kernel wants values as wide as keys, so the values are cut in two halves and maps
    times halves become the heads of one call: [B, 2 H, Q, D].
    """

    query_maps = key_maps = 2

    def __init__(self, shape: ModelShape, layer_index: int, kernel: Kernel) -> None:
        super().__init__(shape, layer_index, kernel)
        self.scheme_shape(shape)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (nn.Parameter(torch.empty(shape.head_dim)) for _ in range(4))
        self.norm = nn.RMSNorm(2 * shape.head_dim, eps=RMS_EPS)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            nn.init.normal_(vector, std=LAMBDA_STD)

    @classmethod
    def scheme_shape(cls, shape: ModelShape) -> ModelShape:
        heads, kv = shape.num_heads, shape.num_kv_heads
        if heads % 2 or kv % 2:
            raise ValueError(f"differential attention pairs heads: num_heads {heads} and num_kv_heads {kv} must both be even")
        return replace(shape, num_heads=heads // 2, num_kv_heads=kv // 2)

    def head_layout(self, num_heads: int, num_kv_heads: int, head_dim: int, content_dim: int) -> HeadLayout:
        return HeadLayout(num_heads, num_kv_heads, num_kv_heads // 2, content_dim, 2 * head_dim, num_heads * head_dim)

    @property
    def weight_of_second_map(self) -> Tensor:
        """lambda: a float32 (or wider) scalar."""
        dtype = torch.promote_types(self.lambda_q1.dtype, torch.float32)
        first = (self.lambda_q1.to(dtype) * self.lambda_k1.to(dtype)).sum().exp()
        second = (self.lambda_q2.to(dtype) * self.lambda_k2.to(dtype)).sum().exp()
        return first - second + lambda_init(self.layer_index)

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, prior: LogPrior, mask: BoundMask, scale: float, state: dict[str, Tensor]
    ) -> Tensor:
        groups = v.shape[1]  # pairs of key heads
        size = q.shape[1] // (2 * groups)  # pairs of query heads that read one of them
        # heads of the call, first to last axis: pair of key heads, map, half of the values, pair of query heads within the group
        q = q.unflatten(1, (groups, size, 2)).transpose(2, 3)[:, :, :, None].expand(-1, -1, -1, 2, -1, -1, -1).flatten(1, 4)
        k = k.unflatten(1, (groups, 2))[:, :, :, None].expand(-1, -1, -1, 2, -1, -1).flatten(1, 3)
        v = v.unflatten(-1, (2, -1)).transpose(2, 3)[:, :, None].expand(-1, -1, 2, -1, -1, -1).flatten(1, 3)
        head_of = lambda n: n // (4 * size) * size + n % size
        prior = spread(prior, q.shape[1], head_of, k.shape[1], lambda n: n // 4)
        out, _ = self.kernel(Problem(q, k, v, prior, mask, scale))
        first, second = out.unflatten(1, (groups, 2, 2, size)).unbind(2)  # each [B, G/2, half, size, Q, d]
        out = first - (self.weight_of_second_map * second).to(second.dtype)
        out = out.permute(0, 1, 3, 4, 2, 5).flatten(-2).flatten(1, 2)  # [B, H/2, Q, 2 d]
        return self.norm(out.to(self.norm.weight.dtype)) * (1 - lambda_init(self.layer_index))


class DifferentialV2(InnerAttention):
    """DIFF Transformer V2 (the authors' code, microsoft/unilm, 2026): twice the queries over unchanged keys and values, two maps a head
    that share both; lambda = sigmoid(W x) for each token and head; no norm, no lambda_init.

    One kernel call with 2 H query heads. C (H d + H) parameters a layer beyond plain attention's, C the width: W is drawn like the
    model's other projections, so that lambda starts near 1/2.
    """

    query_maps = 2

    def __init__(self, shape: ModelShape, layer_index: int, kernel: Kernel) -> None:
        super().__init__(shape, layer_index, kernel)
        self.lambda_proj = nn.Linear(shape.embed_dim, shape.num_heads, bias=False)

    def head_layout(self, num_heads: int, num_kv_heads: int, head_dim: int, content_dim: int) -> HeadLayout:
        return HeadLayout(2 * num_heads, num_kv_heads, num_kv_heads, content_dim, head_dim, num_heads * head_dim)

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, prior: LogPrior, mask: BoundMask, scale: float, state: dict[str, Tensor]
    ) -> Tensor:
        prior = spread(prior, q.shape[1], lambda n: n // 2, k.shape[1], lambda n: n)
        out, _ = self.kernel(Problem(q, k, v, prior, mask, scale))
        weight = torch.sigmoid(self.lambda_proj(x)).transpose(1, 2)[..., None]  # [B, H, Q, 1]
        return out[:, 0::2] - weight * out[:, 1::2]


Index = Callable[[Tensor], Tensor]


def spread(prior: LogPrior, num_heads: int, head_of: Index, num_kv_heads: int, kv_head_of: Index) -> LogPrior:
    """The prior of a call with more heads: its query head n takes that of `head_of(n)`, its key head n that of `kv_head_of(n)`."""

    def queries(t: Tensor | None, axis: int = 1) -> Tensor | None:
        return None if t is None else t.index_select(axis, head_of(torch.arange(num_heads, device=t.device)))

    def keys(t: Tensor | None) -> Tensor | None:
        is_shared = t is None or t.shape[1] == 1
        return t if is_shared else t.index_select(1, kv_head_of(torch.arange(num_kv_heads, device=t.device)))

    biases = tuple(_spread_bias(bias, head_of) for bias in prior.biases)
    return LogPrior(
        queries(prior.q_lanes), keys(prior.k_lanes), prior.row_lanes, queries(prior.q_term), keys(prior.k_term),
        biases, queries(prior.sink, axis=0), prior.integers,
    )  # fmt: skip


def _spread_bias(bias: Bias, head_of: Index) -> Bias:
    return lambda batch, head, query, key: bias(batch, head_of(head), query, key)
