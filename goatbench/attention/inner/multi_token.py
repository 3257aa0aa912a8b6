"""Multi-Token Attention: attention weights that depend on several queries, keys and heads at once (Golovneva et al., arXiv 2504.00927).

    logits  = scale * q k^T + log_prior                 0 where the mask forbids
    logits <- mix_heads(convolve(logits))               -inf where the mask forbids, then softmax over the keys
    weights <- convolve(weights)                        0 where the mask forbids
    out     = scaling * norm(mix_heads(weights) v)      per head

    convolve(t)[h, i, j] = sum over a < c_q, |b| <= c_k // 2 of kernel[h, c_q - 1 - a, c_k // 2 + b] * t[h, i - a, j + b]

B batch, H heads, Q queries, K keys. Masked before and after a convolution ("double mask"): a kernel sees nothing that its own row's
query could not, and nothing that a row before it did not see. Rows of the final weights need not sum to 1 and may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.problem import Kernel, Problem
from ..kernels.reference import per_query_head, unmasked_logits, weights_and_lse
from ..log_prior import LogPrior
from ..mask import BoundMask
from ..scheme import ModelShape
from .differential import RMS_EPS, lambda_init
from .softmax import HeadLayout, InnerAttention

PLACES = {"none": (False, False), "before": (True, False), "after": (False, True), "both": (True, True)}  # of the softmax
NORMS = ("none", "plain", "depth", "gate")


class MultiToken(InnerAttention):
    """Key-query convolution and head mixing before and after the softmax, then a norm per head. All kernels start as the identity.

    query_kernel, key_kernel: c_q rows (this query and those before it), c_k keys (odd, centred); published 6 and 11.
    convolve:        where the key-query convolution stands: none, before, after, both (of the softmax).
    every:           of so many layers one convolves: those with index % every == every // 2; published 4 of 24 layers, 2, 6, 10, ...
    mix:             where heads are mixed: none, before, after, both; in every layer.
    heads_per_group: heads that are mixed with one another; None: all.
    norm:            none; plain, an RMS norm per head whose weight all heads share; depth, the same times 1 - lambda_init(layer) (the
                     paper's first version); gate, the same times sigmoid(w . head + b), w and b shared by the heads (the released one).

    Logits are written out, and past queries are cached: 2 (c_q - 1) with both convolutions. Weight decay as for other matrices.
    """

    def __init__(
        self,
        shape: ModelShape,
        layer_index: int,
        kernel: Kernel,
        query_kernel: int = 6,
        key_kernel: int = 11,
        convolve: str = "both",
        every: int = 1,
        mix: str = "both",
        heads_per_group: int | None = None,
        norm: str = "gate",
    ) -> None:
        super().__init__(shape, layer_index, kernel)
        group = shape.num_heads if heads_per_group is None else heads_per_group
        _check(shape, query_kernel, key_kernel, convolve, every, mix, group, norm)
        self.norm_kind = norm
        is_convolving = layer_index % every == every // 2
        heads = shape.num_heads
        convolved = [is_convolving and there for there in PLACES[convolve]]
        self.num_past_queries = sum(convolved) * (query_kernel - 1)
        kernels = [nn.Parameter(torch.empty(heads, query_kernel, key_kernel)) if there else None for there in convolved]
        mixers = [nn.Parameter(torch.empty(heads // group, group, group)) if there else None for there in PLACES[mix]]
        self.kernel_before, self.kernel_after = kernels
        self.mixer_before, self.mixer_after = mixers
        self.norm = None if norm == "none" else nn.RMSNorm(shape.head_dim, eps=RMS_EPS)
        self.gate = nn.Linear(shape.head_dim, 1) if norm == "gate" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The identity; norm and gate draw their own."""
        with torch.no_grad():
            for kernel in (self.kernel_before, self.kernel_after):
                if kernel is not None:
                    kernel.zero_()[:, -1, kernel.shape[-1] // 2] = 1.0
            for mixer in (self.mixer_before, self.mixer_after):
                if mixer is not None:
                    mixer.copy_(torch.eye(mixer.shape[-1]).expand_as(mixer))

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None:
        """Logits are written out whatever is asked for; who asks for a fused kernel by name is told."""
        if kernel.name in ("auto", "reference"):
            kernel = WrittenOut(self.weigh)
        if kernel.name != WrittenOut.name:
            raise ValueError(f"multi-token attention works on written-out logits, which kernel={kernel.name} never has: use kernel=auto")
        self._kernel = kernel

    def head_layout(self, num_heads: int, num_kv_heads: int, head_dim: int, content_dim: int) -> HeadLayout:
        return HeadLayout(num_heads, num_kv_heads, num_kv_heads, content_dim, head_dim, num_heads * head_dim)

    def token_state(self, x: Tensor, q: Tensor) -> dict[str, Tensor]:
        return {"q": q} if self.num_past_queries else {}

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, prior: LogPrior, mask: BoundMask, scale: float, state: dict[str, Tensor]
    ) -> Tensor:
        out, _ = self.kernel(Problem(q, k, v, prior, mask, scale))
        if self.norm is None:
            return out
        out = self.norm(out.to(self.norm.weight.dtype))
        if self.norm_kind == "depth":
            return out * (1 - lambda_init(self.layer_index))
        return out if self.gate is None else out * torch.sigmoid(self.gate(out))

    def weigh(self, logits: Tensor, allowed: Tensor, sink: Tensor | None) -> Tensor:
        """Logits [B, H, Q, K] and bool [B|1, 1, Q, K] -> weights [B, H, Q, K], 0 where the mask forbids."""
        logits = logits.masked_fill(~allowed, 0.0)
        logits = _mix(_convolve(logits, self.kernel_before), self.mixer_before).masked_fill(~allowed, -torch.inf)
        weights, _ = weights_and_lse(logits, sink)
        if self.kernel_after is not None:
            weights = _convolve(weights, self.kernel_after).masked_fill(~allowed, 0.0)
        return _mix(weights, self.mixer_after)


class TalkingHeads(MultiToken):
    """Heads mixed before and after the softmax (Shazeer et al., arXiv 2003.02436): multi-token attention with kernels of one query and
    one key, all heads in one group, no norm. Starts as plain attention."""

    def __init__(self, shape: ModelShape, layer_index: int, kernel: Kernel) -> None:
        super().__init__(shape, layer_index, kernel, query_kernel=1, key_kernel=1, convolve="none", norm="none")


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """A kernel that has every logit and hands all of them to `weigh`; half precision is computed in float32.

    weigh: (logits [B, H, Q, K], allowed bool [B|1, 1, Q, K], sink [H] or None) -> weights [B, H, Q, K].
    max_logits: objects above this many (B * H * Q * K); 2**28 are 1 GiB in float32, several times that with autograd.
    """

    name: ClassVar[str] = "written-out"
    weigh: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    max_logits: int = 2**28

    def objections(self, problem: Problem) -> tuple[str, ...]:
        found = []
        num_logits = math.prod(problem.q.shape[:3]) * problem.k.shape[2]
        if num_logits > self.max_logits:
            found.append(f"{num_logits} logits written out, the limit is {self.max_logits}: use smaller batches or shorter sequences")
        if problem.mask.mask.segment is not None:
            found.append("kernels over several queries would reach over document borders: use packing=concat")
        if problem.needs_lse:
            found.append("weights after a convolution have no log-sum-exp")
        return tuple(found)

    def describe(self, problem: Problem) -> str:
        return self.name

    def __call__(self, problem: Problem) -> tuple[Tensor, None]:
        if found := self.objections(problem):
            raise ValueError(f"attention over written-out logits cannot do this: {'; '.join(found)}")
        dtype = torch.promote_types(problem.q.dtype, torch.float32)
        with torch.autocast(problem.q.device.type, enabled=False):
            allowed = problem.mask.dense()
            valid = problem.mask.mask.key_valid
            if valid is not None:  # rows of padding are no past of the rows behind them
                allowed = allowed & valid[:, None, -allowed.shape[2] :, None]
            weights = self.weigh(unmasked_logits(problem, dtype), allowed, problem.prior.sink)
            out = weights @ per_query_head(problem.v.to(dtype), weights.shape[1])
        return out.to(problem.q.dtype), None


def _convolve(t: Tensor, kernel: Tensor | None) -> Tensor:
    """[B, H, Q, K] with a kernel [H, c_q, c_k] of its own for each head; outside is 0."""
    if kernel is None:
        return t
    heads, c_q, c_k = kernel.shape
    return F.conv2d(F.pad(t, (c_k // 2, c_k // 2, c_q - 1, 0)), kernel.to(t.dtype)[:, None], groups=heads)


def _mix(t: Tensor, mixer: Tensor | None) -> Tensor:
    """[B, H, Q, K]: heads of a group are replaced by their linear combinations; mixer [H / c, c, c]."""
    if mixer is None:
        return t
    groups = t.unflatten(1, mixer.shape[:2])
    return torch.einsum("nab,znbij->znaij", mixer.to(t.dtype), groups).flatten(1, 2)


def _check(shape: ModelShape, query_kernel: int, key_kernel: int, convolve: str, every: int, mix: str, group: int, norm: str) -> None:
    for name, value, known in (("convolve", convolve, PLACES), ("mix", mix, PLACES), ("norm", norm, NORMS)):
        if value not in known:
            raise ValueError(f"attention.inner_options.{name} = {value!r} is unknown; one of {', '.join(known)}")
    if query_kernel < 1:
        raise ValueError(f"attention.inner_options.query_kernel = {query_kernel} is too small: 1 or more, counted with the query itself")
    if key_kernel < 1 or key_kernel % 2 == 0:
        raise ValueError(f"attention.inner_options.key_kernel = {key_kernel} has no centre: an odd number, published 11")
    if group < 1 or shape.num_heads % group:
        raise ValueError(f"multi-token attention: heads_per_group {group} does not divide num_heads {shape.num_heads}")
    if convolve == "none":
        return
    if every < 1 or every // 2 >= shape.depth:
        raise ValueError(f"multi-token attention: every = {every} leaves no layer of {shape.depth} with a convolution: use every=1")
    if not shape.causal:
        raise ValueError("multi-token attention convolves over queries of the past: it is defined for causal models only")
