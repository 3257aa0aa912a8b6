"""The specification: attention with every logit written out. In float64 it is what the other kernels are tested against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .problem import Problem


@dataclass(frozen=True, slots=True)
class Reference:
    """Dense softmax attention in the precision of q (half precision is computed in float32); plain autograd throughout.

    max_logits: objects above this many logits (B * H * Q * K); 2**28 are 1 GiB in float32, several times that with autograd.
    """

    name: ClassVar[str] = "reference"
    max_logits: int = 2**28

    def objections(self, problem: Problem) -> tuple[str, ...]:
        batch, num_heads, num_queries, _ = problem.q.shape
        num_logits = batch * num_heads * num_queries * problem.k.shape[2]
        if num_logits > self.max_logits:
            return (f"{num_logits} logits written out, the limit is {self.max_logits} (Reference(max_logits=...) raises it)",)
        return ()

    def describe(self, problem: Problem) -> str:
        return self.name

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        dtype = torch.promote_types(problem.q.dtype, torch.float32)
        with torch.autocast(problem.q.device.type, enabled=False):
            logits = dense_logits(problem, dtype)
            out, lse = _attend(logits, problem.v.to(dtype), problem.prior.sink)
        return out.to(problem.q.dtype), lse if problem.needs_lse else None


def dense_logits(problem: Problem, dtype: torch.dtype) -> Tensor:
    """scale * <q, k> + log_prior, -inf where the mask forbids: [B, H, Q, K] in nats, without the sink's column."""
    return unmasked_logits(problem, dtype).masked_fill(~problem.mask.dense(), -torch.inf)


def unmasked_logits(problem: Problem, dtype: torch.dtype) -> Tensor:
    """scale * <q, k> + log_prior of every query and key, allowed or not: [B, H, Q, K] in nats."""
    q, k = problem.q.to(dtype), per_query_head(problem.k, problem.q.shape[1]).to(dtype)
    num_heads, num_queries, num_keys = q.shape[1], q.shape[2], k.shape[2]
    prior = problem.prior.dense(num_heads, num_queries, num_keys, dtype=dtype, device=q.device, batch=q.shape[0])
    return problem.scale * (q @ k.transpose(-1, -2)) + prior


def per_query_head(t: Tensor, num_heads: int) -> Tensor:
    """[B, G, ...] -> [B, H, ...]: key/value head g serves the query heads g * H/G .. (g + 1) * H/G - 1."""
    return t if t.shape[1] == num_heads else t.repeat_interleave(num_heads // t.shape[1], dim=1)


def _attend(logits: Tensor, v: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """Softmax over keys (and the sink, whose value is 0); an empty row gives out = 0 and lse = -inf, and no NaN in gradients."""
    probs, lse = weights_and_lse(logits, sink)
    return probs @ per_query_head(v, logits.shape[1]), lse


def weights_and_lse(logits: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """[B, H, Q, K] -> weights of the keys, which sum to 1 less the sink's share, and lse [B, H, Q]; an empty row weighs nothing."""
    num_keys = logits.shape[-1]
    if sink is not None:
        column = sink.to(logits.dtype)[None, :, None, None].expand(*logits.shape[:3], 1)
        logits = torch.cat((logits, column), dim=-1)
    # An all -inf row has no softmax; it is computed on zeros and then replaced, so that its gradient is 0 and not NaN.
    empty = (logits == -torch.inf).all(dim=-1, keepdim=True)
    logits = logits.masked_fill(empty, 0.0)
    probs = torch.softmax(logits, dim=-1).masked_fill(empty, 0.0)
    lse = torch.logsumexp(logits, dim=-1).masked_fill(empty[..., 0], -torch.inf)
    return probs[..., :num_keys], lse
