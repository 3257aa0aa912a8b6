"""Two properties beside speed: the layer compiles as one graph, and its prior survives bf16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..attention.kernels.problem import Problem
from ..attention.kernels.reference import Reference
from ..attention.kernels.sdpa import Sdpa
from ..attention.mask import Mask
from ..attention.positions import Positions
from ..attention.priors.recency import inverse_softplus
from ..attention.scheme import PositionScheme
from .variants import EMBED_DIM, HEAD_DIM, NUM_HEADS, build, goat_reference_scheme, goat_scheme, model_shape

LENGTHS = (64, 100, 128, 200, 256)
SLOPE = 0.47  # of the steepest ALiBi heads
ROWS = 256  # query rows of the dense reference at a time


def compiled_graphs(function: Callable[[Tensor], Tensor], lengths: tuple[int, ...], fullgraph: bool) -> int:
    """Graphs that torch.compile (aot_eager: traced forward and backward, no code generation) makes for these lengths."""
    import torch._dynamo
    from torch._dynamo.backends.registry import lookup_backend

    aot_eager = lookup_backend("aot_eager")
    graphs = 0

    def counting(graph, inputs):
        nonlocal graphs
        graphs += 1
        return aot_eager(graph, inputs)

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=fullgraph, backend=counting)
    for length in lengths:
        compiled(torch.randn(2, length, EMBED_DIM, requires_grad=True)).sum().backward()
    return graphs


def compile_check(name: str, lengths: tuple[int, ...] = LENGTHS) -> dict[str, bool | int | str | None]:
    """fullgraph: compiles without a break; graphs: how many over the lengths (of the broken-up form where there is a break)."""
    module = build(name, max(lengths))
    function = _at_any_length(module)
    try:
        return {"fullgraph": True, "graphs": compiled_graphs(function, lengths, fullgraph=True), "reason": None}
    except Exception as error:  # torch raises many kinds; the first line says which construct it could not trace
        reason = str(error).strip().splitlines()[0]
    return {"fullgraph": False, "graphs": compiled_graphs(function, lengths, fullgraph=False), "reason": reason}


def _at_any_length(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: module(x, Positions.line(x.shape[1]))


def bf16_error(name: str, tokens: int = 4096, slope: float = SLOPE) -> float:
    """Relative error (root mean square) of the attention output in bf16 against float64, in the layer of that name.

    q, k, v ~ N(0, 1), rounded to bf16 for both, so that only arithmetic and the rounding of the prior differ; every head has the
    recency slope `slope`, the rest of the prior as initialised.
    """
    torch.manual_seed(0)
    scheme = SCHEMES[name](model_shape(tokens))
    raw = scheme.slope_raw if name == "goat" else scheme.recency_slope_raw
    with torch.no_grad():
        raw.copy_(inverse_softplus(torch.full_like(raw, slope, dtype=torch.float64)))
    content = HEAD_DIM - scheme.num_lanes
    q, k, v = (torch.randn(1, NUM_HEADS, tokens, width).bfloat16() for width in (content, content, HEAD_DIM))
    with torch.no_grad():
        out = _attend(Sdpa(), scheme, q, k, v, Positions.line(tokens), Positions.line(tokens)).double()
        scheme = scheme.double()
        error = energy = 0.0
        for first in range(0, tokens, ROWS):
            rows = slice(first, min(first + ROWS, tokens))
            queries = Positions.line(rows.stop - rows.start, offset=rows.start)
            exact = _attend(Reference(), scheme, q[:, :, rows].double(), k.double(), v.double(), queries, Positions.line(tokens))
            error += (out[:, :, rows] - exact).square().sum().item()
            energy += exact.square().sum().item()
    return (error / energy) ** 0.5


SCHEMES: dict[str, Callable[..., PositionScheme]] = {"goat": goat_scheme, "goat_reference": goat_reference_scheme}


def _attend(kernel, scheme: PositionScheme, q: Tensor, k: Tensor, v: Tensor, queries: Positions, keys: Positions) -> Tensor:
    if queries.layout == keys.layout:
        queries = keys
    prior = scheme.prior(queries, keys)
    return kernel(Problem(q, k, v, prior, Mask(causal=True).bind(queries, keys), q.shape[-1] ** -0.5))[0]
