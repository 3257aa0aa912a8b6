"""torch's scaled_dot_product_attention: the path of every prior that is lanes, and with a float mask of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from .flash_lse import flash_with_lse
from .fold import HALF, Folded, compute_dtype, exact_columns, fold, folded_width, row_offset
from .problem import Problem

MAX_CUDA_WIDTH = 248  # the flash kernel serves 256, of which the gradient of the lse takes 8
_BACKENDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}


@dataclass(frozen=True, slots=True)
class Sdpa:
    """Fused attention by torch; the prior's lanes and key term are columns of q and k (`fold`).

    full and square causal layouts take no mask; other masks are written out as [B|1, 1, Q, K], biases as [B|1, H, Q, K].
    max_mask_elements: objects above this many mask elements; with biases, above this many logits (B * H * Q * K), as the
    backend for a learned bias writes them out.
    """

    name: ClassVar[str] = "sdpa"
    max_mask_elements: int = 2**28

    def objections(self, problem: Problem) -> tuple[str, ...]:
        found = []
        batch, num_heads, num_queries, _ = problem.q.shape
        num_keys = problem.k.shape[2]
        if problem.prior.biases:
            size, what = batch * num_heads * num_queries * num_keys, "logits with an elementwise bias written out"
        elif _needs_dense_mask(problem):
            size, what = _mask_batch(problem) * num_queries * num_keys, "mask elements written out"
        else:
            size, what = 0, ""
        if size > self.max_mask_elements:
            found.append(f"{size} {what}, the limit is {self.max_mask_elements} (Sdpa(max_mask_elements=...) raises it)")
        if problem.needs_lse and _biases_require_grad(problem):
            found.append("no log-sum-exp with a learned elementwise bias: the fused backward gives the bias no gradient")
        if problem.q.is_cuda and _needs_flash_lse(problem):
            if problem.prior.biases or _needs_dense_mask(problem):
                found.append("on CUDA the log-sum-exp comes from the flash kernel, which takes no mask and no bias")
            if compute_dtype(problem.q) not in HALF:
                found.append(f"on CUDA the log-sum-exp comes from the flash kernel: float16 and bfloat16 only, not {problem.q.dtype}")
            if folded_width(problem) > MAX_CUDA_WIDTH:
                found.append(f"head width {folded_width(problem)} with lanes; with a log-sum-exp on CUDA at most {MAX_CUDA_WIDTH}")
        return tuple(found)

    def describe(self, problem: Problem) -> str:
        """'sdpa-flash', 'sdpa-math', ...: what torch would choose for tensors of the same shapes, without computing."""
        if _needs_flash_lse(problem):
            return "sdpa-flash"
        with torch.no_grad():
            folded = fold(problem)
        mask = None
        if problem.prior.biases or _needs_dense_mask(problem):
            mask = folded.q.new_empty(1, 1, problem.q.shape[2], problem.k.shape[2])
            mask.requires_grad_(_biases_require_grad(problem) or (_sink_as_key(problem) and _sink_requires_grad(problem)))
        q = folded.q.requires_grad_(torch.is_grad_enabled()) if folded.q is not problem.q else folded.q
        causal = mask is None and problem.mask.is_square_causal
        grouped = problem.q.shape[1] != problem.k.shape[1]
        choice = torch._fused_sdp_choice(q, folded.k, folded.v, mask, 0.0, causal, scale=problem.scale, enable_gqa=grouped)
        return f"sdpa-{_BACKENDS[int(choice)]}"

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        folded = fold(problem)
        if _needs_flash_lse(problem):
            out, lse = _flash(problem, folded)
        else:
            out, lse = _plain(problem, folded), None
        if folded.value_dim != out.shape[-1]:
            out = out[..., : folded.value_dim]
        return out, lse


def _plain(problem: Problem, folded: Folded) -> Tensor:
    q, k, v = folded.q, folded.k, folded.v
    grouped = q.shape[1] != k.shape[1]
    if problem.prior.biases:
        mask = _float_mask(problem, q.dtype)
        if _sink_as_key(problem):
            q, k, v, mask = _append_sink(problem, q, k, v, mask)
    else:
        mask = problem.mask.dense() if _needs_dense_mask(problem) else None
    causal = mask is None and problem.mask.is_square_causal
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=problem.scale, enable_gqa=grouped)


def _flash(problem: Problem, folded: Folded) -> tuple[Tensor, Tensor | None]:
    """Out and lse from the flash kernel. Row terms are no columns: the sink is lowered by them and the lse raised, in float32."""
    offset, sink = row_offset(problem), problem.prior.sink
    sink_rows = None
    if sink is not None:
        sink_rows = sink.to(torch.promote_types(problem.q.dtype, torch.float32))[None, :, None].expand(1, -1, problem.q.shape[2])
        sink_rows = sink_rows if offset is None else sink_rows - offset
    mask = empty = None
    if problem.prior.biases or _needs_dense_mask(problem):
        mask = _float_mask(problem, folded.q.dtype)
        empty = (mask == -torch.inf).all(dim=-1)
    causal = mask is None and problem.mask.is_square_causal
    out, lse = flash_with_lse(folded.q, folded.k, folded.v, sink_rows, mask, empty, causal, problem.scale)
    if not problem.needs_lse:
        return out, None
    return out, lse if offset is None else lse + offset


def _float_mask(problem: Problem, dtype: torch.dtype) -> Tensor:
    """Biases and mask as one tensor to add: [B|1, 1|H, Q, K], -inf where forbidden."""
    allowed = problem.mask.dense()
    batch, num_heads, num_queries, _ = problem.q.shape
    if not problem.prior.biases:
        return torch.zeros_like(allowed, dtype=dtype).masked_fill(~allowed, -torch.inf)
    accumulate = torch.promote_types(dtype, torch.float32)
    only_biases = type(problem.prior)(biases=problem.prior.biases)
    bias = only_biases.dense(num_heads, num_queries, problem.k.shape[2], dtype=accumulate, device=problem.q.device, batch=batch)
    return bias.masked_fill(~allowed, -torch.inf).to(dtype)


def _append_sink(problem: Problem, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One more key, of value zero, whose logit is the sink's lowered by the row terms: a column of the mask. In half precision row
    terms do not survive that (slope * i is unbounded), so there they are columns of q and k, which that key alone does not have at 0."""
    rows, offset = problem.prior.sink[None, :, None], row_offset(problem)
    batch, heads, num_queries, width = q.shape
    if offset is not None:
        rows = rows - offset
    if offset is None or q.dtype not in HALF:
        k, v, column = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), rows[..., None].to(mask.dtype)
    else:
        columns, factor = exact_columns(rows / 64, problem.scale, q.dtype)  # [B|1, H, Q, 3]; a 64th: float16 ends at 65,504
        added = columns.shape[-1] + -(width + columns.shape[-1]) % 8
        last = F.pad(k.new_full((columns.shape[-1],), 64 * factor), (width, added - columns.shape[-1]))
        q = torch.cat((q, F.pad(columns, (0, added - columns.shape[-1])).expand(batch, -1, -1, -1)), dim=-1)
        k = torch.cat((F.pad(k, (0, added)), last.expand(*k.shape[:2], 1, -1)), dim=2)
        v, column = F.pad(v, (0, added, 0, 1)), mask.new_zeros(1, 1, 1, 1)
    column = column.expand(mask.shape[0], heads, num_queries, 1)
    return q, k, v, torch.cat((mask.expand(mask.shape[0], heads, -1, -1), column), dim=-1)


