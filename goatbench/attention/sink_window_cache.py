"""StreamingLLM (Xiao et al., arXiv 2309.17453): the first tokens and the latest ones, in constant memory however long the stream.

S sinks, W window, B batch, G key/value heads, Q new tokens. Token i looks at the S first tokens, the W tokens before it, and itself.
Positions are places in the cache: keys are kept unrotated, and every step numbers what is there anew from 0. As long as nothing has
been evicted (i <= S + W) places and text positions agree; from then on every query stands in slot S + W.

Token by token is the definition. Chunks of Q > 1 tokens compute the same in one pass, see `StreamChunk`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .positions import Line, Positions
from .scheme import PositionScheme
from .stream_chunk import StreamChunk
from .sum import Sum


class SinkWindowCache:
    """A KVCache of num_sinks + window tokens (and the present step's). No gradient passes through it.

    num_sinks: S, first tokens of the stream that are never evicted. window: W, latest tokens kept besides sinks and the token itself.
    Streams are [B, G, K, *] with tokens on axis 2; what `update` returns is valid until the next one. One step holds either tokens
    from before the first eviction or tokens from after it: `steps` cuts a text accordingly.
    """

    def __init__(self, num_sinks: int, window: int) -> None:
        if num_sinks < 0 or window < 1:
            raise ValueError(f"num_sinks = {num_sinks}, window = {window}: at least 0 sinks and a window of at least 1 token")
        self.num_sinks, self.window = num_sinks, window
        self.reset()

    def reset(self) -> None:
        self._layers: dict[int, dict[str, _Slab]] = {}
        self._seen: dict[int, int] = {}  # layer -> tokens of the stream so far
        self._places: tuple[Positions, Positions] | None = None
        self._chunk: StreamChunk | None = None

    @property
    def num_tokens(self) -> int:
        """Offset of the next token of the stream, evicted tokens counted."""
        return max(self._seen.values(), default=0)

    @property
    def num_cached(self) -> int:
        """Tokens that each stream holds now: at most S + W and those of the last step."""
        return max((slab.length for streams in self._layers.values() for slab in streams.values()), default=0)

    @property
    def num_bytes(self) -> int:
        """Allocated for tokens, in all layers."""
        return sum(slab.num_bytes for streams in self._layers.values() for slab in streams.values())

    def steps(self, num_tokens: int, chunk: int) -> Iterator[int]:
        """Sizes of the steps, at most `chunk` each, in which the next num_tokens tokens of the stream can be given."""
        before = max(0, self.num_sinks + self.window - self.num_tokens)  # tokens until queries stay in the last slot
        while num_tokens > 0:
            size = min(chunk, num_tokens, before or num_tokens)
            yield size
            num_tokens, before = num_tokens - size, max(0, before - size)

    def update(self, layer_index: int, tokens: dict[str, Tensor], positions: Positions) -> tuple[dict[str, Tensor], Positions, Positions]:
        """The S + W tokens kept and the new ones, and the slots of both; see KVCache."""
        num_new, full = positions.num_tokens, self.num_sinks + self.window
        streams = self._layers.setdefault(layer_index, {name: _Slab(self.num_sinks, self.window) for name in tokens})
        seen = self._seen.get(layer_index, 0)
        if streams.keys() != tokens.keys():
            raise ValueError(f"layer {layer_index} caches the streams {sorted(streams)}, got {sorted(tokens)}: call reset() between models")
        if positions.layout != Line(seen, num_new):
            raise ValueError(
                f"layer {layer_index} has seen {seen} tokens of the stream and is given {positions.layout}: a cache that renumbers its "
                "tokens takes one stream without gaps, and every layer must see every step once"
            )
        if seen < full and seen + num_new > full + 1:
            raise ValueError(
                f"tokens {seen} to {seen + num_new - 1} in one step, but eviction begins at token {full + 1}: cut them as steps() does"
            )
        self._seen[layer_index] = seen + num_new
        is_chunk = seen >= full and num_new > 1
        if not is_chunk:
            self._chunk = None
        elif self._chunk is None or self._chunk.num_queries != num_new:
            self._chunk = StreamChunk(self.num_sinks, self.window, num_new, positions.order.device)
        keys, queries = self._chunk.places if is_chunk else self._slots(min(seen, full), num_new, positions.order.device)
        return {name: streams[name].append(t) for name, t in tokens.items()}, keys, queries

    def chunk(self, scheme: PositionScheme) -> StreamChunk | None:
        """How the present step's queries are served if they do not all look at the same tokens; ValueError if they cannot be."""
        found = streaming_objection(scheme)
        if found is not None:
            raise ValueError(found)
        return self._chunk

    def _slots(self, first: int, num_new: int, device: torch.device) -> tuple[Positions, Positions]:
        """Keys 0 .. first + num_new - 1, queries the last num_new of them; kept, so that what they remember serves layers and steps."""
        kept = self._places
        if kept is None or kept[1].layout != Line(first, num_new) or kept[1].order.device != device:
            with torch.inference_mode(False):
                self._places = Positions.line(first + num_new, 0, device), Positions.line(num_new, first, device)
        return self._places


def streaming_objection(scheme: PositionScheme) -> str | None:
    """Why tokens placed by this scheme cannot be renumbered in a cache; None if they can."""
    for part in scheme.parts if isinstance(scheme, Sum) else (scheme,):
        if type(part).embed is not PositionScheme.embed:
            name = type(part).__name__
            return f"{name} adds positions to the tokens at the input, so that cached tokens cannot be renumbered (streaming)"
    return None


class _Slab:
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
