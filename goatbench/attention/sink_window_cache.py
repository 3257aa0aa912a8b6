"""StreamingLLM (Xiao et al., arXiv 2309.17453): the first tokens and the latest ones, in constant memory however long the stream.

S sinks, W window, B batch, G key/value heads, Q new tokens, P learned tokens before the stream (`sink_token`; they are the first sinks).
Token i looks at the S first tokens, the W tokens before it, and itself. Positions are places in the cache: keys are kept unrotated,
and every step numbers what is there anew from 0. As long as nothing has been evicted (i <= S + W) places and text positions agree;
from then on every query stands in slot S + W.

Token by token is the definition. Chunks of Q > 1 tokens compute the same in one pass, see `StreamChunk`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .positions import Line, Positions
from .scheme import PositionScheme
from .slab import Slab
from .stream_chunk import StreamChunk, TextChunk, line_behind_prefix
from .sum import Sum


class SinkWindowCache:
    """A KVCache of num_sinks + window tokens (and the present step's). No gradient passes through it.

    num_sinks:  S, first tokens of the stream that are never evicted. window: W, latest tokens kept besides sinks and the token itself.
    renumber:   True: tokens are where they stand in the cache (StreamingLLM). False: where they stand in the text, so that what is
                evicted is missing and nothing else changes: attention under a mask of sinks and window.
    num_prefix: P, learned tokens that the model puts before the stream; its first step brings them along.

    Streams are [B, G, K, *] with tokens on axis 2; what `update` returns is valid until the next one. One step holds either tokens
    from before the first eviction or tokens from after it: `steps` cuts a text accordingly.
    """

    def __init__(self, num_sinks: int, window: int, renumber: bool = True, num_prefix: int = 0) -> None:
        if num_sinks < 0 or window < 1:
            raise ValueError(f"num_sinks = {num_sinks}, window = {window}: at least 0 sinks and a window of at least 1 token")
        if num_prefix > num_sinks:
            raise ValueError(
                f"num_sinks = {num_sinks}: the learned tokens before the sequence ({num_prefix}) are sinks, which a stream cannot do "
                f"without; at least {num_prefix}"
            )
        self.num_sinks, self.window, self.renumber, self.num_prefix = num_sinks, window, renumber, num_prefix
        self.reset()

    def reset(self) -> None:
        self._layers: dict[int, dict[str, Slab]] = {}
        self._seen: dict[int, int] = {}  # layer -> tokens of the stream so far
        self._places: tuple[Positions, Positions] | None = None
        self._places_of: tuple[int, int, torch.device] | None = None
        self._chunk: StreamChunk | TextChunk | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of the stream so far, evicted and learned ones counted."""
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
        before = max(0, self.num_sinks + self.window - max(self.num_tokens, self.num_prefix))  # tokens until eviction begins
        while num_tokens > 0:
            size = min(chunk, num_tokens, before or num_tokens)
            yield size
            num_tokens, before = num_tokens - size, max(0, before - size)

    def update(self, layer_index: int, tokens: dict[str, Tensor], positions: Positions) -> tuple[dict[str, Tensor], Positions, Positions]:
        """The S + W tokens kept and the new ones, and the places of both; see KVCache."""
        num_new, full, device = positions.num_tokens, self.num_sinks + self.window, positions.order.device
        streams = self._layers.setdefault(layer_index, {name: Slab(self.num_sinks, self.window) for name in tokens})
        seen = self._seen.get(layer_index, 0)
        if streams.keys() != tokens.keys():
            raise ValueError(f"layer {layer_index} caches the streams {sorted(streams)}, got {sorted(tokens)}: call reset() between models")
        if positions.layout != Line(seen - self.num_prefix, num_new):
            raise ValueError(
                f"layer {layer_index} has seen {seen} tokens of the stream, num_prefix = {self.num_prefix} of them learned, and is given "
                f"{positions.layout}: a cache that evicts takes one stream without gaps, and every layer must see every step once"
            )
        if seen < full and seen + num_new > full + 1:
            raise ValueError(
                f"tokens {seen} to {seen + num_new - 1} in one step, but eviction begins at token {full + 1}: cut them as steps() does"
            )
        self._seen[layer_index] = seen + num_new
        self._move_to(seen, num_new, device)
        keys, queries = self._places
        return {name: streams[name].append(t) for name, t in tokens.items()}, keys, queries

    def chunk(self, scheme: PositionScheme, num_past_queries: int) -> StreamChunk | TextChunk | None:
        """How the present step's queries are served if they do not all look at the same tokens; ValueError if they cannot be."""
        found = streaming_objection(scheme, self.renumber)
        if found is not None:
            raise ValueError(found)
        if num_past_queries and not self.renumber:
            raise ValueError(
                f"the inner attention works on {num_past_queries} queries before the present one, each of which has keys that the cache "
                "has evicted since (streaming in text positions)"
            )
        return self._chunk

    def _move_to(self, seen: int, num_new: int, device: torch.device) -> None:
        """Places and chunk of the step that brings tokens seen .. seen + num_new - 1. Kept, so that what they remember serves all layers,
        and the steps to come where tokens are renumbered: those after the first eviction are all alike."""
        full = self.num_sinks + self.window
        step = (min(seen, full) if self.renumber else seen, num_new, device)
        if step == self._places_of:
            return
        is_chunk = seen >= full and num_new > 1
        with torch.inference_mode(False):
            if self.renumber and is_chunk:
                self._chunk = StreamChunk(self.num_sinks, self.window, num_new, device, self.num_prefix)
                self._places = self._chunk.keys, self._chunk.queries
            else:
                self._places = self._slots(min(seen, full), num_new, device) if self.renumber else self._in_text(seen, num_new, device)
                self._chunk = TextChunk(*self._places, self.num_sinks, self.window) if is_chunk else None
        self._places_of = step

    def _slots(self, first: int, num_new: int, device: torch.device) -> tuple[Positions, Positions]:
        """Keys 0 .. first + num_new - 1, queries the last num_new of them."""
        keys = line_behind_prefix(0, first + num_new, self.num_prefix, device)
        return keys, line_behind_prefix(first, num_new, self.num_prefix, device)

    def _in_text(self, seen: int, num_new: int, device: torch.device) -> tuple[Positions, Positions]:
        """Keys 0 .. S - 1 and those from the window's first on, queries the last num_new of them."""
        queries = line_behind_prefix(seen, num_new, self.num_prefix, device)
        first = seen - self.window
        if first <= self.num_sinks:  # nothing is evicted yet
            return line_behind_prefix(0, seen + num_new, self.num_prefix, device), queries
        latest = line_behind_prefix(first, seen + num_new - first, self.num_prefix, device)
        if not self.num_sinks:
            return latest, queries
        sinks = Positions.line(self.num_sinks - self.num_prefix, 0, device)
        return (sinks.behind_prefix(self.num_prefix) if self.num_prefix else sinks).concat(latest), queries


def streaming_objection(scheme: PositionScheme, renumber: bool = True) -> str | None:
    """Why tokens placed by this scheme cannot be renumbered in a cache (or evicted from one, in their places); None if they can."""
    for part in scheme.parts if isinstance(scheme, Sum) else (scheme,):
        name = type(part).__name__
        if renumber and type(part).embed is not PositionScheme.embed:
            return f"{name} adds positions to the tokens at the input, so that cached tokens cannot be renumbered (streaming)"
        if not renumber and type(part).token_state is not PositionScheme.token_state:
            return f"{name} sums over all tokens up to a key, which a cache that evicts some does not hold (streaming in text positions)"
    return None
