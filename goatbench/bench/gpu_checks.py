"""What must hold on a GPU: each kernel against the float64 reference, lanes in the flash backend, the key term at 65,536 tokens.

Every function takes the device, so that the same code runs (tiny) on a CPU.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..attention.kernels.problem import Kernel, Problem
from ..attention.kernels.reference import Reference
from ..attention.kernels.sdpa import Sdpa
from ..attention.mask import Mask
from ..attention.positions import Positions
from ..attention.priors.alibi import Alibi
from ..attention.priors.bucketed import T5
from ..attention.priors.kerple import KerpleLog
from ..attention.priors.sink import SinkScalar
from ..attention.scheme import ModelShape, NoPosition, PositionScheme
from .variants import HEAD_DIM, goat_scheme

NUM_HEADS, NUM_KV_HEADS, BATCH = 4, 2, 2
RAMP = 2.0  # how much larger the values of the last token are than those of the first
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


Make = Callable[[ModelShape], PositionScheme]
# name -> scheme, and whether its lanes are added to the head's 64 columns instead of carved out of them
LANES: dict[str, tuple[Make, bool]] = {
    "plain": (NoPosition, False), "goat": (goat_scheme, False), "goat-append": (goat_scheme, True), "alibi": (Alibi, False),
    "sink": (SinkScalar, False),
}  # fmt: skip
BIASES: dict[str, tuple[Make, bool]] = {"t5": (T5, False), "kerple_log": (KerpleLog, False)}


def scheme_of(name: str, tokens: int, device: torch.device) -> tuple[PositionScheme, int]:
    """The scheme with its parameters a little away from where they start, so that no part is silent; columns of content beside it."""
    make, append = (LANES | BIASES)[name]
    shape = ModelShape(1, True, NUM_HEADS * HEAD_DIM, 1, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, (tokens,))
    scheme = make(shape)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype).abs())
    return scheme.to(device), HEAD_DIM if append else HEAD_DIM - scheme.num_lanes


def problem_of(scheme: PositionScheme, content: int, tokens: int, dtype: torch.dtype, device: torch.device, batch: int = BATCH) -> Problem:
    """q, k, v ~ N(0, 1), causal; the same numbers on every device."""
    generator = torch.Generator().manual_seed(1)
    sizes = ((NUM_HEADS, content), (NUM_KV_HEADS, content), (NUM_KV_HEADS, HEAD_DIM))
    q, k, v = (torch.randn(batch, h, tokens, width, generator=generator).to(device, dtype).requires_grad_() for h, width in sizes)
    positions = Positions.line(tokens, device=device)
    return Problem(q, k, v, scheme.prior(positions, positions), Mask(causal=True).bind(positions, positions), content**-0.5)


def objections(kernel: Kernel, name: str, tokens: int, dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:
    return kernel.objections(problem_of(*scheme_of(name, tokens, device), tokens, dtype, device))


def kernel_errors(kernel: Kernel, name: str, tokens: int, dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """Relative root mean square errors against the dense float64 reference on the same rounded q, k, v: of the output, of the largest
    of dq, dk, dv, and (where there are any) of all gradients of the prior's parameters together, a recency slope's apart.

    The gradient of a slope is a sum over keys of (gradient of the logit) * j: the first factors sum to zero in every row, but not once a
    kernel has rounded them, and what remains is multiplied by j. With values and weights that are noise around zero the sum itself is
    nearly nothing, and its relative error a lottery, in bf16 up to 1. So the values grow with j and the weights have a mean, as where a
    slope has something to learn: on a CPU, at 1,024 tokens, that error is hundredths.
    """
    scheme, content = scheme_of(name, tokens, device)
    half = problem_of(scheme, content, tokens, dtype, device)
    with torch.no_grad():
        half.v.add_(torch.linspace(0, RAMP, tokens, device=device)[:, None])
    out = kernel(half)[0]
    weights = 1 + torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(device)
    inputs, names = (half.q, half.k, half.v), [name for name, p in scheme.named_parameters() if p.requires_grad]
    found = torch.autograd.grad(out, (*inputs, *map(scheme.get_parameter, names)), weights.to(dtype))

    exact = copy.deepcopy(scheme).double()
    wide = [t.detach().double().requires_grad_() for t in inputs]
    prior = exact.prior(half.mask.query_positions, half.mask.key_positions)
    expected = Reference(max_logits=2**31)(Problem(*wide, prior, half.mask, half.scale))[0]
    grads = torch.autograd.grad(expected, (*wide, *map(exact.get_parameter, names)), weights.to(dtype).double())
    errors = {"output": relative_error(out, expected)}
    errors["dq, dk, dv"] = max(relative_error(one, other) for one, other in zip(found[:3], grads[:3], strict=True))
    pairs = dict(zip(names, zip(found[3:], grads[3:], strict=True), strict=True))
    slope, rest = pairs.pop("slope_raw", None), list(pairs.values())
    if slope is not None:
        errors["slope's gradient"] = relative_error(*slope)
    if rest:
        errors["prior's gradient"] = relative_error(*map(_flat, zip(*rest, strict=True)))
    return errors


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference over that of the exact values. ArithmeticError if it is not finite."""
    exact = exact.detach().double()
    return _finite(((found.detach().double() - exact).square().sum() / exact.square().sum()).sqrt().item())


