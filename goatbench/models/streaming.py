"""A decoder that reads windows as streams, in memory that does not grow with the window (StreamingLLM, arXiv 2309.17453)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention.sink_window_cache import SinkWindowCache, streaming_objection
from .decoder import Decoder


class Streamed(nn.Module):
    """Stands where `evaluate_lm` wants a net, for windows of which the last targets are scored.

    Every window is a stream of its own, from its first token, through a cache of num_sinks first tokens and the `window` latest.
    last: tokens whose hidden states are returned; no others are kept. chunk: tokens a step; None: the window. Changes nothing but
    rounding. renumber: see `SinkWindowCache`. cache: of the latest call.
    """

    def __init__(self, net: Decoder, num_sinks: int, window: int, last: int, chunk: int | None = None, renumber: bool = True) -> None:
        super().__init__()
        self.net, self.head, self.vocab_size = net, net.head, net.vocab_size
        self.num_sinks, self.window, self.last, self.chunk = num_sinks, window, last, chunk or window
        self.cache = SinkWindowCache(num_sinks, window, renumber, net.position.num_prefix_tokens)

    def hidden(self, tokens: Tensor) -> Tensor:
        """[B, K] -> [B, last, C], normalised, of the last tokens."""
        self.cache.reset()
        kept, start = None, 0
        for size in self.cache.steps(tokens.shape[1], self.chunk):
            new = self.net.hidden(tokens[:, start : start + size], cache=self.cache)
            kept = (new if kept is None else torch.cat((kept, new), dim=1))[:, -self.last :]
            start += size
        return kept


def streaming(net: Decoder, num_sinks: int = 1, renumber: bool = True) -> tuple[str, str]:
    """How a `SinkWindowCache` can be fed once it evicts: ('chunks', ''), ('tokens', why no chunks: one at a time) or ('no', why not).

    Tried on a short stream, as schemes and inner attentions object when they are asked.
    """
    why = streaming_objection(net.position, renumber)
    if why is not None:
        return "no", why
    was_training = net.training
    try:
        for how, chunk in (("chunks", 4), ("tokens", 1)):
            try:
                with torch.inference_mode():
                    stream = Streamed(net.eval(), num_sinks, window=4, last=1, chunk=chunk, renumber=renumber)
                    stream.hidden(_zeros(net, num_sinks + 12))
            except ValueError as error:
                why = str(error)
                continue
            return how, why or ""
        return "no", why
    finally:
        net.train(was_training)


def _zeros(net: Decoder, length: int) -> Tensor:
    return torch.zeros(1, length, dtype=torch.int64, device=net.head.weight.device)
