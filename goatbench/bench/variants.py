"""The attention layers that are compared, all of one width: E = 384, H = 6, head_dim 64, causal, one axis.

Every variant is the same `SelfAttention` with another scheme, but `goat-attention`, the package published with the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.layer import SelfAttention
from ..attention.mask import Mask
from ..attention.positions import Positions
from ..attention.priors.fourier import Goat
from ..attention.priors.fourier_reference import GoatReference
from ..attention.rotary import Rope
from ..attention.scheme import ModelShape, NoPosition, PositionScheme
from ..records.environment import package_version

EMBED_DIM, NUM_HEADS, HEAD_DIM, MLP_RATIO = 384, 6, 64, 4
NUM_FREQUENCIES = 6  # 2 * 6 spectral lanes + 2 recency + sink + bump = 16 lanes
MIN_PERIOD, MAX_PERIOD = 6.283185307179586, 62831.85307179586  # 2 pi and 2 pi * 10,000, the paper's
PUBLISHED = "goat-attention"


def model_shape(tokens: int, depth: int = 1) -> ModelShape:
    return ModelShape(1, True, EMBED_DIM, depth, NUM_HEADS, NUM_HEADS, HEAD_DIM, (tokens,))


def goat_scheme(shape: ModelShape) -> Goat:
    return Goat(shape, num_frequencies=NUM_FREQUENCIES, min_period=MIN_PERIOD, max_period=MAX_PERIOD)


def goat_reference_scheme(shape: ModelShape) -> GoatReference:
    return GoatReference(shape, pos_rank=NUM_FREQUENCIES, abs_rank=8, train_length=shape.train_extent[0])


class RopeTables(Rope):
    """RoPE with cos and sin of one set of positions worked out beforehand: what a model of one fixed length pays."""

    def __init__(self, shape: ModelShape, positions: Positions) -> None:
        super().__init__(shape)
        cos, sin = super().tables(positions, torch.float32)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def tables_key(self, dtype: torch.dtype) -> None:
        return None

    def tables(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.cos, self.sin


class Layer(nn.Module):
    """Our causal attention, [B, K, E] -> [B, K, E]."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention, self.mask = attention, Mask(causal=True)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        return self.attention(x, positions, self.mask)


class PublishedLayer(nn.Module):
    """GoatAttention of the package goat-attention at its best: fused qkv, no weights returned, features cached by it."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        from goat import GoatAttention

        self.attention = GoatAttention.for_gpt(EMBED_DIM, NUM_HEADS, pos_rank=NUM_FREQUENCIES, abs_rank=8, training_seq_len=tokens)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        return self.attention(x, x, x, is_causal=True, need_weights=False)[0]


@dataclass(frozen=True, slots=True)
class Variant:
    """build(tokens) -> one attention layer for sequences of that length."""

    name: str
    build: Callable[[int], nn.Module]


def _ours(scheme: Callable[[ModelShape], PositionScheme], lanes: str = "carve") -> Callable[[int], nn.Module]:
    def build(tokens: int) -> nn.Module:
        shape = model_shape(tokens)
        return Layer(SelfAttention(shape, scheme(shape), lanes=lanes))

    return build


VARIANTS = {
    v.name: v
    for v in (
        Variant("plain", _ours(NoPosition)),
        Variant("rope", _ours(Rope)),
        Variant("rope-tables", _ours(lambda shape: RopeTables(shape, Positions.line(shape.train_extent[0])))),
        Variant("goat", _ours(goat_scheme)),
        Variant("goat-append", _ours(goat_scheme, lanes="append")),
        Variant("goat_reference", _ours(goat_reference_scheme)),
        Variant(PUBLISHED, PublishedLayer),
    )
}


def published_available() -> bool:
    """Whether goat-attention (its module is called `goat`) can be imported."""
    return package_version(PUBLISHED) is not None and find_spec("goat") is not None


def build(name: str, tokens: int, depth: int = 0) -> nn.Module:
    """module(x, positions): a layer (depth 0), or a stack of `depth` pre-norm blocks; the same seed for every variant."""
    torch.manual_seed(0)
    if depth == 0:
        return VARIANTS[name].build(tokens)
    return Stack([Block(VARIANTS[name].build(tokens)) for _ in range(depth)])


class Stack(nn.Module):
    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        for block in self.blocks:
            x = block(x, positions)
        return x


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): a pre-norm transformer block."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(EMBED_DIM), nn.LayerNorm(EMBED_DIM)
        self.attention = attention
        self.fc1, self.fc2 = nn.Linear(EMBED_DIM, MLP_RATIO * EMBED_DIM), nn.Linear(MLP_RATIO * EMBED_DIM, EMBED_DIM)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        x = x + self.attention(self.norm1(x), positions)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def training_step(module: nn.Module, batch: int, tokens: int, device: torch.device | str = "cpu") -> Callable[[], None]:
    """One forward and backward on fixed normal inputs, gradients of input and parameters; nothing accumulates between calls.

    Positions are made anew in each call, as a model does for each batch: what their features cost is inside, once for all layers.
    """
    g = torch.Generator().manual_seed(1)
    x = torch.randn(batch, tokens, EMBED_DIM, generator=g).to(device).requires_grad_()
    grad = torch.randn(batch, tokens, EMBED_DIM, generator=g).to(device)
    wanted = [x, *module.parameters()]

    def step() -> None:
        out = module(x, Positions.line(tokens, device=device))
        torch.autograd.grad(out, wanted, grad, allow_unused=True)  # goat-attention has parameters it never uses

    return step