def _finite(error: float) -> float:
    if not math.isfinite(error):
        raise ArithmeticError(f"an error of {error}: the output or a gradient is not finite")
    return error


def _flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([t.double().flatten() for t in tensors])


def flash_serves(name: str, tokens: int, dtype: torch.dtype, device: torch.device) -> str:
    """Forward and backward with every other backend of SDPA forbidden: '' if it runs, else torch's reason."""
    half = problem_of(*scheme_of(name, tokens, device), tokens, dtype, device)
    try:
        with warnings.catch_warnings(record=True) as said, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            warnings.simplefilter("always")
            out = Sdpa()(half)[0]
            grads = torch.autograd.grad(out.float().sum(), (half.q, half.k, half.v))
    except RuntimeError as error:
        reasons = [str(one.message).splitlines()[0] for one in said]  # the error alone says that no kernel is available, whatever the cause
        return "; ".join([str(error).strip().splitlines()[0], *reasons])
    return "" if out.isfinite().all() and all(grad.isfinite().all() for grad in grads) else "output or gradient is not finite"


def backend(name: str, tokens: int, dtype: torch.dtype, device: torch.device) -> str:
    """What torch chooses by itself, for the record."""
    return Sdpa().describe(problem_of(*scheme_of(name, tokens, device), tokens, dtype, device))


def key_term_error(tokens: int, dtype: torch.dtype, device: torch.device) -> float:
    """Largest error of ALiBi's output for the last query of `tokens`, over the largest output: `dtype` against float64.

    The reference has the slopes that `dtype` can hold on the query side, so that what is left is the key side: positions up to `tokens`.
    """
    scheme, content = scheme_of("alibi", tokens, device)
    keys, query = Positions.line(tokens, device=device), Positions.line(1, offset=tokens - 1, device=device)
    generator = torch.Generator().manual_seed(1)
    sizes = ((NUM_HEADS, 1, content), (NUM_KV_HEADS, tokens, content), (NUM_KV_HEADS, tokens, HEAD_DIM))
    q, k, v = (torch.randn(1, *size, generator=generator).to(device, dtype) for size in sizes)
    mask, scale = Mask(causal=True).bind(query, keys), content**-0.5
    with torch.no_grad():
        out = Sdpa()(Problem(q, k, v, scheme.prior(query, keys), mask, scale))[0].double()
        exact = copy.deepcopy(scheme).double()
        exact.slopes = (exact.slopes / scale).to(dtype).double() * scale
        expected = Reference()(Problem(q.double(), k.double(), v.double(), exact.prior(query, keys), mask, scale))[0]
    return _finite(((out - expected).abs().max() / expected.abs().max()).item())
