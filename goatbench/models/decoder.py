"""A causal decoder on the shared attention core: pre-norm blocks, whatever the position mechanism. For genome and text.

B batch, K tokens, C embed_dim, V vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention.cache import KVCache
from ..attention.inner.softmax import InnerAttention, Softmax
from ..attention.kernels.problem import Kernel
from ..attention.layer import Gate, SelfAttention
from ..attention.mask import Mask
from ..attention.positions import Line, Positions
from ..attention.scheme import ModelShape, PositionScheme
from ..attention.sink_token import behind_prefix
from .backbone import Backbone, check_heads, inner_class, own_generator, scheme_factory

WEIGHT_STD = 0.02  # GPT-2 (Radford et al. 2019), which divides those of residual outputs by sqrt(2 depth)
LOGIT_STD = 0.1  # of the logits at step 0: the loss then starts about LOGIT_STD^2 / 2 above uniform, whatever the width
UNSCORED_BIAS = -10.0  # logit that tokens which are never targets start with: 1e-5 of the mass


class Decoder(Backbone, nn.Module):
    """Token ids [B, K] -> logits [B, K, V]; the logits at token t are about token t + 1.

    position:   class or function that builds the scheme from a `ModelShape` and `options`, or its name in the registry.
    lanes:      'carve' or 'append', see `SelfAttention`. kernel: attention kernel; None chooses by the problem.
    inner:      class of the inner attention, or its name in the registry; inner_options go to its constructor.
    num_scored: tokens below it can be targets (genome: A C G T of A C G T N); the others start with a logit of -10.
    seq_len:    training length, the `train_extent` of the scheme. Any length runs, up to `max_positions`.
    num_kv_heads: None: num_heads.
    weight_std, embedding_std: of linear layers and of the token embeddings at the start. A model of few tokens and few steps learns
    sooner with larger ones: at 0.02 no mechanism finds a needle within 200 steps.
    gate:       of attention's output, see `SelfAttention`.
    tie_embeddings: the head reads the embedding table, its logits divided by sqrt(C): else a token would predict itself at step 0.

    Linear layers have no bias, but for attention's output and the head. Weights are drawn as in `GoatViT`: each module from a
    generator of its own, seeded by (one draw of the global generator, its name), so that equal seeds give equal weights to all
    modules of equal shape whatever the mechanism.
    """

    def __init__(
        self,
        position: str | Callable[..., PositionScheme],
        options: dict[str, Any] | None = None,
        lanes: str = "carve",
        kernel: Kernel | None = None,
        *,
        vocab_size: int,
        num_scored: int,
        seq_len: int,
        embed_dim: int,
        depth: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        mlp_ratio: float = 4.0,
        tie_embeddings: bool = False,
        weight_std: float = WEIGHT_STD,
        embedding_std: float = WEIGHT_STD,
        gate: Gate = "none",
        inner: str | type[InnerAttention] = Softmax,
        inner_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_heads(lanes, embed_dim, num_heads)
        if not 0 < num_scored <= vocab_size:
            raise ValueError(f"num_scored {num_scored} is not in 1 .. vocab_size = {vocab_size}")
        self.vocab_size, self.num_scored, self.seq_len, self.lanes = vocab_size, num_scored, seq_len, lanes
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        head_dim = embed_dim // num_heads
        shape = ModelShape(1, True, embed_dim, depth, num_heads, num_kv_heads, head_dim, (seq_len,), embedding_std=embedding_std)
        seed = int(torch.randint(2**62, ()))
        with torch.random.fork_rng(devices=[]):
            self.token_embedding = nn.Embedding(vocab_size, embed_dim)
            inner = inner_class(inner)
            scheme = scheme_factory(position, lanes)(inner.scheme_shape(shape), **(options or {}))
            inner = partial(inner, **(inner_options or {}))
            self.blocks = nn.ModuleList(Block(shape, scheme.for_layer(i), kernel, lanes, mlp_ratio, i, gate, inner) for i in range(depth))
            self.norm = nn.LayerNorm(embed_dim, bias=False)
            self.head = Head(embed_dim, vocab_size, self.token_embedding.weight if tie_embeddings else None)
            self._draw_weights(seed, weight_std, embedding_std)
        self._checkpointing = False
        self._line: Positions | None = None

    def forward(
        self, tokens: Tensor, positions: Positions | None = None, mask: Mask = Mask(causal=True), cache: KVCache | None = None
    ) -> Tensor:
        """[B, K] int64 -> [B, K, V]. positions: of these tokens; None: 0, 1, ... or, with a cache, onwards from its last token."""
        return self.head(self.hidden(tokens, positions, mask, cache))

    def hidden(
        self, tokens: Tensor, positions: Positions | None = None, mask: Mask = Mask(causal=True), cache: KVCache | None = None
    ) -> Tensor:
        """[B, K] -> [B, K, C], normalised: `head` turns any part of it into logits."""
        prefix, ahead = self.position.prefix(), 0
        if positions is None:
            seen = 0 if cache is None else cache.num_tokens
            positions = self._positions(tokens.shape[1], seen - self.position.num_prefix_tokens if seen else 0, tokens.device)
        positions = self.position.place(tokens, positions, cache is not None)
        x = self.position.embed(self.token_embedding(tokens), positions)
        if prefix is not None:
            x, positions, mask, ahead = behind_prefix(prefix, x, positions, mask, cache)
        for block in self.blocks:
            if self._checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, positions, mask, cache, use_reentrant=False)
            else:
                x = block(x, positions, mask, cache)
        return self.norm(x[:, ahead:] if ahead else x)

    def _positions(self, length: int, offset: int, device: torch.device) -> Positions:
        """The line of these tokens. The latest is kept, so that a step does not work out the phases of the step before again."""
        if torch.compiler.is_compiling():
            return Positions.line(length, offset, device)
        kept = self._line
        if kept is None or kept.layout != Line(offset, length) or kept.order.device != device:
            with torch.inference_mode(False):  # training may use it after an evaluation
                self._line = Positions.line(length, offset, device)
        return self._line

    @property
    def max_positions(self) -> int | None:
        """The longest sequence that the mechanism is defined for; None: any."""
        return self.position.max_positions

    # Training ------------------------------------------------------------------------------------------------------

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in the backward pass instead of keeping its activations."""
        self._checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Every parameter of a position scheme (many are matrices)."""
        return self.position_parameter_names()

    def _draw_weights(self, seed: int, weight_std: float, embedding_std: float) -> None:
        """Normal weights, zero biases; schemes draw their own."""
        residual_std = weight_std / math.sqrt(2 * len(self.blocks))
        for name, module in self.modules_to_draw():
            with own_generator(seed, name):
                if isinstance(module, Head):
                    module.draw(self.num_scored)
                elif isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=residual_std if name.endswith(("attn.proj", "mlp.fc2")) else weight_std)
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
                elif isinstance(module, nn.Embedding):
                    nn.init.normal_(module.weight, std=embedding_std)
                elif hasattr(module, "reset_parameters"):
                    module.reset_parameters()


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self,
        shape: ModelShape,
        scheme: PositionScheme,
        kernel: Kernel | None,
        lanes: str,
        mlp_ratio: float,
        layer_index: int,
        gate: Gate = "none",
        inner: Callable[..., InnerAttention] = Softmax,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.embed_dim, bias=False)
        self.attn = SelfAttention(shape, scheme, kernel, lanes, qkv_bias=False, inner=inner, layer_index=layer_index, gate=gate)
        self.norm2 = nn.LayerNorm(shape.embed_dim, bias=False)
        self.mlp = Mlp(shape.embed_dim, round(mlp_ratio * shape.embed_dim))

    def forward(self, x: Tensor, positions: Positions, mask: Mask, cache: KVCache | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), positions, mask, cache)
        return x + self.mlp(self.norm2(x))


class Mlp(nn.Module):
    """[B, K, C] -> [B, K, C] through `hidden_dim` units with GELU."""

    def __init__(self, embed_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, hidden_dim, bias=False)
        self.fc2 = nn.Linear(hidden_dim, embed_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Head(nn.Module):
    """[..., C] -> logits [..., V], with weights of its own or those of an embedding table (then divided by sqrt(C))."""

    def __init__(self, embed_dim: int, vocab_size: int, table: nn.Parameter | None) -> None:
        super().__init__()
        self.scale = 1.0 if table is None else embed_dim**-0.5
        self.weight = nn.Parameter(torch.empty(vocab_size, embed_dim)) if table is None else table
        self.bias = nn.Parameter(torch.empty(vocab_size))

    def draw(self, num_scored: int) -> None:
        if self.scale == 1.0:  # a table is drawn as an embedding
            nn.init.normal_(self.weight, std=LOGIT_STD * self.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.bias[num_scored:] = UNSCORED_BIAS

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x if self.scale == 1.0 else x * self.scale, self.weight, self.bias)
