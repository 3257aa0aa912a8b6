"""Kernels on a real GPU against the float64 reference; skipped where there is none. One command: pytest -m gpu tests/gpu"""

from __future__ import annotations

import pytest
import torch

from goatbench.attention import Mask, ModelShape, Positions
from goatbench.attention.kernels.problem import Problem
from goatbench.attention.kernels.reference import Reference
from goatbench.attention.kernels.select import get_kernel
from goatbench.attention.priors.alibi import Alibi
from goatbench.attention.priors.fourier import Goat

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SHAPE = ModelShape(num_axes=1, causal=True, embed_dim=256, depth=1, num_heads=4, num_kv_heads=2, head_dim=64, train_extent=(1024,))


def problem(scheme, length: int, dtype: torch.dtype) -> Problem:
    torch.manual_seed(0)
    dim = 64 - scheme.num_lanes
    q = torch.randn(2, 4, length, dim, device="cuda", dtype=dtype, requires_grad=True)
    k = torch.randn(2, 2, length, dim, device="cuda", dtype=dtype, requires_grad=True)
    v = torch.randn(2, 2, length, 64, device="cuda", dtype=dtype, requires_grad=True)
    positions = Positions.line(length, device="cuda")
    return Problem(q, k, v, scheme.prior(positions, positions), Mask(causal=True).bind(positions, positions), dim**-0.5)


@pytest.mark.parametrize("name", ["sdpa", "flash", "flex"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [lambda: Goat(SHAPE, 6, 6.2832, 62832.0), lambda: Alibi(SHAPE)], ids=["goat", "alibi"])
def test_kernels_agree_with_float64(name, dtype, make):
    half = problem(make().cuda(), 1024, dtype)
    kernel = get_kernel(name)
    if objections := kernel.objections(half):
        pytest.skip("; ".join(objections))
    out, _ = kernel(half)
    exact = problem(make().cuda().double(), 1024, torch.float64)
    exact = Problem(half.q.double(), half.k.double(), half.v.double(), exact.prior, exact.mask, exact.scale)
    expected, _ = Reference()(exact)
    error = (out.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < 8e-3
    out.square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (half.q, half.k, half.v))


def test_lanes_are_eligible_for_the_flash_backend():
    """Carved lanes leave the head at 64 columns, so an unmodified flash kernel computes the prior."""
    half = problem(Goat(SHAPE, 6, 6.2832, 62832.0).cuda(), 2048, torch.bfloat16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        out, _ = get_kernel("sdpa")(half)
    assert out.isfinite().all() and get_kernel("sdpa").describe(half) in ("sdpa-flash", "sdpa-cudnn")


def test_the_key_term_is_exact_at_64k():
    """The last query of 65,536 in bf16: integer lanes against float64 with the slope that bf16 can hold."""
    length, dtype = 65_536, torch.bfloat16
    scheme = Alibi(SHAPE).cuda()
    keys = Positions.line(length, device="cuda")
    query = Positions.line(1, offset=length - 1, device="cuda")
    torch.manual_seed(0)
    q = torch.randn(1, 4, 1, 62, device="cuda", dtype=dtype)
    k = torch.randn(1, 2, length, 62, device="cuda", dtype=dtype)
    v = torch.randn(1, 2, length, 64, device="cuda", dtype=dtype)
    mask = Mask(causal=True).bind(query, keys)
    out, _ = get_kernel("sdpa")(Problem(q, k, v, scheme.prior(query, keys), mask, 62**-0.5))
    with torch.no_grad():
        exact = Alibi(SHAPE).cuda().double()
        root = 62**0.5
        exact.slopes = ((exact.slopes * root).to(dtype).double() / root).to(torch.float64)
    expected, _ = Reference()(Problem(q.double(), k.double(), v.double(), exact.prior(query, keys), mask, 62**-0.5))
    assert (out.double() - expected).abs().max() < 2e-2 * expected.abs().max()
