"""What half precision does to an attention layer: output, attention rows and gradients, to be compared with those in float64.

The content is exact in every dtype, so what differs is what the position mechanism and the kernel round: lanes, biases, rotated
queries and keys, weights, sums. B batch, K tokens, C embed dim, H heads of the kernel's call, Q rows: the last ones, so that memory
is linear in K.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..attention.cache import FullCache
from ..attention.inner.multi_token import MultiToken
from ..attention.kernels.fold import fold, row_offset
from ..attention.kernels.problem import Problem, Wrapped
from ..attention.kernels.reference import per_query_head
from ..attention.layer import SelfAttention
from ..attention.log_prior import LogPrior
from ..attention.mask import Mask
from ..attention.positions import Positions
from ..attention.sink_token import behind_prefix
from .attention_stats import take_positions

SPREAD = 0.1  # std of what is added to every parameter of a mechanism, so that no part of it is silent
NOTHING = 1e-10  # a gradient this much smaller than the largest one is none (a constant that softmax cannot see)


@dataclass(frozen=True, slots=True)
class LastRows:
    """out: [B, Q, *] before the output projection. weights: [B, H, Q, 1 + K] float64, the sink first; None where no softmax makes them."""

    out: Tensor
    weights: Tensor | None


class Select(nn.Module):
    """[..., C] -> [..., n]: random channels of the input, as they are. Stands where a projection would round."""

    def __init__(self, num_in: int, num_out: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("index", torch.randint(num_in, (num_out,), generator=generator), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.index]


def exact(t: Tensor) -> Tensor:
    """The same to the precision that bf16 and fp16 have in common; every value is a number of both."""
    return t.to(torch.bfloat16).to(torch.float16).to(torch.bfloat16).to(t.dtype)


def content(num_tokens: int, embed_dim: int, seed: int) -> Tensor:
    """[1, K, C] float32, normal, exact in every dtype."""
    return exact(torch.randn(1, num_tokens, embed_dim, generator=torch.Generator().manual_seed(seed)))


def exact_layer(layer: SelfAttention, seed: int) -> SelfAttention:
    """A float32 copy whose queries, keys and values are channels of its input, without output projection; every parameter of the
    mechanism is moved off its initial value by N(0, 0.1), and parameters beside the scheme (which stays in float32) are exact."""
    generator = torch.Generator().manual_seed(seed)
    layer, layout = copy.deepcopy(layer).float().eval(), layer.head_layout
    width = layer.shape.embed_dim
    layer.q_proj = Select(width, layout.num_q * layout.content_dim, generator)
    layer.k_proj = Select(width, layout.num_k * layout.content_dim, generator)
    layer.v_proj = Select(width, layout.num_v * layout.value_dim, generator)
    layer.proj = nn.Identity()
    owned = {id(p) for p in layer.scheme.parameters()}
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(SPREAD * torch.randn(parameter.shape, generator=generator))
            if id(parameter) not in owned:
                parameter.copy_(exact(parameter))
    return layer


def in_dtype(layer: SelfAttention, dtype: torch.dtype) -> SelfAttention:
    """A copy in that dtype; schemes keep float32 parameters in half precision, as in a model cast to it."""
    return copy.deepcopy(layer).to(dtype)


def rounded(positions: Positions, dtype: torch.dtype) -> Positions:
    """The same tokens with coordinates that were held in dtype: what casting position ids, phases or a table of distances does."""
    return replace(positions, coords=positions.coords.to(dtype).to(torch.float64))


def last_rows(layer: SelfAttention, x: Tensor, positions: Positions, num_rows: int) -> LastRows:
    """The layer on x [B, K, C], for its last num_rows tokens only: the others are in a cache that no query was asked for."""
    x, positions, mask, _ = _embedded(layer, x, positions)
    num_before = x.shape[1] - num_rows
    before, first, cache = x[:, :num_before], take_positions(positions, slice(0, num_before)), FullCache()
    watching = None if isinstance(layer.inner, MultiToken) else _Watching(layer.kernel)
    kernel = layer.kernel
    with torch.no_grad():
        heads = lambda t, n: t.unflatten(-1, (n, -1)).transpose(1, 2)
        layout = layer.head_layout
        q, k, v = (heads(p(before), n) for p, n in zip(_projections(layer), (layout.num_q, layout.num_k, layout.num_v), strict=True))
        state = {**layer.scheme.token_state(before), **layer.inner.token_state(before, q)}
        cache.update(layer.layer_index, {"k": k, "v": v, **state}, first)
        try:
            if watching is not None:
                layer.kernel = watching
            out = layer(x[:, num_before:], positions.latest(num_rows), mask, cache)
        finally:
            if watching is not None:
                layer.kernel = kernel
        return LastRows(out, None if watching is None else kernel_weights(watching.problem))


def gradients(layer: SelfAttention, x: Tensor, positions: Positions, weight: Tensor) -> dict[str, Tensor]:
    """Of <output, weight> over all tokens, for every trained parameter that the output of an exact_layer depends on (it has none but the
    mechanism's); in float64.

    weight: [B, K, *] in any dtype.
    """
    named = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    x, positions, mask, ahead = _embedded(layer, x, positions)
    out = layer(x, positions, mask)[:, ahead:]
    found = torch.autograd.grad(out, list(named.values()), weight.to(out.dtype), allow_unused=True) if named else ()
    return {name: g.double() for name, g in zip(named, found, strict=True) if g is not None}


def gradient_errors(found: dict[str, Tensor], true: dict[str, Tensor]) -> dict[str, float]:
    """Relative error of each parameter's gradient; parameters without influence are left out."""
    norms = {name: float(g.norm()) for name, g in true.items()}
    largest = max(norms.values(), default=0.0)
    return {name: relative_error(found[name], true[name]) for name, norm in norms.items() if norm > NOTHING * largest}


def relative_error(found: Tensor, true: Tensor) -> float:
    """Root mean square of the difference over that of what is true."""
    return float((found.double() - true.double()).norm() / true.double().norm())


def total_variation(found: Tensor, true: Tensor) -> Tensor:
    """[H]: half the absolute difference of two rows of probabilities [B, H, Q, 1 + K], summed over keys and sink; mean over rows."""
    return (found - true).abs().sum(-1).mean((0, 2)) / 2


def kernel_weights(problem: Problem) -> Tensor:
    """[B, H, Q, 1 + K] float64, the sink first: the softmax of the numbers that a fused kernel is handed in the problem's dtype.

    That is what widened queries and keys hold after rounding (`fold`), biases rounded as a float mask, and a sink lowered by row terms.
    """
    folded, prior = fold(problem), problem.prior
    heads, keys = folded.q.shape[1], folded.k.shape[2]
    logits = problem.scale * (folded.q.double() @ per_query_head(folded.k, heads).double().transpose(-1, -2))
    if prior.biases:
        wide = torch.promote_types(folded.q.dtype, torch.float32)
        bias = LogPrior(biases=prior.biases).dense(heads, logits.shape[2], keys, dtype=wide, device=logits.device, batch=logits.shape[0])
        logits += bias.to(folded.q.dtype)
    logits = logits.masked_fill_(~problem.mask.dense(), -torch.inf)
    sink = logits.new_full((1, heads, 1), -torch.inf) if prior.sink is None else prior.sink.double()[None, :, None]
    offset = row_offset(problem)
    sink = sink if offset is None else sink - offset.double()
    return torch.cat((sink.expand(logits.shape[:3])[..., None], logits), dim=-1).softmax(-1)


def _embedded(layer: SelfAttention, x: Tensor, positions: Positions) -> tuple[Tensor, Positions, Mask, int]:
    """What a decoder does before its first block."""
    mask, prefix = Mask(causal=True), layer.scheme.prefix()
    x = layer.scheme.embed(x, positions)
    return (x, positions, mask, 0) if prefix is None else behind_prefix(prefix, x, positions, mask, None)


def _projections(layer: SelfAttention) -> tuple[nn.Module, nn.Module, nn.Module]:
    return layer.q_proj, layer.k_proj, layer.v_proj


class _Watching(Wrapped):
    """Keeps the problem it was given."""

    problem: Problem

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        self.problem = problem
        return self.kernel(problem)
