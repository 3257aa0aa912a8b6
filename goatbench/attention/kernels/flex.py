"""torch's flex_attention: elementwise biases as score_mod, masks as block masks; nothing of size Q * K is stored on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .fold import fold, row_offset
from .problem import Problem


@dataclass(frozen=True, slots=True)
class Flex:
    """flex_attention: compiled on CUDA; on a CPU eagerly, without gradient, with the logits written out.

    max_logits: on a CPU, objects above this many logits (B * H * Q * K).
    """

    name: ClassVar[str] = "flex"
    max_logits: int = 2**28

    def objections(self, problem: Problem) -> tuple[str, ...]:
        found = []
        if problem.q.is_cuda and problem.q.dtype == torch.float64:
            found.append("no float64 on CUDA")
        if not problem.q.is_cuda:
            if _demands_grad(problem):
                found.append("no backward on a CPU")
            num_logits = problem.q.shape[:3].numel() * problem.k.shape[2]
            if num_logits > self.max_logits:
                found.append(f"{num_logits} logits written out on a CPU, the limit is {self.max_logits}")
        return tuple(found)

    def describe(self, problem: Problem) -> str:
        return "flex" if problem.q.is_cuda else "flex-eager"

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        from torch.nn.attention.flex_attention import flex_attention

        folded = fold(problem)
        q, k, v = folded.q, folded.k, folded.v
        if not torch.is_grad_enabled():  # on a CPU flex refuses leaves that require a gradient even under no_grad
            q, k, v = q.detach(), k.detach(), v.detach()
        run = torch.compile(flex_attention) if problem.q.is_cuda else flex_attention
        wants_lse = problem.needs_lse or problem.prior.sink is not None
        result = run(
            q,
            k,
            v,
            score_mod=_score_mod(problem) if problem.prior.biases else None,
            block_mask=None if problem.mask.is_full else _block_mask(problem),
            scale=problem.scale,
            enable_gqa=problem.q.shape[1] != problem.k.shape[1],
            return_lse=wants_lse,
        )
        if not wants_lse:
            return result[..., : folded.value_dim], None
        out, lse = result
        return _finish(problem, out[..., : folded.value_dim], lse)


def _finish(problem: Problem, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor | None]:
    """Row terms and the sink, after the call: right only because flex's lse carries gradient."""
    offset, sink = row_offset(problem), problem.prior.sink
    lse = lse if offset is None else lse + offset
    if sink is not None:
        joined = torch.logaddexp(lse, sink.to(lse.dtype)[None, :, None])
        out = (out * torch.exp(lse - joined)[..., None]).to(out.dtype)
        lse = joined
    return out, lse if problem.needs_lse else None


def _score_mod(problem: Problem):
    biases = problem.prior.biases

    def score_mod(score, batch, head, query, key):
        for bias in biases:
            score = score + bias(batch, head, query, key)
        return score

    return score_mod


def _block_mask(problem: Problem):
    """The same rules as `BoundMask.dense`, one element at a time."""
    from torch.nn.attention.flex_attention import create_block_mask

    mask = problem.mask.mask
    query_order, key_order = problem.mask.query_positions.order, problem.mask.key_positions.order
    batch, num_queries, num_keys = problem.q.shape[0], query_order.shape[1], key_order.shape[1]
    query_order, key_order = query_order.expand(batch, -1), key_order.expand(batch, -1)
    segment = None if mask.segment is None else mask.segment.expand(batch, -1)
    valid = mask.key_valid
    valid = valid if valid is None else valid.expand(batch, -1)

    def allowed(b, h, query, key):
        distance = query_order[b, query] - key_order[b, key]
        ok = distance >= 0 if mask.causal else distance == distance
        if mask.window is not None:
            near = distance.abs() < mask.window
            ok = ok & (near | (key_order[b, key] < mask.num_sinks) if mask.num_sinks else near)
        if segment is not None:
            same = segment[b, num_keys - num_queries + query] == segment[b, key]
            ok = ok & (same | (key < mask.num_prefix) if mask.num_prefix else same)
        if valid is not None:
            ok = ok & valid[b, key]
        return ok

    return create_block_mask(allowed, batch, None, num_queries, num_keys, device=problem.q.device)


def _demands_grad(problem: Problem) -> bool:
    if not torch.is_grad_enabled():
        return False
    prior = problem.prior
    tensors = (problem.q, problem.k, problem.v, prior.q_lanes, prior.k_lanes, prior.row_lanes, prior.q_term, prior.k_term, prior.sink)
    if any(t is not None and t.requires_grad for t in tensors):
        return True
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=problem.q.device)
    return any(bias(zero, zero, zero, zero).requires_grad for bias in prior.biases)
