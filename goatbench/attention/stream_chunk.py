"""Many tokens of a stream in one pass, exactly as token by token, once the cache evicts (see `SinkWindowCache`).

S sinks, W window, Q queries; keys are S sinks, then W + Q tokens of the stream. Query r looks at the sinks and at keys S + r .. S + r
+ W, the last of which is itself. Every query stands in slot S + W, a sink j in slot j, and key S + c, for query r, in slot S + c - r.

- Rotations are relative, so the window may be rotated in its own frame. Sinks are not in that frame: they need the query rotated in
  slot S + W. Both queries are put side by side, with keys that are zero on the other's half, and one call serves them.
- A prior at slot S + W is one row of S + W + 1 numbers a head, worked out once: an elementwise bias that looks the key's slot up.
  So key-only terms (GOAT's sink network) are exact too, although each key's changes with every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .log_prior import Bias, LogPrior
from .mask import BoundMask, Mask
from .positions import Positions
from .scheme import PositionScheme, Role


class StreamChunk:
    """Q queries at once. `places`: keys and queries numbered as if nothing were evicted within the chunk (the window's own frame)."""

    def __init__(self, num_sinks: int, window: int, num_queries: int, device: torch.device) -> None:
        self.num_sinks, self.window, self.num_queries = num_sinks, window, num_queries
        full = num_sinks + window
        with torch.inference_mode(False):
            self.places = Positions.line(full + num_queries, 0, device), Positions.line(num_queries, full, device)
            self.slots, self.last_slot = Positions.line(full + 1, 0, device), Positions.line(1, full, device)
            self.is_sink = (torch.arange(full + num_queries, device=device) < num_sinks)[:, None]  # [K, 1]

    def bind(self, mask: Mask) -> BoundMask:
        """The chunk's own mask in place of plain causality; ValueError for any other."""
        if mask != Mask(causal=True):
            raise ValueError("a stream in chunks is plainly causal: no padding, documents or window of its own")
        keys, queries = self.places
        return Mask(causal=True, window=self.window + 1, num_sinks=self.num_sinks).bind(queries, keys)

    def rotate(self, scheme: PositionScheme, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, Q, D], [B, G, K, D] -> the same, or D twice where the scheme rotates."""
        keys, queries = self.places
        near = scheme.rotate(q, queries, Role.QUERY)
        if near is q:  # the null slot: nothing is rotated
            return q, scheme.rotate(k, keys, Role.KEY)
        if not scheme.is_relative:
            raise ValueError(f"{type(scheme).__name__} rotates by more than offsets: a stream goes token by token")
        far = scheme.rotate(q, self._repeated(), Role.QUERY)
        k = scheme.rotate(k, keys, Role.KEY)
        return torch.cat((near, far), dim=-1), torch.cat((k.masked_fill(self.is_sink, 0), k.masked_fill(~self.is_sink, 0)), dim=-1)

    def _repeated(self) -> Positions:
        """Slot S + W, once for each query."""
        return self.places[1].remember("last slot", lambda: Positions.scattered(self.last_slot.order.expand(1, self.num_queries)))

    def temperature(self, scheme: PositionScheme) -> Tensor | None:
        """[B|1, H|1, 1] of the one slot in which every query stands."""
        return scheme.temperature(self.last_slot)

    def prior(self, scheme: PositionScheme, num_heads: int, state: dict[str, Tensor]) -> LogPrior:
        """The prior of slot S + W over the slots, looked up by key and query; ValueError if it depends on content."""
        if state:
            raise ValueError(f"streams of their own ({', '.join(state)}) beside keys and values: a stream goes token by token")
        prior = scheme.prior(self.last_slot, self.slots)
        if prior.q_lanes is None and prior.q_term is None and prior.k_term is None and not prior.biases:
            return prior
        row = prior.dense(num_heads, 1, self.slots.num_tokens, device=self.is_sink.device)[0, :, 0]  # [H, S + W + 1]
        return LogPrior(biases=(_look_up(row, self.num_sinks),), sink=prior.sink)


def _look_up(row: Tensor, num_sinks: int) -> Bias:
    last = row.shape[1] - 1

    def bias(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        slot = torch.where(key < num_sinks, key, (key - query).clamp(0, last))  # outside the window the mask forbids
        return row[head, slot]

    return bias
