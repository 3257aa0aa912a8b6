"""Floating point operations of a training step, by formula: counters miss the fused attention of a CPU and every custom kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from .decoder import Decoder
    from .vit import GoatViT


def training_flops_per_token(net: Decoder, length: int) -> int:
    """FLOPs of one training step on sequences of `length` tokens, per token: 3 times the forward pass (PaLM, arXiv 2204.02311,
    appendix B: model FLOPs, a recomputed activation or logit is not counted again).

    Forward: 2 for each weight of a matrix product, and in each layer 2 * length * (W + V) a head for Q K^T and P V, where W is the
    width of q and k with the lanes of the prior, V that of v. All pairs are counted: the causal half is not taken off, as in PaLM
    and torch's counter. Elementwise work (norms, GELU, rotation, building the lanes) is left out.
    """
    return 3 * 2 * (net.head.weight.numel() + _multiplications(net.blocks, length))


def training_flops_per_image(net: GoatViT, height: int, width: int) -> int:
    """FLOPs of one training step, per image of height x width pixels: as for a decoder, each of its tokens attending to all; the patches
    are one more matrix product, and the head reads one vector an image."""
    patch_height, patch_width = net.patch_embed.patch_size
    patches = (height // patch_height) * (width // patch_width)
    tokens = patches + net.num_prefix_tokens
    embedding = patches * net.patch_embed.proj.weight.numel()
    return 3 * 2 * (embedding + tokens * _multiplications(net.blocks, tokens) + net.head.weight.numel())


def _multiplications(blocks: Iterable[nn.Module], length: int) -> int:
    """Of one token in all blocks, in a sequence of `length` tokens."""
    weights = pairs = 0
    for block in blocks:
        attention, layout = block.attn, block.attn.head_layout
        linear = [attention.q_proj, attention.k_proj, attention.v_proj, attention.proj, block.mlp.fc1, block.mlp.fc2]
        linear += [] if attention.gate is None else [attention.gate]
        weights += sum(layer.weight.numel() for layer in linear)
        width = layout.content_dim + attention.scheme.num_lanes
        pairs += layout.num_q * length * (width + layout.value_dim)
    return weights + pairs