def _needs_dense_mask(problem: Problem) -> bool:
    return not (problem.mask.is_full or problem.mask.is_square_causal)


def _needs_flash_lse(problem: Problem) -> bool:
    return problem.needs_lse or (problem.prior.sink is not None and not _sink_as_key(problem))


def _sink_as_key(problem: Problem) -> bool:
    """Where the flash kernel takes no bias (CUDA) or gives it no gradient, the sink is a key of value zero (`_append_sink`)."""
    prior = problem.prior
    return prior.sink is not None and bool(prior.biases) and not problem.needs_lse and (problem.q.is_cuda or _biases_require_grad(problem))


def _sink_requires_grad(problem: Problem) -> bool:
    return torch.is_grad_enabled() and problem.prior.sink.requires_grad


def _biases_require_grad(problem: Problem) -> bool:
    """Whether a gradient is asked of a bias: found by evaluating it at one element."""
    if not problem.prior.biases or not torch.is_grad_enabled():
        return False
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=problem.q.device)
    return any(bias(zero, zero, zero, zero).requires_grad for bias in problem.prior.biases)


def _mask_batch(problem: Problem) -> int:
    mask = problem.mask
    sizes = [mask.query_positions.order.shape[0], mask.key_positions.order.shape[0]]
    sizes += [t.shape[0] for t in (mask.mask.key_valid, mask.mask.segment) if t is not None]
    return max(sizes)
