"""What a batch of tokens asks of a causal model: what it reads, and what it is to predict at each place."""

from __future__ import annotations

from torch import Tensor


def read_and_targets(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Both [B, L]. tokens [B, L + 1]: each is predicted from those before it; [B, 2, L]: what is read and the targets, as they stand."""
    if tokens.ndim == 3:
        return tokens[:, 0], tokens[:, 1]
    return tokens[:, :-1], tokens[:, 1:]
