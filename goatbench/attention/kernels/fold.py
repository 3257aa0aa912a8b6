"""A log-prior as extra columns of q and k: <q', k'> * scale = <q, k> * scale + <q_lanes, k_lanes> + k_term.

Fused kernels then compute the prior without knowing of it. What does not fit into columns (row terms, sink, biases, mask)
is left to the kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .problem import Problem

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Folded:
    """q, k: [B, H, Q, W] and [B, G, K, W]; v: [B, G, K, W], whose columns from `value_dim` on are zero padding."""

    q: Tensor
    k: Tensor
    v: Tensor
    value_dim: int


def fold(problem: Problem) -> Folded:
    """Widen q, k and v to one common width W. Without lanes, key term or unequal widths the tensors pass through untouched."""
    dtype = compute_dtype(problem.q)
    prior = problem.prior
    if prior.q_lanes is None and prior.k_term is None and problem.q.shape[-1] == problem.v.shape[-1] and dtype == problem.q.dtype:
        return Folded(problem.q, problem.k, problem.v, problem.v.shape[-1])  # what single-token decoding without a prior costs
    q_parts, k_parts = [problem.q.to(dtype)], [problem.k.to(dtype)]
    if prior.q_lanes is not None:
        q_lanes, k_lanes = kernel_query_lanes(problem, dtype), prior.k_lanes.to(dtype)
        inexact = _inexact_lanes(problem)
        remainders = [prior.k_lanes[..., lane, None].detach() - k_lanes[..., lane, None].detach() for lane in inexact]
        q_parts += [q_lanes, *(q_lanes[..., lane, None] for lane in inexact)]
        k_parts += [k_lanes, *(t.to(dtype) for t in remainders)]
    if prior.k_term is not None:
        columns, factor = exact_columns(prior.k_term, problem.scale, dtype)
        q_parts.append(problem.q.new_full((1, 1, 1, columns.shape[-1]), factor, dtype=dtype).expand(-1, -1, problem.q.shape[2], -1))
        k_parts.append(columns)
    padding = _lane_width(problem) - sum(t.shape[-1] for t in k_parts)
    if padding:
        zeros = problem.q.new_zeros((1, 1, 1, padding), dtype=dtype)
        q_parts.append(zeros.expand(-1, -1, problem.q.shape[2], -1))
        k_parts.append(zeros.expand(-1, -1, problem.k.shape[2], -1))
    q, k, v = _join(q_parts, by_token=True), _join(k_parts, by_token=False), problem.v.to(dtype)
    width, value_dim = q.shape[-1], v.shape[-1]
    if value_dim < width:
        v = F.pad(v, (0, width - value_dim))
    elif value_dim > width:
        q, k = F.pad(q, (0, value_dim - width)), F.pad(k, (0, value_dim - width))
    return Folded(q, k, v, value_dim)


def folded_width(problem: Problem) -> int:
    """The width W that `fold` will give, without folding."""
    return max(_lane_width(problem), problem.v.shape[-1])


def _lane_width(problem: Problem) -> int:
    """Content and lanes; with columns that `fold` adds by itself rounded up to a multiple of 8."""
    width, added = problem.q.shape[-1] + problem.prior.num_lanes, len(_inexact_lanes(problem))
    if problem.prior.k_term is not None:
        added += 3 if compute_dtype(problem.q) in HALF else 1
    return width + added + -(width + added) % 8 if added else width


def _inexact_lanes(problem: Problem) -> list[int]:
    """Lanes of integers that may exceed what the kernel's dtype holds: 256 in bf16, 2,048 in float16. What rounding takes from them is
    an integer of 8 (11) bits again up to 65,536, so that with one more lane positions are exact to 16 million."""
    dtype = compute_dtype(problem.q)
    if dtype not in HALF:
        return []
    largest = 2 / torch.finfo(dtype).eps
    return [lane for lane, bound in problem.prior.integers if bound is None or bound > largest]


def compute_dtype(q: Tensor) -> torch.dtype:
    """The dtype the fused kernel will run in. Under autocast SDPA would cast float32 lanes behind our back, after the exact
    split of the key term had been decided for float32; so autocast's dtype is applied here."""
    if q.dtype == torch.float32 and torch.is_autocast_enabled(q.device.type):
        return torch.get_autocast_dtype(q.device.type)
    return q.dtype


