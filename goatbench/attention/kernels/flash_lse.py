"""Fused attention that returns a log-sum-exp with gradient, and a sink folded into it.

The flash kernels return the lse without gradient: `out * sigmoid(lse - s)` under plain autograd has the right value and
wrong dq and dk, silently. Here the backward is written down instead. With P' the probabilities including the sink,

    lse' = logaddexp(lse, s)       out' = out * exp(lse - lse')       P' = exp(logits - lse')
    dlogits = P' * (g . v - g . out' + g_lse)                         ds = p_s * (g_lse - g . out'),  p_s = exp(s - lse')

so dq, dk, dv are the kernel's own backward, called with (out', lse'). The term g_lse rides along in one more value column that
is 0 in v, g_lse in g and -1 in out': it enters only the rowsum g . out' that the kernel subtracts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .reference import per_query_head

aten = torch.ops.aten


def flash_with_lse(
    q: Tensor, k: Tensor, v: Tensor, sink_rows: Tensor | None, mask: Tensor | None, empty: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """out [B, H, Q, W] and lse [B, H, Q] (float32, float64 for float64 inputs), both differentiable.

    q: [B, H, Q, W]; k, v: [B, G, K, W]; sink_rows: logit of the zero-value key per row [B|1, H, Q]; mask: float, -inf where
    forbidden, without gradient; empty: [B|1, 1|H, Q] bool, rows without any allowed key (known wherever there is a mask).
    """
    if q.is_cuda:  # the kernel wants equal head counts and widths of a multiple of 8
        k, v = per_query_head(k, q.shape[1]), per_query_head(v, q.shape[1])
        width = q.shape[-1]
        q, k, v = (_pad(t, -width % 8) for t in (q, k, v))
        out, lse = _FlashWithLse.apply(q, k, v, sink_rows, mask, empty, causal, scale)
        return out[..., :width], lse
    return _FlashWithLse.apply(q, k, v, sink_rows, mask, empty, causal, scale)


class _FlashWithLse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sink_rows, mask, empty, causal, scale):
        if q.is_cuda:
            assert mask is None
            out, lse, *state, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
            num_sizes = {i: s for i, s in enumerate(state) if not isinstance(s, Tensor)}
            state = [s if isinstance(s, Tensor) else None for s in state]
        else:
            out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
            state, num_sizes = [], {}
        if empty is not None:
            lse = lse.masked_fill(empty, -torch.inf)  # the CPU kernel reports 0
        p_sink = None
        if sink_rows is not None:
            joined = torch.logaddexp(lse, sink_rows.to(lse.dtype))
            out = (out * torch.exp(lse - joined)[..., None]).to(out.dtype)
            p_sink = torch.exp(sink_rows - joined)
            lse = joined
        ctx.causal, ctx.scale, ctx.num_sizes = causal, scale, num_sizes
        ctx.sink_shape = None if sink_rows is None else sink_rows.shape
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, out, lse, p_sink, mask, empty, *state)
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        q, k, v, out, lse, p_sink, mask, empty, *state = ctx.saved_tensors
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        grad_sink = None
        if p_sink is not None and ctx.needs_input_grad[3]:
            row = -(grad_out.to(lse.dtype) * out.to(lse.dtype)).sum(-1)
            grad_sink = (p_sink * (row if grad_lse is None else row + grad_lse)).sum_to_size(ctx.sink_shape)
        width = q.shape[-1]
        if grad_lse is not None:
            # Empty rows: their lse is a constant -inf, so nothing flows back (and the finite lse below keeps P at 0).
            grad_lse = grad_lse if empty is None or p_sink is not None else grad_lse.masked_fill(empty, 0.0)
            q, k, v = (_pad(t, 8) for t in (q, k, v))
            grad_out = torch.cat((grad_out, _column(grad_lse.to(grad_out.dtype))), dim=-1)
            out = torch.cat((out, _column(torch.full_like(lse, -1.0, dtype=out.dtype))), dim=-1)
        if empty is not None and p_sink is None:
            lse = lse.masked_fill(empty, 0.0)  # P = exp(-inf - 0) = 0; with -inf it would be NaN
        grads = _flash_backward(ctx, grad_out, q, k, v, out, lse, mask, state)
        if grad_lse is not None:
            grads = tuple(t[..., :width] for t in grads)
        return *grads, grad_sink, None, None, None, None


def _flash_backward(ctx, grad_out, q, k, v, out, lse, mask, state):
    if not q.is_cuda:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, q, k, v, out, lse, 0.0, ctx.causal, attn_mask=mask, scale=ctx.scale
        )
    state = [ctx.num_sizes.get(i, s) for i, s in enumerate(state)]
    cum_q, cum_k, max_q, max_k, seed, offset = state
    return aten._scaled_dot_product_flash_attention_backward(
        grad_out, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, ctx.causal, seed, offset, scale=ctx.scale
    )


def _pad(t: Tensor, columns: int) -> Tensor:
    return F.pad(t, (0, columns)) if columns else t


def _column(t: Tensor) -> Tensor:
    """[B, H, Q] -> [B, H, Q, 8] with t in the first column."""
    return F.pad(t[..., None], (0, 7))
