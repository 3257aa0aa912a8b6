"""Many tokens of a stream in one pass, exactly as token by token, once the cache evicts (see `SinkWindowCache`).

S sinks, W window, Q queries, P learned tokens before the stream (P <= S); keys are S sinks, then W + Q tokens of the stream. Query r
looks at the sinks and at keys S + r .. S + r + W, the last of which is itself.

`StreamChunk`, where tokens are numbered by their slot: every query stands in slot S + W, a sink j in slot j, and key S + c, for query r,
in slot S + c - r.

- Rotations are relative, so the window may be rotated in its own frame. Sinks are not in that frame: they need the query rotated in
  slot S + W. Both queries are put side by side, with keys that are zero on the other's half, and one call serves them.
- A prior at slot S + W is one row of S + W + 1 numbers a head, worked out once: an elementwise bias that looks the key's slot up.
  So key-only terms (GOAT's sink network) are exact too, although each key's changes with every step.

`TextChunk`, where tokens keep their places in the text: nothing but a mask.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .log_prior import Bias, LogPrior
from .mask import BoundMask, Mask
from .positions import Positions
from .scheme import PositionScheme, Role


def line_behind_prefix(first: int, length: int, num_prefix: int, device: torch.device) -> Positions:
    """`length` tokens from number `first` on, of which those below num_prefix are learned ones without a coordinate."""
    if first >= num_prefix:
        return Positions.line(length, first - num_prefix, device)
    assert first == 0 and length > num_prefix
    return Positions.line(length - num_prefix, 0, device).behind_prefix(num_prefix)


class _Chunk:
    """Q queries at once over S + W + Q keys. keys, queries: where the scheme takes them to be."""

    def __init__(self, keys: Positions, queries: Positions, num_sinks: int, window: int) -> None:
        self.keys, self.queries = keys, queries
        self.num_sinks, self.window, self.num_queries = num_sinks, window, queries.num_tokens

    def bind(self, mask: Mask) -> BoundMask:
        """The chunk's own mask in place of plain causality; ValueError for any other. Tokens count from 0, learned ones too."""
        if replace(mask, num_prefix=0) != Mask(causal=True):
            raise ValueError("a stream in chunks is plainly causal: no padding, documents or window of its own")
        full, device = self.num_sinks + self.window, self.keys.order.device
        queries, keys = Positions.line(self.num_queries, full, device), Positions.line(full + self.num_queries, 0, device)
        return Mask(causal=True, window=self.window + 1, num_sinks=self.num_sinks).bind(queries, keys)

    def rotate(self, scheme: PositionScheme, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, Q, D], [B, G, K, D] -> the same, or wider (both alike)."""
        raise NotImplementedError

    def temperature(self, scheme: PositionScheme) -> Tensor | None:
        """[B|1, H|1, 1|Q]"""
        raise NotImplementedError

    def prior(self, scheme: PositionScheme, num_heads: int, state: dict[str, Tensor]) -> LogPrior:
        """ValueError if it depends on content."""
        raise NotImplementedError


class StreamChunk(_Chunk):
    """Slots. `keys` and `queries` are numbered as if nothing were evicted within the chunk (the window's own frame)."""

    def __init__(self, num_sinks: int, window: int, num_queries: int, device: torch.device, num_prefix: int = 0) -> None:
        full = num_sinks + window
        with torch.inference_mode(False):
            slots = lambda first, length: line_behind_prefix(first, length, num_prefix, device)
            super().__init__(slots(0, full + num_queries), slots(full, num_queries), num_sinks, window)
            self.slots, self.last_slot = slots(0, full + 1), slots(full, 1)
            self.is_sink = (torch.arange(full + num_queries, device=device) < num_sinks)[:, None]  # [K, 1]

    def rotate(self, scheme: PositionScheme, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, Q, D], [B, G, K, D] -> the same, or D twice where the scheme rotates."""
        near = scheme.rotate(q, self.queries, Role.QUERY)
        if near is q:  # the null slot: nothing is rotated
            return q, scheme.rotate(k, self.keys, Role.KEY)
        if not scheme.is_rotation_relative:
            raise ValueError(f"{type(scheme).__name__} rotates by more than offsets: a stream goes token by token")
        far = scheme.rotate(q, self._repeated(), Role.QUERY)
        k = scheme.rotate(k, self.keys, Role.KEY)
        return torch.cat((near, far), dim=-1), torch.cat((k.masked_fill(self.is_sink, 0), k.masked_fill(~self.is_sink, 0)), dim=-1)

    def _repeated(self) -> Positions:
        """Slot S + W, once for each query."""
        return self.queries.remember("last slot", lambda: Positions.scattered(self.last_slot.order.expand(1, self.num_queries)))

    def temperature(self, scheme: PositionScheme) -> Tensor | None:
        """[B|1, H|1, 1] of the one slot in which every query stands."""
        return scheme.temperature(self.last_slot)

    def prior(self, scheme: PositionScheme, num_heads: int, state: dict[str, Tensor]) -> LogPrior:
        """The prior of slot S + W over the slots, looked up by key and query."""
        _check_no_state(state)
        prior = scheme.prior(self.last_slot, self.slots)
        if prior.q_lanes is None and prior.q_term is None and prior.k_term is None and not prior.biases:
            return prior
        row = prior.dense(num_heads, 1, self.slots.num_tokens, device=self.is_sink.device)[0, :, 0]  # [H, S + W + 1]
        return LogPrior(biases=(_look_up(row, self.num_sinks),), sink=prior.sink)


class TextChunk(_Chunk):
    """Places in the text: the scheme is asked as for any other tokens, what is evicted is not there."""

    def rotate(self, scheme: PositionScheme, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return scheme.rotate(q, self.queries, Role.QUERY), scheme.rotate(k, self.keys, Role.KEY)

    def temperature(self, scheme: PositionScheme) -> Tensor | None:
        return scheme.temperature(self.queries)

    def prior(self, scheme: PositionScheme, num_heads: int, state: dict[str, Tensor]) -> LogPrior:
        _check_no_state(state)
        return scheme.prior(self.queries, self.keys)


def _check_no_state(state: dict[str, Tensor]) -> None:
    if state:
        raise ValueError(f"streams of their own ({', '.join(state)}) beside keys and values: a stream goes token by token")


def _look_up(row: Tensor, num_sinks: int) -> Bias:
    last = row.shape[1] - 1

    def bias(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        slot = torch.where(key < num_sinks, key, (key - query).clamp(0, last))  # outside the window the mask forbids
        return row[head, slot]

    return bias
