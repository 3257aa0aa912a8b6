"""Key/value caches: named streams of the tokens seen so far, and where those tokens are.

B batch, G key/value heads, K tokens. Keys are cached before rotation, so that a cache which renumbers its tokens can serve
rotary schemes too; each step rotates them at the positions that `update` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from .positions import Line, Positions, Scattered

if TYPE_CHECKING:
    from .scheme import PositionScheme
    from .stream_chunk import StreamChunk, TextChunk

_FIRST_CAPACITY = 64  # tokens; any small number does, as the capacity doubles


class KVCache(Protocol):
    """What `SelfAttention` and models ask of a cache."""

    @property
    def num_tokens(self) -> int:
        """Offset of the next token of the stream."""
        ...

    def update(self, layer_index: int, tokens: dict[str, Tensor], positions: Positions) -> tuple[dict[str, Tensor], Positions, Positions]:
        """Append the new tokens of one layer; return all its tokens, their positions (keys), and those of the queries."""
        ...

    def chunk(self, scheme: PositionScheme, num_past_queries: int) -> StreamChunk | TextChunk | None:
        """How the tokens of the latest update attend if not all of them look at the same ones in their positions; None: as usual."""
        ...

    def reset(self) -> None:
        """Forget everything: the next update starts a new stream."""
        ...


class FullCache:
    """Keeps every token. Buffers grow by doubling, so that N single-token updates copy O(N) tokens.

    Streams are [B, G, K, *] (any rank from 3, tokens on axis 2). No gradient passes through the cache. Buffers are ordinary tensors
    even when filled under inference_mode.
    """

    def __init__(self) -> None:
        self._layers: dict[int, dict[str, _Buffer]] = {}
        self._positions = _PositionLog()

    @property
    def num_tokens(self) -> int:
        """Tokens whose positions are known; the offset of the next token of a line."""
        return self._positions.length

    def reset(self) -> None:
        self._layers = {}
        self._positions = _PositionLog()

    def chunk(self, scheme: PositionScheme, num_past_queries: int) -> StreamChunk | TextChunk | None:
        return None

    def update(self, layer_index: int, tokens: dict[str, Tensor], positions: Positions) -> tuple[dict[str, Tensor], Positions, Positions]:
        streams = self._layers.setdefault(layer_index, {name: _Buffer(axis=2) for name in tokens})
        if streams.keys() != tokens.keys():
            raise ValueError(f"layer {layer_index} caches the streams {sorted(streams)}, got {sorted(tokens)}: call reset() between models")
        seen = next(iter(streams.values())).length
        for name, t in tokens.items():
            if t.shape[2] != positions.num_tokens:
                raise ValueError(f"stream {name!r} has {t.shape[2]} tokens for {positions.num_tokens} positions")
        # The first layer of a step brings its positions in; the others find them there.
        if seen == self._positions.length:
            self._positions.append(positions)
        elif seen + positions.num_tokens != self._positions.length or positions.layout != self._positions.last_layout:
            raise ValueError(
                f"layer {layer_index} has cached {seen} tokens and brings {positions.layout}, but the cache is at "
                f"{self._positions.length} tokens after {self._positions.last_layout}: every layer must see every step once"
            )
        return {name: streams[name].append(t) for name, t in tokens.items()}, self._positions.all(), positions


class _Buffer:
    """A tensor that grows along one axis, with spare room so that appending rarely copies what is already there."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.length = 0
        self._store: Tensor | None = None

    def append(self, t: Tensor) -> Tensor:
        """Copy t behind the content; returns the whole content (a view, valid until the next reset)."""
        # Inside inference_mode a fresh tensor would be an inference tensor, unusable once the mode is left.
        with torch.inference_mode(False), torch.no_grad():
            self._reserve(t)
            self._store.narrow(self.axis, self.length, t.shape[self.axis]).copy_(t)
            self.length += t.shape[self.axis]
            return self.content()

    @property
    def batch(self) -> int:
        return 1 if self._store is None else self._store.shape[0]

    def widen(self, batch: int) -> None:
        """Repeat a content of one row for `batch` rows."""
        if self._store is not None and self.batch == 1 and batch > 1:
            with torch.inference_mode(False):
                self._store = self._store.repeat_interleave(batch, dim=0)

    def content(self) -> Tensor:
        return self._store.narrow(self.axis, 0, self.length)

    def _reserve(self, t: Tensor) -> None:
        needed = self.length + t.shape[self.axis]
        if self._store is None:
            self._store = self._allocate(t.shape, max(needed, _FIRST_CAPACITY), t)
            return
        old = self._store
        if t.dtype != old.dtype or t.device != old.device or self._other_axes(t) != self._other_axes(old):
            raise ValueError(
                f"the cache holds {list(self._other_axes(old))} {old.dtype} on {old.device} (token axis left out), "
                f"got {list(self._other_axes(t))} {t.dtype} on {t.device}: call reset() before another batch"
            )
        if needed > old.shape[self.axis]:
            self._store = self._allocate(old.shape, max(needed, 2 * old.shape[self.axis]), old)
            self._store.narrow(self.axis, 0, self.length).copy_(old.narrow(self.axis, 0, self.length))

    def _allocate(self, shape: torch.Size, capacity: int, like: Tensor) -> Tensor:
        return torch.empty(*shape[: self.axis], capacity, *shape[self.axis + 1 :], dtype=like.dtype, device=like.device)

    def _other_axes(self, t: Tensor) -> tuple[int, ...]:
        return (*t.shape[: self.axis], *t.shape[self.axis + 1 :])


class _PositionLog:
    """Positions of all cached tokens, in buffers that grow; adjoining lines stay a line, as in `Positions.concat`."""

    def __init__(self) -> None:
        self._buffers = (_Buffer(axis=1), _Buffer(axis=1), _Buffer(axis=1))
        self._layout: object = None
        self._all: Positions | None = None
        self.last_layout: object = None

    @property
    def length(self) -> int:
        return self._buffers[0].length

    def append(self, positions: Positions) -> None:
        first, second = self._layout, positions.layout
        if first is None:
            self._layout = second
        elif isinstance(first, Line) and isinstance(second, Line) and first.offset + first.length == second.offset:
            self._layout = Line(first.offset, first.length + second.length)
        else:
            self._layout = Scattered(self.length + positions.num_tokens)
        self._all = None
        self.last_layout = second
        for buffer, t in zip(self._buffers, (positions.order, positions.coords, positions.is_prefix), strict=True):
            batch = max(t.shape[0], buffer.batch)  # one row stands for all until a step comes whose rows differ
            buffer.widen(batch)
            buffer.append(t.expand(batch, *t.shape[1:]))

    def all(self) -> Positions:
        """One object a step, so that what it remembers serves every layer."""
        if self._all is None:
            self._all = Positions(self._layout, *(buffer.content() for buffer in self._buffers))
        return self._all
