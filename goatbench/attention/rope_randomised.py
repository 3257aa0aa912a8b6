"""Randomised positions: RoPE trained at positions drawn from a longer range than the sequences it sees.

B batch, K tokens, N the range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .positions import Positions, Scattered
from .rotary import Rope
from .scheme import ModelShape

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2^64 / golden ratio, odd: the multiplier of Fibonacci hashing, as a signed number


class RopeRandomised(Rope):
    """Randomised positional encoding (Ruoss et al., arXiv 2305.16843) on RoPE: in training, the K tokens of a sequence stand at an
    ordered random subset of 0 .. max_length - 1, so that large offsets are trained on short sequences.

    max_length: N; None: 16 training lengths.
    draw_at_evaluation: False: evaluated at 0 .. K-1. True, as in the authors' code: at a subset again, one for each length, equal for
                        all sequences; not defined for a cache (generation), where the final length is not known.

    A sequence's draw is a pure function of its tokens: no state, the same under activation checkpointing and for any number of
    processes. The authors draw once for a batch; here each sequence has its own.
    """

    why_limited = "cannot be drawn: see option max_length"

    def __init__(self, shape: ModelShape, base: float = 10_000.0, max_length: int | None = None, draw_at_evaluation: bool = False) -> None:
        super().__init__(shape, base)
        self.length_variants = ()
        self.max_length = 16 * shape.train_extent[0] if max_length is None else max_length
        if self.max_length < shape.train_extent[0]:
            raise ValueError(f"option max_length = {max_length}: at least the training length, {shape.train_extent[0]}")
        self.draw_at_evaluation = draw_at_evaluation
        self.max_positions = self.max_length if draw_at_evaluation else None

    def place(self, tokens: Tensor, positions: Positions, is_cached: bool) -> Positions:
        if not self.training and not self.draw_at_evaluation:
            return positions
        if is_cached:
            raise ValueError("rope_randomised: positions are drawn for a whole sequence, so there is no cache: draw_at_evaluation=false")
        length = tokens.shape[1]
        if length > self.max_length:
            raise ValueError(f"rope_randomised draws from {self.max_length} positions, got {length} tokens: raise option max_length")
        seeds = token_seeds(tokens) if self.training else [length]
        drawn = torch.stack([ordered_subset(seed, length, self.max_length) for seed in seeds]).to(positions.coords.device)  # [B|1, K]
        # a document that begins within the sequence begins at the first drawn position again; left padding (order < 0) stays before it
        places = positions.coords[..., 0].expand(max(len(drawn), len(positions.coords)), -1)
        index = places.to(torch.int64)
        coords = torch.where(index < 0, places, drawn.expand(len(places), -1).gather(1, index.clamp_min(0)).to(torch.float64))
        batch = lambda t: t.expand(len(places), -1)
        return Positions(Scattered(length), batch(positions.order), coords[..., None], batch(positions.is_prefix))


def ordered_subset(seed: int, size: int, max_length: int) -> Tensor:
    """[size] int64: `size` different numbers of 0 .. max_length - 1, all subsets equally likely, in ascending order."""
    return torch.randperm(max_length, generator=torch.Generator().manual_seed(seed))[:size].sort().values


def token_seeds(tokens: Tensor) -> list[int]:
    """A number for each row of tokens [B, K]; rows that differ anywhere get others (but for one in 2^63)."""
    place = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    mixed = (tokens + 1) * (2 * place + 1) * GOLDEN  # wraps around
    mixed = (mixed ^ (mixed >> 29)) * GOLDEN
    return (mixed.sum(1) & (2**63 - 1)).tolist()
