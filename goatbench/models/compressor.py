"""A decoder that must say everything it has read from its last token alone: the autoencoder of the compression task (arXiv 2403.17844).

B batch, K tokens, C embed_dim.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .backbone import own_generator
from .decoder import WEIGHT_STD, Decoder


class Compressor(Decoder):
    """Token ids [B, K] -> logits [B, K, V] about the token at each place itself, all made from the state of the last token.

    That state plus a sinusoid of the place goes through two layers of width C (`unpack`); no attention reaches past it. As published,
    but for LayerNorm where RMSNorm was. Arguments: see `Decoder`.
    """

    def __init__(self, *args: Any, weight_std: float = WEIGHT_STD, **kwargs: Any) -> None:
        super().__init__(*args, weight_std=weight_std, **kwargs)
        width = self.token_embedding.embedding_dim
        if width % 2:
            raise ValueError(f"embed_dim {width} is odd: sinusoids of places need an even one")
        seed = int(torch.randint(2**62, ()))
        with own_generator(seed, "unpack"):
            self.unpack = nn.Sequential(
                nn.LayerNorm(width, bias=False), nn.Linear(width, width), nn.GELU(),
                nn.LayerNorm(width, bias=False), nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, bias=False),
            )  # fmt: skip
            for module in self.unpack:
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=weight_std)
                    nn.init.zeros_(module.bias)

    def hidden(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """[B, K] -> [B, K, C]."""
        state = super().hidden(tokens, *args, **kwargs)[:, -1:]
        return self.unpack(state + sinusoids(tokens.shape[1], state.shape[-1]).to(state))


def sinusoids(num_places: int, width: int) -> Tensor:
    """float64 [K, C]: sines, then cosines, of the place at width / 2 frequencies from 1 down towards 1 / 10,000 (arXiv 1706.03762)."""
    frequencies = 10_000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    phase = torch.arange(num_places, dtype=torch.float64)[:, None] * frequencies
    return torch.cat((phase.sin(), phase.cos()), dim=-1)
