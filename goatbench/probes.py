"""Questions to a small model about what its attention can do. The answers are words of `goatbench list attentions`."""

from __future__ import annotations

import torch
from torch import Tensor

from .models import kernels_used
from .models.decoder import Decoder
from .models.vit import GoatViT
from .training.live_storages import LiveStorages

LENGTHS = (256, 576, 1024)  # squares, for images; decoders are built for the last one
GROWING = 1.25  # bytes a further token, long against short: 1 where memory is linear


def training_kernel(net: Decoder | GoatViT) -> str:
    """What computes attention where a backward pass will follow, on this machine: 'sdpa-flash', 'written-out', ..."""
    return kernels_used(net.train(), _inputs(net, 64))


def memory_growth(net: Decoder | GoatViT) -> str:
    """'linear' or 'quadratic' in the number of tokens: of the most that a training step's forward pass holds, features of positions
    included. A kernel's own workspace is not seen; those of flash attention do not grow faster."""
    peaks = [_peak(net, length) for length in LENGTHS]
    short, long = ((peaks[i + 1] - peaks[i]) / (LENGTHS[i + 1] - LENGTHS[i]) for i in (0, 1))
    return "quadratic" if long > GROWING * short else "linear"


def _peak(net: Decoder | GoatViT, length: int) -> int:
    inputs = _inputs(net, length)
    with LiveStorages() as live:
        net.train()(inputs)
    return live.peak


def _inputs(net: Decoder | GoatViT, num_tokens: int) -> Tensor:
    """Token ids, or an image of so many patches."""
    if isinstance(net, Decoder):
        return torch.zeros(1, num_tokens, dtype=torch.int64)
    side = round(num_tokens**0.5) * net.patch_embed.patch_size[0]
    return torch.zeros(1, net.patch_embed.proj.in_channels, side, side)
