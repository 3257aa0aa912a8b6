"""Free-running generation: the prompt through the model once, then token by token with cached keys and values.

B prompts, P prompt tokens, V vocabulary.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from ..attention.cache import FullCache
from .decoder import Decoder


def generate(
    net: Decoder,
    prompts: Tensor,
    num_tokens: int,
    *,
    allowed: int | None = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    progress_label: str | None = None,
) -> Tensor:
    """Continues prompts [B, P] by num_tokens tokens each: [B, num_tokens] int64.

    allowed:     only tokens below it are drawn; None: the net's num_scored.
    temperature: divides the logits; 0 takes the most likely token.
    generator:   the source of all draws, on the device of the prompts; equal state, equal tokens. None: torch's global one.
    """
    allowed = net.num_scored if allowed is None else allowed
    if not 1 <= allowed <= net.vocab_size:
        raise ValueError(f"allowed = {allowed}: tokens 0 to {net.vocab_size - 1} exist, so 1 to {net.vocab_size} can be allowed")
    if temperature < 0:
        raise ValueError(f"temperature = {temperature}: 0 (most likely token) or more")
    if prompts.ndim != 2 or prompts.shape[1] == 0:
        raise ValueError(f"prompts of shape {list(prompts.shape)}: [B, P] with at least one token is needed, there is no start token")
    if num_tokens < 0:
        raise ValueError(f"num_tokens = {num_tokens}: at least 0")
    longest = prompts.shape[1] + num_tokens - 1  # the last token is never fed
    if net.max_positions is not None and longest > net.max_positions:
        raise ValueError(f"{longest} positions are needed, but this mechanism ends at its training length of {net.max_positions}")
    tokens = torch.empty(prompts.shape[0], num_tokens, dtype=torch.int64, device=prompts.device)
    was_training = net.training
    net.eval()
    try:
        with torch.inference_mode(), _bar(progress_label, num_tokens) as bar:
            cache = FullCache()
            hidden = net.hidden(prompts, cache=cache)[:, -1] if num_tokens else None
            for i in range(num_tokens):
                tokens[:, i] = _draw(net.head(hidden)[:, :allowed], temperature, generator)
                if i + 1 < num_tokens:
                    hidden = net.hidden(tokens[:, i : i + 1], cache=cache)[:, -1]
                if bar is not None:
                    bar.advance(1)
    finally:
        net.train(was_training)
    return tokens


def _draw(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """One token a row of logits [B, allowed]; ValueError for logits that are not finite."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if not torch.isfinite(logits).all():
        raise ValueError("a logit is not finite: nothing can be drawn from this model")
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]


def _bar(label: str | None, total: int):
    if label is None:
        return nullcontext()
    from ..progress import Progress

    return Progress(label, total=total, unit="token")
