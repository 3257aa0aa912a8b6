"""Which keys a query may look at.

B batch, Q query tokens, K key tokens. Causality is decided by `Positions.order`, so it is right with a cache (bottom-right
aligned), with padding and with evicted keys alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from .positions import Line, Positions


@dataclass(frozen=True, slots=True)
class Mask:
    """What is allowed, stated without positions.

    causal:    keys with order <= the query's.
    window:    at most `window` keys including the query itself (order distance < window); None: unlimited.
    num_sinks: the first `num_sinks` keys of the stream stay visible outside the window.
    key_valid: [B, K] bool, False on padding.
    segment:   [B|1, K] int, documents: a query sees its own segment only. Queries are the last Q of the K tokens.
    num_prefix: of the K tokens, the first num_prefix are learned tokens before the sequence, which belong to every document.
    """

    causal: bool = False
    window: int | None = None
    num_sinks: int = 0
    key_valid: Tensor | None = None
    segment: Tensor | None = None
    num_prefix: int = 0

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window = {self.window}: the window counts the query itself, so it is at least 1")
        if self.num_sinks < 0 or (self.num_sinks and self.window is None):
            raise ValueError(f"num_sinks = {self.num_sinks} means keys kept beside a window; set window, or num_sinks = 0")

    def behind_prefix(self, count: int) -> Mask:
        """The same rules for K tokens that stand behind `count` prefix tokens."""
        valid = self.key_valid if self.key_valid is None else F.pad(self.key_valid, (count, 0), value=True)
        segment = self.segment if self.segment is None else F.pad(self.segment, (count, 0), value=-1)
        return replace(self, key_valid=valid, segment=segment, num_prefix=count)

    def bind(self, query_positions: Positions, key_positions: Positions) -> BoundMask:
        return BoundMask(self, query_positions, key_positions)


@dataclass(frozen=True, slots=True)
class BoundMask:
    """A mask at given positions. `is_full` and `is_square_causal` are Python facts of the layout: kernels branch on them."""

    mask: Mask
    query_positions: Positions
    key_positions: Positions

    @property
    def is_full(self) -> bool:
        """Every query sees every key, known from the layout alone."""
        m = self.mask
        if m.key_valid is not None or m.segment is not None:
            return False
        if not m.causal:
            return m.window is None
        query, key = self.query_positions.layout, self.key_positions.layout
        if not (isinstance(query, Line) and isinstance(key, Line) and query.length == 1):
            return False
        sees_all = query.offset >= key.offset + key.length - 1
        return sees_all and (m.window is None or query.offset - key.offset < m.window)

    @property
    def is_square_causal(self) -> bool:
        """Plain causal attention of a sequence to itself, known from the layout alone: top-left and bottom-right agree."""
        m = self.mask
        if not m.causal or m.key_valid is not None or m.segment is not None:
            return False
        query, key = self.query_positions.layout, self.key_positions.layout
        same = type(query) is type(key) and query == key and isinstance(query, Line)
        return same and (m.window is None or m.window >= key.length)

    def dense(self) -> Tensor:
        """bool [B|1, 1, Q, K], True where allowed."""
        m = self.mask
        query, key = self.query_positions.order[:, None, :, None], self.key_positions.order[:, None, None, :]
        allowed = torch.ones(1, 1, query.shape[2], key.shape[3], dtype=torch.bool, device=query.device)
        distance = query - key
        if m.causal:
            allowed = allowed & (distance >= 0)
        if m.window is not None:
            near = distance.abs() < m.window
            allowed = allowed & (near | (key < m.num_sinks) if m.num_sinks else near)
        if m.segment is not None:
            segment = m.segment
            same = segment[:, None, -query.shape[2] :, None] == segment[:, None, None, :]
            allowed = allowed & (same | self.key_positions.is_prefix[:, None, None] if m.num_prefix else same)
        if m.key_valid is not None:
            allowed = allowed & m.key_valid[:, None, None, :]
        return allowed
