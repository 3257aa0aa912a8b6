"""Self-attention from four independent choices: position scheme, inner attention, kernel, cache.

B batch, K tokens, C embed dim, H query heads, G key/value heads, D content dims a head, V value dims a head, R lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from .inner.softmax import InnerAttention, Softmax
from .kernels.problem import Kernel
from .kernels.select import Auto
from .mask import Mask
from .positions import Positions
from .scheme import ModelShape, PositionScheme, Role

if TYPE_CHECKING:
    from .cache import KVCache
    from .stream_chunk import StreamChunk, TextChunk

Lanes = Literal["carve", "append"]
Gate = Literal["none", "headwise", "elementwise"]
GATES: tuple[str, ...] = get_args(Gate)


class SelfAttention(nn.Module):
    """Multi-head self-attention, [B, K, C] -> [B, K, C].

    shape:       dims of the model (heads, head_dim, ...).
    scheme:      the position scheme of this layer.
    kernel:      who computes softmax(QK)V; default: the best that has no objection.
    lanes:       'carve' projects q and k to D = head_dim - R content dims, so that D + R = head_dim and no projected row is
                 dead; 'append' keeps D = head_dim and widens q and k by R.
    qkv_bias:    bias of queries and values. Keys have none: <q, b_k> is constant along a row, which softmax ignores.
    inner:       builds the inner attention from (shape, layer_index, kernel); default: softmax. The scheme must have been built for
                 its `scheme_shape`.
    gate:        multiplies the output of each head (or each of its dims) by sigmoid(x W) before the output projection
                 (Qiu et al., arXiv 2505.06708, position G1). No bias; W drawn as any projection, so that gates start at about 1/2.

    v has a projection of its own: a view of a fused qkv would keep q and k alive until the backward pass.
    """

    def __init__(
        self,
        shape: ModelShape,
        scheme: PositionScheme,
        kernel: Kernel | None = None,
        lanes: Lanes = "carve",
        qkv_bias: bool = True,
        inner: Callable[[ModelShape, int, Kernel], InnerAttention] = Softmax,
        layer_index: int = 0,
        gate: Gate = "none",
    ) -> None:
        super().__init__()
        if shape.num_heads % shape.num_kv_heads:
            raise ValueError(f"num_kv_heads {shape.num_kv_heads} does not divide num_heads {shape.num_heads}")
        content_dim = shape.head_dim - (scheme.num_lanes if lanes == "carve" else 0)
        if content_dim < 1:
            raise ValueError(
                f"{type(scheme).__name__} needs {scheme.num_lanes} lanes, but head_dim is {shape.head_dim}: "
                "use fewer frequencies, wider heads, or lanes=append"
            )
        self.shape, self.lanes, self.layer_index = shape, lanes, layer_index
        self.scheme = scheme
        self.inner = inner(shape, layer_index, kernel or Auto())
        self.head_layout = layout = self.inner.head_layout(shape.num_heads, shape.num_kv_heads, shape.head_dim, content_dim)
        self.scale = layout.content_dim**-0.5
        self.q_proj = nn.Linear(shape.embed_dim, layout.num_q * layout.content_dim, bias=qkv_bias)
        self.k_proj = nn.Linear(shape.embed_dim, layout.num_k * layout.content_dim, bias=False)
        self.v_proj = nn.Linear(shape.embed_dim, layout.num_v * layout.value_dim, bias=qkv_bias)
        self.proj = nn.Linear(layout.out_dim, shape.embed_dim)
        if gate not in GATES:
            raise ValueError(f"gate {gate!r} is unknown; one of {', '.join(GATES)}")
        gates = shape.num_heads if gate == "headwise" else layout.out_dim
        self.gate = None if gate == "none" else nn.Linear(shape.embed_dim, gates, bias=False)

    @property
    def kernel(self) -> Kernel:
        return self.inner.kernel

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None:
        self.inner.kernel = kernel

    def forward(self, x: Tensor, positions: Positions, mask: Mask = Mask(), cache: KVCache | None = None) -> Tensor:
        """positions: of the K tokens of x; mask.key_valid and mask.segment cover cached keys too."""
        if positions.num_tokens != x.shape[1] or positions.num_axes != self.shape.num_axes:
            raise ValueError(
                f"x has {x.shape[1]} tokens and the layer {self.shape.num_axes} axes of position, "
                f"but positions are of {positions.num_tokens} tokens on {positions.num_axes}: Positions.line(tokens) has one axis, "
                "Positions.grid(height, width, num_prefix) two"
            )
        layout, scheme, past = self.head_layout, self.scheme, 0
        q = _heads(self.q_proj(x), layout.num_q)
        k = _heads(self.k_proj(x), layout.num_k)
        v = _heads(self.v_proj(x), layout.num_v)
        state = {**scheme.token_state(x), **self.inner.token_state(x, q)}
        key_positions = positions
        if cache is not None:
            tokens, key_positions, positions = cache.update(self.layer_index, {"k": k, "v": v, **state}, positions)
            k, v = tokens.pop("k"), tokens.pop("v")
            state = tokens
            chunk = cache.chunk(scheme, self.inner.num_past_queries)
            if chunk is not None:
                return self._attend_chunk(x, q, k, v, state, mask, chunk)
            past = min(self.inner.num_past_queries, key_positions.num_tokens - positions.num_tokens)
        if past:
            q = torch.cat((state["q"][:, :, -past - q.shape[2] : -q.shape[2]], q), dim=2)
            positions = key_positions.latest(q.shape[2])
        q = self._rotate(q, positions, Role.QUERY, self.inner.query_maps)
        k = self._rotate(k, key_positions, Role.KEY, self.inner.key_maps)
        with torch.autocast(x.device.type, enabled=False):  # priors stay in fp32
            prior = scheme.prior(positions, key_positions, state)
            temperature = scheme.temperature(positions)
        if temperature is not None:
            if temperature.shape[1] > 1:
                temperature = temperature.repeat_interleave(self.inner.query_maps, dim=1)
            q = (q * temperature[..., None]).to(q.dtype)
        out = self.inner(x, q, k, v, prior, mask.bind(positions, key_positions), self.scale, state)
        if past:
            out = out[:, :, past:]
        return self._output(out, x)

    def _output(self, out: Tensor, x: Tensor) -> Tensor:
        """[B, H, K, V] -> [B, K, C]; the gates of x are one a head or one a dim of a head."""
        merged = out.transpose(1, 2).flatten(2)
        if self.gate is not None:
            gates = self.gate(x).sigmoid().unflatten(-1, (self.shape.num_heads, -1))
            merged = (merged.unflatten(-1, (self.shape.num_heads, -1)) * gates).flatten(2)
        return self.proj(merged)

    def _rotate(self, t: Tensor, positions: Positions, role: Role, num_maps: int) -> Tensor:
        """Each of the maps that a head of the scheme has is rotated as that head."""
        if num_maps == 1:
            return self.scheme.rotate(t, positions, role)
        maps = [self.scheme.rotate(t[:, m::num_maps], positions, role) for m in range(num_maps)]
        return torch.stack(maps, dim=2).flatten(1, 2)

    def _attend_chunk(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: dict[str, Tensor], mask: Mask, chunk: StreamChunk | TextChunk
    ) -> Tensor:
        """What `forward` does after the cache, for queries of which each has its own tokens in the cache."""
        if self.inner.num_past_queries or self.inner.query_maps > 1 or self.inner.key_maps > 1:
            raise ValueError(f"{type(self.inner).__name__} streams token by token only: give this cache one token at a time")
        q, k = chunk.rotate(self.scheme, q, k)
        with torch.autocast(x.device.type, enabled=False):
            prior = chunk.prior(self.scheme, q.shape[1], state)
            temperature = chunk.temperature(self.scheme)
        if temperature is not None:
            q = (q * temperature[..., None]).to(q.dtype)
        return self._output(self.inner(x, q, k, v, prior, chunk.bind(mask), self.scale, state), x)


def _heads(t: Tensor, num_heads: int) -> Tensor:
    """[B, K, H * D] -> [B, H, K, D], a view."""
    return t.unflatten(-1, (num_heads, -1)).transpose(1, 2)
