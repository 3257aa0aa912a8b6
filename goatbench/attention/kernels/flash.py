"""The flash-attn package (an extra; CUDA only): plain and square causal attention in half precision."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .fold import compute_dtype, fold, folded_width
from .problem import Problem

MAX_WIDTH = 256  # FlashAttention 2 serves head widths up to 256


@dataclass(frozen=True, slots=True)
class Flash:
    """FlashAttention by its own package; lanes and key term are columns of q and k."""

    name: ClassVar[str] = "flash"

    def objections(self, problem: Problem) -> tuple[str, ...]:
        found = []
        if importlib.util.find_spec("flash_attn") is None:
            found.append("the package flash-attn is not installed (pip install 'goatbench[flash]')")
        if not problem.q.is_cuda:
            found.append(f"runs on CUDA only, not on {problem.q.device.type}")
        if compute_dtype(problem.q) not in (torch.float16, torch.bfloat16):
            found.append(f"float16 and bfloat16 only, not {problem.q.dtype}")
        if problem.prior.biases:
            found.append("no elementwise biases")
        if not (problem.mask.is_full or problem.mask.is_square_causal):
            found.append("full and square causal attention only: no padding, documents, window or cached causality")
        if problem.prior.sink is not None or problem.needs_lse:
            found.append("its log-sum-exp carries no gradient, so neither sink nor lse")
        width = folded_width(problem)
        if width > MAX_WIDTH:
            found.append(f"head width {width} with lanes, at most {MAX_WIDTH}")
        return tuple(found)

    def describe(self, problem: Problem) -> str:
        return self.name

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        from flash_attn import flash_attn_func

        folded = fold(problem)
        q, k, v = (t.transpose(1, 2) for t in (folded.q, folded.k, folded.v))  # the package wants [B, tokens, heads, width]
        out = flash_attn_func(q, k, v, softmax_scale=problem.scale, causal=problem.mask.is_square_causal)
        return out.transpose(1, 2)[..., : folded.value_dim], None
