"""Memory of constant size for one stream of a `SinkWindowCache`.

B batch, G key/value heads, K tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Slab:
    """One stream: the sinks stand before the window, wherever that has moved to, so that all of it is one view without a copy.

    The window moves up the slab token by token; at the end it is copied back to the start, once in about S + W tokens.
    """

    def __init__(self, num_sinks: int, window: int) -> None:
        self.num_sinks, self.window = num_sinks, window
        self.start, self.length = 0, 0  # of the view: sinks, then the window
        self._sinks: Tensor | None = None
        self._store: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self._store, self._sinks) if t is not None)

    def append(self, t: Tensor) -> Tensor:
        """Evict down to S + W tokens, then copy t behind them: the whole content."""
        with torch.inference_mode(False), torch.no_grad():
            evicted = max(0, self.length - self.num_sinks - self.window)
            self._reserve(t, self.length - evicted + t.shape[2])
            if evicted:
                self._keep_sinks()
                self.start, self.length = self.start + evicted, self.length - evicted
            if self.start + self.length + t.shape[2] > self._store.shape[2]:
                self._store.narrow(2, 0, self.length).copy_(self._view(0, self.length).clone())
                self.start = 0
            if evicted and self.num_sinks:
                self._view(0, self.num_sinks).copy_(self._sinks)
            self._view(self.length, t.shape[2]).copy_(t)
            self.length += t.shape[2]
            return self._view(0, self.length)

    def _view(self, first: int, length: int) -> Tensor:
        return self._store.narrow(2, self.start + first, length)

    def _keep_sinks(self) -> None:
        if self._sinks is None:
            self._sinks = self._view(0, self.num_sinks).clone()

    def _reserve(self, t: Tensor, needed: int) -> None:
        """Room for twice what a step needs, so that the window is copied back once in as many tokens as it holds."""
        old = self._store
        if old is not None and (t.dtype != old.dtype or t.device != old.device or _other_axes(t) != _other_axes(old)):
            raise ValueError(
                f"the cache holds {list(_other_axes(old))} {old.dtype} on {old.device} (token axis left out), "
                f"got {list(_other_axes(t))} {t.dtype} on {t.device}: call reset() before another batch"
            )
        capacity = 2 * max(needed, self.num_sinks + self.window + 1)
        if old is None or old.shape[2] < capacity:
            store = torch.empty(*t.shape[:2], capacity, *t.shape[3:], dtype=t.dtype, device=t.device)
            if old is not None:
                store.narrow(2, 0, self.length).copy_(self._view(0, self.length))
            self._store, self.start = store, 0


def _other_axes(t: Tensor) -> tuple[int, ...]:
    return (*t.shape[:2], *t.shape[3:])