def kernel_query_lanes(problem: Problem, dtype: torch.dtype) -> Tensor:
    """The query lanes as the kernel sees them: divided by `scale`, which the kernel multiplies back, and cast once."""
    return (problem.prior.q_lanes / problem.scale).to(dtype)


def row_offset(problem: Problem) -> Tensor | None:
    """Row terms [B|1, H, Q] in float32 (float64 for float64 problems), None if there are none.

    With `row_lanes`, from the query lanes that the kernel really used, i.e. after their rounding: otherwise the row term
    and the key side would disagree by the rounding error times the position, and the sink and lse with them.
    """
    prior = problem.prior
    accumulate = torch.promote_types(problem.q.dtype, torch.float32)
    offset = None if prior.q_term is None else prior.q_term.to(accumulate)
    if prior.row_lanes is not None:
        lanes = prior.q_lanes.to(accumulate)
        rounded = kernel_query_lanes(problem, compute_dtype(problem.q)).to(accumulate) * problem.scale
        lanes = lanes + (rounded - lanes).detach()  # value: rounded; gradient: straight to the unrounded lanes, in full precision
        relative = -(lanes * prior.row_lanes.to(accumulate)).sum(-1)
        offset = relative if offset is None else offset + relative
    return offset


def exact_columns(term: Tensor, scale: float, dtype: torch.dtype) -> tuple[Tensor, float]:
    """A key term [B|1, 1|G, K] as columns [B|1, 1|G, K, n] and the number that the query side holds in each of them (or row terms, the
    other way round).

    The query side is the power of two next to 1/scale, exact in every dtype; the rest of 1/scale goes into the key side before
    it is split. In half precision three summands carry 24 (33 in float16) bits; the gradient flows through the first, as the
    sum's derivative must not be counted three times.
    """
    factor = 2.0 ** round(-math.log2(scale))
    columns = term * (1.0 / (scale * factor))
    if dtype not in HALF:
        return columns.to(dtype)[..., None], factor
    first = columns.to(dtype)
    rest = columns.detach() - first.detach()
    second = rest.to(dtype)
    third = (rest - second).to(dtype)
    return torch.stack((first, second, third), dim=-1), factor


def _join(parts: list[Tensor], by_token: bool) -> Tensor:
    """Concatenate columns behind the content's; lanes with batch or head axes of size 1 broadcast.

    by_token: laid out in memory as [B, K, H, W], like the projections. So queries are: fused kernels give their output the layout
    of q, and merging the heads of any other would copy it (and keep both copies for the backward pass). Keys are laid out head by
    head, which costs nothing here and lets a kernel read them in one stream (4 % of its time at 4,096 tokens on a CPU).
    """
    if len(parts) == 1:
        return parts[0]
    batch, heads = parts[0].shape[:2]
    parts = [_spread(t, batch, heads) for t in parts]
    return torch.cat([t.transpose(1, 2) for t in parts], dim=-1).transpose(1, 2) if by_token else torch.cat(parts, dim=-1)


def _spread(t: Tensor, batch: int, heads: int) -> Tensor:
    """[B|1, G|1, K, R] -> [B, G, K, R], heads before batch: backward then sums the large gradient over one axis, the first, which
    is several times faster than over two, and the heads of what is left."""
    if t.shape[1] != heads:
        t = t.expand(-1, heads, -1, -1)
    return t if t.shape[0] == batch else t.expand(batch, -1, -1, -1)
