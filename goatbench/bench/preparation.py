"""What a position mechanism adds between the projections and the fused kernel, alone: forward and backward.

The layer's own code runs with its projections replaced by given tensors and its kernel by one that stops there, so nothing
but the preparation is timed. Its share of the time of scaled_dot_product_attention on the same tensors is the clearest guard:
projections and kernel, which are most of a layer, cannot hide a slow preparation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.kernels.fold import fold
from ..attention.kernels.problem import Problem
from ..attention.positions import Positions
from .variants import EMBED_DIM, HEAD_DIM, Layer, PublishedLayer, build

Inputs = tuple[Tensor, Tensor, Tensor]


class _Reached(Exception):  # noqa: N818  (a way out, not an error)
    """The preparation is over; carries q, k, v and the scale that the fused kernel would get."""

    def __init__(self, inputs: Inputs, scale: float) -> None:
        self.inputs, self.scale = inputs, scale


class _Given(nn.Module):
    """Stands for a projection: returns what it would have returned."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return self.value


class _StopAtKernel:
    """A kernel that folds the prior, as the fused kernels do, and stops."""

    name: ClassVar[str] = "stop"

    def objections(self, problem: Problem) -> tuple[str, ...]:
        return ()

    def describe(self, problem: Problem) -> str:
        return self.name

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        folded = fold(problem)
        raise _Reached((folded.q, folded.k, folded.v), problem.scale)


def prepare(name: str, batch: int, tokens: int) -> tuple[Callable[[], _Reached], list[Tensor]]:
    """(run, leaves): run() does the forward part, leaves are the projections' outputs and the parameters of the prior."""
    module = build(name, tokens)
    x = torch.randn(batch, tokens, EMBED_DIM, generator=torch.Generator().manual_seed(1))
    projected: list[Tensor] = []

    def given(projection: nn.Module, x: Tensor) -> _Given:
        with torch.no_grad():
            value = projection(x)
        projected.append(value.requires_grad_())
        return _Given(value)

    attention = module.attention
    if isinstance(module, PublishedLayer):
        attention.in_proj = given(attention.in_proj, x.transpose(0, 1))
        prior = [p for p_name, p in attention.named_parameters() if not p_name.startswith("out_proj.")]
        context = _published_stops_at_kernel
    else:
        assert isinstance(module, Layer)
        for projection in ("q_proj", "k_proj", "v_proj"):
            setattr(attention, projection, given(getattr(attention, projection), x))
        attention.kernel = _StopAtKernel()
        prior = list(attention.scheme.parameters())
        context = _nothing

    def run() -> _Reached:
        with context():
            try:
                module(x, Positions.line(tokens))
            except _Reached as reached:
                return reached.with_traceback(None)  # a traceback keeps the frames, and they the tensors, alive
        raise AssertionError("the kernel was never reached")

    return run, [*projected, *prior]


def preparation_step(name: str, batch: int, tokens: int) -> Callable[[], None]:
    """Forward and backward of the preparation; the gradients that enter are those that the fused kernel really hands back."""
    run, leaves = prepare(name, batch, tokens)
    reached = run()
    kernel_inputs = [t.detach().requires_grad_() for t in reached.inputs]
    out = F.scaled_dot_product_attention(*kernel_inputs, is_causal=True, scale=reached.scale)
    grads = torch.autograd.grad(out, kernel_inputs, _out_grad(out))

    def step() -> None:
        torch.autograd.grad(run().inputs, leaves, grads, allow_unused=True)

    return step


def kernel_step(name: str, batch: int, tokens: int) -> Callable[[], None]:
    """Forward and backward of scaled_dot_product_attention alone, on the tensors that variant hands it."""
    reached = prepare(name, batch, tokens)[0]()
    inputs = [t.detach().requires_grad_() for t in reached.inputs]
    assert inputs[0].shape[-1] == HEAD_DIM
    grad = _out_grad(inputs[2])

    def step() -> None:
        out = F.scaled_dot_product_attention(*inputs, is_causal=True, scale=reached.scale)
        torch.autograd.grad(out, inputs, grad)

    return step


def _out_grad(out: Tensor) -> Tensor:
    """A gradient of the output [B, H, K, V] in the memory layout the output projection gives it: [B, K, H, V]."""
    batch, heads, tokens, width = out.shape
    return torch.randn(batch, tokens, heads, width, generator=torch.Generator().manual_seed(2)).transpose(1, 2)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _published_stops_at_kernel() -> Iterator[None]:
    """Inside, the goat-attention package sees torch.nn.functional with its fused attention replaced; nobody else does."""
    import goat.attention as published

    functional = published.F
    published.F = _Functional(functional)
    try:
        yield
    finally:
        published.F = functional


class _Functional:
    """torch.nn.functional but for scaled_dot_product_attention, which stops."""

    def __init__(self, functional) -> None:
        self._functional = functional

    def __getattr__(self, name: str):
        return getattr(self._functional, name)

    def scaled_dot_product_attention(self, q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
        raise _Reached((q, k, v), q.shape[-1] ** -0.5)
