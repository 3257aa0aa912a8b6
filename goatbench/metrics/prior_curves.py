"""What a position scheme expects before it has seen any content: the probabilities that its log-prior alone induces, by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..attention.positions import Positions

if TYPE_CHECKING:
    from ..models.backbone import Backbone


def prior_curves(net: Backbone, length: int) -> Tensor | None:
    """ln p(offset) in nats of the last of `length` tokens in a line, [L, H, length] float64; offset 0 is the token itself.

    Normalised over the keys, so that what a scheme adds to a whole row is gone; a learned sink is left out. Terms of the key alone are
    part of it, at the places that the keys have in this line. None: the scheme has no prior, or one that depends on content.
    """
    device = next(net.parameters()).device
    keys = Positions.line(length, device=device)
    found = []
    with torch.inference_mode():
        for layer in net.attention_layers:
            scheme, heads = layer.scheme, layer.shape.num_heads
            if scheme.token_state(torch.zeros(1, 1, layer.shape.embed_dim, device=device, dtype=layer.q_proj.weight.dtype)):
                return None
            prior = scheme.prior(keys.latest(1), keys)
            if prior.q_lanes is None and prior.k_term is None and not prior.biases:
                return None
            rows = prior.dense(heads, 1, length, dtype=torch.float64, device=device)[0, :, 0]
            found.append(rows.log_softmax(-1).flip(-1).cpu())
    return torch.stack(found)
