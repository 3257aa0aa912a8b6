"""The one loss of a language model, without the weight of the metrics beside it (torchmetrics takes seconds to import)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def token_nll(logits: Tensor, targets: Tensor, num_scored: int) -> tuple[Tensor, Tensor]:
    """-log p(target) in nats, float32 or better: (nll, is_scored), both [B, K]; nll is 0 where a target is not scored.

    logits: [B, K, V], softmax over all V.
    """
    is_scored = (targets >= 0) & (targets < num_scored)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    nll = F.cross_entropy(wide.flatten(0, -2), targets.masked_fill(~is_scored, -100).flatten(), ignore_index=-100, reduction="none")
    return nll.view(targets.shape), is_scored
