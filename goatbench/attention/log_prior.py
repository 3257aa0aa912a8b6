"""The log-prior of attention as a value: a monoid under `+`.

    log p(j | i) = scale * <q_i, k_j> + log_prior[b,h,i,j] - lse[b,h,i]            over the allowed j

    log_prior    = <q_lanes[h,i], k_lanes[g,j]> - <q_lanes[h,i], row_lanes[i]> + q_term[h,i] + k_term[g,j] + sum of bias(b, h, i, j)
    sink[h]      = a logit with value 0 that joins the denominator only

B batch, H query heads, G key/value heads (G divides H), Q query tokens, K key tokens, R lanes. All numbers are nats,
unscaled: they are added after the content logit was multiplied by `scale`. A leading `B|1` is 1 unless positions differ
by row or the prior depends on content. Row terms (`row_lanes`, `q_term`) cancel in the softmax and matter to the
log-sum-exp, hence to sinks, only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# bias(batch, head, query_index, key_index) -> nats, elementwise over index tensors that broadcast; evaluated densely by
# `LogPrior.dense` and one element at a time by flex's score_mod, so that reference and kernel cannot drift apart.
# A bias that is the same for every batch row ignores `batch`, and its dense form keeps a batch axis of 1.
Bias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LogPrior:
    """One log-prior; every field is optional and `LogPrior()` is the uniform prior.

    q_lanes:   [B|1, H, Q, R]    all per-head parameters live here
    k_lanes:   [B|1, 1|G, K, R]  features, without a head axis where possible
    row_lanes: [B|1, 1, Q, R]    the value of the key features at the query's own place; subtracting <q_lanes, row_lanes>
               makes a lane relative (recency -slope * (i - j) instead of slope * j) with the very query lane that the
               kernel rounds, so that sinks stay exact in bf16
    q_term:    [B|1, H, Q] fp32 row term
    k_term:    [B|1, 1|G, K] fp32 key term; may be unbounded, so kernels never cast it plainly
    biases:    elementwise functions (batch, head, query_index, key_index) -> nats
    sink:      [H] logit of a zero-value key
    integers:  (index of a lane whose keys are integers, the largest magnitude among them or None where nobody knows): kernels in half
               precision carry what that dtype cannot hold of them in one more lane
    """

    q_lanes: Tensor | None = None
    k_lanes: Tensor | None = None
    row_lanes: Tensor | None = None
    q_term: Tensor | None = None
    k_term: Tensor | None = None
    biases: tuple[Bias, ...] = ()
    sink: Tensor | None = None
    integers: tuple[tuple[int, int | None], ...] = ()

    @property
    def num_lanes(self) -> int:
        return 0 if self.q_lanes is None else self.q_lanes.shape[-1]

    def __add__(self, other: LogPrior) -> LogPrior:
        """The product of two priors: lanes are concatenated, terms added, biases joined, sinks joined by logaddexp."""
        lanes = _join_lanes(self, other)
        return LogPrior(
            *lanes,
            q_term=_add(self.q_term, other.q_term),
            k_term=_add(self.k_term, other.k_term),
            biases=self.biases + other.biases,
            sink=other.sink if self.sink is None else self.sink if other.sink is None else torch.logaddexp(self.sink, other.sink),
            integers=self.integers + tuple((self.num_lanes + lane, bound) for lane, bound in other.integers),
        )

    def row_offset(self, dtype: torch.dtype) -> Tensor | None:
        """Row terms [B|1, H, Q] (None: zero): what the prior adds to a whole row. dtype: of the product of lanes."""
        offset = self.q_term
        if self.row_lanes is not None:
            offset = _add(offset, -(self.q_lanes.to(dtype) * self.row_lanes.to(dtype)).sum(-1))
        return offset

    def dense(
        self,
        num_heads: int,
        num_queries: int,
        num_keys: int,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        batch: int = 1,
    ) -> Tensor:
        """The same numbers written out: [B|1, H, Q, K] in nats. For tests, plots and the reference kernel; costs O(Q * K).

        `batch` (rows of the batch) is read only by biases that differ from row to row.
        """
        parts = [t for t in (self.q_lanes, self.k_lanes, self.q_term, self.k_term) if t is not None]
        dtype = dtype or (parts[0].dtype if parts else torch.float32)
        device = device or (parts[0].device if parts else None)
        total = torch.zeros(1, num_heads, num_queries, num_keys, dtype=dtype, device=device)
        if self.q_lanes is not None:
            k_lanes = _per_query_head(self.k_lanes.to(dtype), num_heads)
            total = total + self.q_lanes.to(dtype) @ k_lanes.transpose(-1, -2)
        if (offset := self.row_offset(dtype)) is not None:
            total = total + offset.to(dtype)[..., None]
        if self.k_term is not None:
            total = total + _per_query_head(self.k_term.to(dtype), num_heads)[..., None, :]
        if self.biases:
            row = torch.arange(batch, device=device)[:, None, None, None]
            head = torch.arange(num_heads, device=device)[None, :, None, None]
            query = torch.arange(num_queries, device=device)[None, None, :, None]
            key = torch.arange(num_keys, device=device)[None, None, None, :]
            for bias in self.biases:
                total = total + bias(row, head, query, key).to(dtype)
        return total


def _per_query_head(t: Tensor, num_heads: int) -> Tensor:
    """[B, 1|G, ...] -> [B, 1|H, ...]: key/value head g serves query heads g * H/G .. (g + 1) * H/G - 1."""
    return t if t.shape[1] == 1 else t.repeat_interleave(num_heads // t.shape[1], dim=1)


def _add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _join_lanes(a: LogPrior, b: LogPrior) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if a.q_lanes is None or b.q_lanes is None:
        one = a if b.q_lanes is None else b
        return one.q_lanes, one.k_lanes, one.row_lanes
    row_lanes = None
    if a.row_lanes is not None or b.row_lanes is not None:
        row_lanes = _cat(_own_rows(a), _own_rows(b))
    return _cat(a.q_lanes, b.q_lanes), _cat(a.k_lanes, b.k_lanes), row_lanes


def _own_rows(p: LogPrior) -> Tensor:
    if p.row_lanes is not None:
        return p.row_lanes
    return p.q_lanes.new_zeros(1, 1, p.q_lanes.shape[2], p.q_lanes.shape[3])


def _cat(a: Tensor, b: Tensor) -> Tensor:
    """Concatenate lanes; batch and head axes of size 1 broadcast."""
    lead = [max(m, n) for m, n in zip(a.shape[:2], b.shape[:2], strict=True)]
    return torch.cat((a.expand(*lead, *a.shape[2:]), b.expand(*lead, *b.shape[2:])), dim=-1)
