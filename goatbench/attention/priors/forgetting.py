"""Content-dependent forgetting: every token tells how much of what came before it is kept; two rows, one mechanism.

    log_prior[h, i, j] = sum of log f[h, l] over l = j + 1 .. i  =  c[h, i] - c[h, j],     c = the running sum of log f

B batch, H query heads, Q query tokens, K key tokens. c[h, j] is a key term and c[h, i] a row term (read by sinks and the lse only).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..log_prior import LogPrior
from ..positions import Positions
from ..scheme import ModelShape, PositionScheme


class Fox(PositionScheme):
    """Forgetting attention: log f[h, l] = log sigmoid(w_h . x_l + b_h), x the input of the layer; no position beside it.

    w from N(0, 0.02), b = 0, so that f starts at 1/2. Gates and running sum stay in float32 or better. The cache keeps log f of each
    token; the sum is formed over all of them in float64 and counted from the first query (any later token would leak its rounding into
    earlier rows), next to which small differences matter when decoding.
    Source: Lin et al., arXiv 2503.02130 (the plain model: without output gate, norms and shifts of the Pro block).
    """

    sign = 1.0
    stream = "fox_log_gate"
    coordinate_modes = ("none",)

    def __init__(self, shape: ModelShape) -> None:
        super().__init__(shape)
        row = type(self).__name__.lower()
        if not shape.causal or shape.num_axes != 1:
            raise ValueError(f"{row} is causal and one-dimensional: what is forgotten is the past of a sequence")
        if shape.num_kv_heads != shape.num_heads:
            raise ValueError(f"{row} has a gate per query head in its keys, so num_kv_heads must equal num_heads ({shape.num_heads})")
        self.gate = nn.Linear(shape.embed_dim, shape.num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.zeros_(self.gate.bias)

    def for_layer(self, layer_index: int) -> Fox:
        return type(self)(self.shape)

    def token_state(self, x: Tensor) -> dict[str, Tensor]:
        """log f of the new tokens, [B, H, K, 1]."""
        with torch.autocast(x.device.type, enabled=False):
            gates = F.logsigmoid(self.sign * self.gate(x.to(self.gate.weight.dtype)))
        return {self.stream: gates.transpose(1, 2)[..., None]}

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        gates = state[self.stream][..., 0]  # [B, H, K]
        first = gates.shape[-1] - query_positions.num_tokens
        total = gates.cumsum(-1, dtype=torch.float64)
        total = (total - total[..., first : first + 1]).to(gates.dtype)
        return LogPrior(q_term=total[..., first:], k_term=-total)


class Cable(Fox):
    """CABLE: log f[h, l] = -softplus(w_h . x_l + b_h) = log sigmoid(-(w_h . x_l + b_h)): Fox with the projection's sign turned.

    w from N(0, 0.02), b = 0: every head starts with a decay of about log 2 a token, without ALiBi's spread of slopes. Content logits are
    divided by sqrt(d) as everywhere here, which the released code leaves out. Source: arXiv 2503.08067 and its released code.
    """

    sign = -1.0
    stream = "cable_log_gate"
