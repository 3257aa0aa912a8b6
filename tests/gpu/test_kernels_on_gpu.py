"""Kernels in half precision against the float64 reference, with tolerances of their own beside those of `goatbench bench gpu`."""

from __future__ import annotations

import copy

import pytest
import torch

from goatbench.attention import Mask, ModelShape, Positions
from goatbench.attention.kernels.problem import Problem
from goatbench.attention.kernels.reference import Reference
from goatbench.attention.kernels.select import get_kernel
from goatbench.attention.priors.alibi import Alibi
from goatbench.attention.priors.fourier import Goat

SHAPE = ModelShape(num_axes=1, causal=True, embed_dim=256, depth=1, num_heads=4, num_kv_heads=2, head_dim=64, train_extent=(1024,))
LENGTH = {"cpu": 256, "cuda": 1024}


def goat() -> Goat:
    return Goat(SHAPE, 6, 6.2832, 62832.0)


def problem(scheme, length: int, dtype: torch.dtype, device: torch.device) -> Problem:
    torch.manual_seed(0)
    dim = 64 - scheme.num_lanes
    q = torch.randn(2, 4, length, dim, device=device, dtype=dtype, requires_grad=True)
    k = torch.randn(2, 2, length, dim, device=device, dtype=dtype, requires_grad=True)
    v = torch.randn(2, 2, length, 64, device=device, dtype=dtype, requires_grad=True)
    positions = Positions.line(length, device=device)
    return Problem(q, k, v, scheme.prior(positions, positions), Mask(causal=True).bind(positions, positions), dim**-0.5)


@pytest.mark.parametrize("name", ["sdpa", "flash", "flex"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [goat, lambda: Alibi(SHAPE)], ids=["goat", "alibi"])
def test_kernels_agree_with_float64(name, dtype, make, device):
    scheme = make().to(device)
    half = problem(scheme, LENGTH[device.type], dtype, device)
    kernel = get_kernel(name)
    if objections := kernel.objections(half):
        assert name != "sdpa", objections
        pytest.skip("; ".join(objections))
    out, _ = kernel(half)
    exact = problem(copy.deepcopy(scheme).double(), LENGTH[device.type], torch.float64, device)
    exact = Problem(half.q.double(), half.k.double(), half.v.double(), exact.prior, exact.mask, exact.scale)
    expected, _ = Reference()(exact)
    error = (out.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < 8e-3
    out.square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (half.q, half.k, half.v))


def test_lanes_are_eligible_for_the_flash_backend(device):
    """Carved lanes leave the head at 64 columns, so an unmodified flash kernel computes the prior."""
    half = problem(goat().to(device), 2 * LENGTH[device.type], torch.bfloat16, device)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        out, _ = get_kernel("sdpa")(half)
    assert out.isfinite().all() and get_kernel("sdpa").describe(half) in ("sdpa-flash", "sdpa-cudnn")


def test_the_key_term_is_exact_at_64k(device):
    """The last query of 65,536 in bf16: integer lanes against float64 with the slope that bf16 can hold."""
    length, dtype = 65_536, torch.bfloat16
    scheme = Alibi(SHAPE).to(device)
    keys = Positions.line(length, device=device)
    query = Positions.line(1, offset=length - 1, device=device)
    torch.manual_seed(0)
    q = torch.randn(1, 4, 1, 62, device=device, dtype=dtype)
    k = torch.randn(1, 2, length, 62, device=device, dtype=dtype)
    v = torch.randn(1, 2, length, 64, device=device, dtype=dtype)
    mask = Mask(causal=True).bind(query, keys)
    out, _ = get_kernel("sdpa")(Problem(q, k, v, scheme.prior(query, keys), mask, 62**-0.5))
    with torch.no_grad():
        exact = Alibi(SHAPE).to(device).double()
        root = 62**0.5
        exact.slopes = ((exact.slopes * root).to(dtype).double() / root).to(torch.float64)
    expected, _ = Reference()(Problem(q.double(), k.double(), v.double(), exact.prior(query, keys), mask, 62**-0.5))
    assert (out.double() - expected).abs().max() < 2e-2 * expected.abs().max()
