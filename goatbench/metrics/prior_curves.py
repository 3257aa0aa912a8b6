"""What a position scheme expects before it has seen any content: the probabilities that its log-prior alone induces, by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..attention.positions import Positions
from .attention_stats import take_positions

if TYPE_CHECKING:
    from ..attention.layer import SelfAttention
    from ..models.backbone import Backbone


def prior_curves(net: Backbone, length: int) -> Tensor | None:
    """ln p(offset) in nats of the last of `length` tokens in a line, [L, H, length] float64; offset 0 is the token itself.

    Normalised over the keys, so that what a scheme adds to a whole row is gone; a learned sink is left out. Terms of the key alone are
    part of it, at the places that the keys have in this line. None: the scheme has no prior, or one that depends on content.
    """
    keys = Positions.line(length, device=next(net.parameters()).device)
    rows = [log_prior(layer, keys.latest(1), keys) for layer in net.attention_layers]
    if any(row is None for row in rows):
        return None
    return torch.stack([row[:, 0].log_softmax(-1).flip(-1).cpu() for row in rows])


def prior_maps(net: Backbone, height: int, width: int) -> Tensor | None:
    """ln p(patch) in nats of the patch in the middle of a grid, [L, H, height, width] float64, normalised over the patches. See above."""
    keys = Positions.grid(height, width, 0, device=next(net.parameters()).device)
    middle = height // 2 * width + width // 2
    rows = [log_prior(layer, take_positions(keys, slice(middle, middle + 1)), keys) for layer in net.attention_layers]
    if any(row is None for row in rows):
        return None
    return torch.stack([row[:, 0].log_softmax(-1).unflatten(-1, (height, width)).cpu() for row in rows])


def prior_rows(net: Backbone, length: int) -> Tensor | None:
    """Probabilities that the first layer's prior induces on a line, [H, length, length] float64: row i over the keys 0 .. i. See above."""
    keys = Positions.line(length, device=next(net.parameters()).device)
    logits = log_prior(net.attention_layers[0], keys, keys)
    if logits is None:
        return None
    future = torch.ones(length, length, dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill(future, -torch.inf).softmax(-1).cpu()


def log_prior(layer: SelfAttention, queries: Positions, keys: Positions) -> Tensor | None:
    """The log-prior of a layer's scheme in nats, [H, Q, K] float64, up to a constant of each row; None: none, or one that depends on
    content."""
    device, dtype = keys.order.device, layer.q_proj.weight.dtype
    with torch.inference_mode():
        if layer.scheme.token_state(torch.zeros(1, 1, layer.shape.embed_dim, device=device, dtype=dtype)):
            return None
        prior = layer.scheme.prior(queries, keys)
        if prior.q_lanes is None and prior.k_term is None and not prior.biases:
            return None
        return prior.dense(layer.shape.num_heads, queries.num_tokens, keys.num_tokens, dtype=torch.float64, device=device)[0]
