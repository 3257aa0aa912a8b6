"""Contextual position encoding (CoPE): distances are counted in tokens that matter to the query, not in tokens.

B batch, H query heads, Q query tokens, K key tokens, D content dims a head, N positions of the table.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.problem import Kernel, Problem
from ..kernels.reference import Reference, dense_logits
from ..kernels.select import require
from ..log_prior import LogPrior
from ..mask import BoundMask
from ..scheme import ModelShape
from .softmax import HeadLayout, Softmax


class Contextual(Softmax):
    """With l[i, j] the masked logits, each key gets a place p and a logit for it:

        p[i, j] = min(sum of sigmoid(l[i, m]) over m = j .. i, N - 1)
        out = softmax(l[i, j] + <q_i, e[p]>) v,       e[p] interpolated between the two rows next to p

    num_positions: N. The table e [N, D] starts at 0, belongs to one layer and is shared by its heads; <q, e> is not divided by sqrt(D).

    The gates of a row need all its logits, so these are written out (ValueError beyond the reference kernel's limit), and the place's
    logit reaches the kernel as an elementwise bias. Causal only. Source: Golovneva et al., arXiv 2405.18719, section 4.
    """

    holds_position = True

    def __init__(self, shape: ModelShape, layer_index: int, kernel: Kernel, num_positions: int = 64) -> None:
        super().__init__(shape, layer_index, kernel)
        if not shape.causal or shape.num_axes != 1:
            raise ValueError("contextual positions are counted from a query back to its keys: causal sequences only")
        if num_positions < 2:
            raise ValueError(f"num_positions = {num_positions}: a table to interpolate in has 2 rows or more")
        self.num_positions = num_positions

    def head_layout(self, num_heads: int, num_kv_heads: int, head_dim: int, content_dim: int) -> HeadLayout:
        self.table = nn.Parameter(torch.zeros(self.num_positions, content_dim))
        return super().head_layout(num_heads, num_kv_heads, head_dim, content_dim)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.table)

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, prior: LogPrior, mask: BoundMask, scale: float, state: dict[str, Tensor]
    ) -> Tensor:
        problem = Problem(q, k, v, prior, mask, scale)
        require(Reference(), problem)
        with torch.autocast(q.device.type, enabled=False):
            of_place = self._logits_of_places(problem)
        bias = lambda batch, head, query, key: of_place[batch, head, query, key]
        return super().forward(x, q, k, v, prior + LogPrior(biases=(bias,)), mask, scale, state)

    def _logits_of_places(self, problem: Problem) -> Tensor:
        """<q_i, e[p_ij]>: [B, H, Q, K] in float32 or better."""
        dtype = torch.promote_types(problem.q.dtype, torch.float32)
        gates = dense_logits(problem, dtype).sigmoid()  # 0 where the mask forbids
        places = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.num_positions - 1)
        below = places.detach().floor()
        rows = problem.q.to(dtype) @ self.table.to(dtype).T  # [B, H, Q, N]
        low, high = (rows.gather(-1, row.long()) for row in (below, places.detach().ceil()))
        return torch.lerp(low, high, places - below)
