"""The recency slope in half precision behind 65,663 tokens, where the high lane is more than bf16 holds; the last rows against float64."""

import pytest
import torch

from goatbench.attention.kernels import Flex, Problem, Reference, Sdpa
from goatbench.attention.kernels.fold import fold, folded_width
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import Mask
from goatbench.attention.packing import packed
from goatbench.attention.positions import Positions
from goatbench.attention.priors.fourier import Goat
from goatbench.attention.priors.recency import recency_prior
from goatbench.attention.scheme import ModelShape

HEADS, WIDTH, SCALE = 2, 8, 0.25
SLOPES = torch.tensor([0.46875, 2.0**-9])  # exact in bf16: one sees a few keys, the other thousands
LIMIT = 65_664  # tokens whose high lane bf16 holds


def last_rows(length: int, dtype: torch.dtype, rows: int, line: bool = True, **options) -> Problem:
    generator = torch.Generator().manual_seed(0)
    make = lambda n, width: torch.randn(1, HEADS, n, width, generator=generator).bfloat16().to(dtype)
    keys = Positions.line(length) if line else Positions.scattered(torch.arange(length)[None])
    queries = keys.latest(rows)
    prior = recency_prior(SLOPES, queries, keys) + LogPrior(sink=torch.tensor([0.5, 3.0]))
    q, k, v = make(rows, WIDTH), make(length, WIDTH), make(length, WIDTH + 2)
    return Problem(q, k, v, prior, Mask(causal=True).bind(queries, keys), SCALE, **options)


def error(found: torch.Tensor, true: torch.Tensor) -> float:
    return float((found.double() - true).norm() / true.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [65_900, 131_000, 262_144])
def test_the_slope_is_exact(length, dtype):
    """Without the lane that carries the rest: 0.45 and more in bf16. Out (with the sink's share) and lse of the last rows."""
    kernels = (Sdpa(), Flex()) if length < 100_000 else (Sdpa(),)
    rows = 8 if Flex() in kernels else 16
    true, true_lse = Reference()(last_rows(length, torch.float64, rows, needs_lse=True))
    for kernel in kernels:
        out, lse = kernel(last_rows(length, dtype, rows, needs_lse=True))
        assert error(out, true) < 0.008
        torch.testing.assert_close(lse.double(), true_lse, rtol=0, atol=0.03)  # float32 holds 131,072 nats to 1/128


def test_float16_needs_the_lane_later():
    length = 530_000
    true, _ = Reference()(last_rows(length, torch.float64, 4))
    assert error(Sdpa()(last_rows(length, torch.float16, 4))[0], true) < 0.012


def test_goat_behind_the_limit():
    """The whole prior: lanes before and behind the recency's."""
    torch.manual_seed(0)
    scheme = Goat(ModelShape(1, True, 16, 1, HEADS, HEADS, 32, (1024,)), num_frequencies=2, min_period=6.0)
    with torch.no_grad():
        scheme.even.zero_()
        scheme.slope_raw.copy_(torch.log(torch.expm1(SLOPES)))
        queries, keys = Positions.line(16, 69_984), Positions.line(70_000)
        prior = scheme.prior(queries, keys)
        run = lambda kernel, dtype: kernel(Problem(*(t.to(dtype) for t in content), prior, mask, SCALE))[0]
        content = [torch.randn(1, HEADS, n, WIDTH).bfloat16() for n in (16, 70_000, 70_000)]
        mask = Mask(causal=True).bind(queries, keys)
        assert error(run(Sdpa(), torch.bfloat16), run(Reference(), torch.float64)) < 0.008


@pytest.mark.parametrize("line", [True, False])
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float32, None), (torch.float64, None), (torch.float16, 2048 * 256 + 128), (torch.bfloat16, LIMIT)]
)
def test_nothing_is_added_where_the_lanes_hold_it(dtype, limit, line):
    """Columns of float32 and of short half-precision problems: content and two lanes, the same bits as ever."""
    for length in (LIMIT, 530_000) if limit is None else (limit,):
        problem = last_rows(length, dtype, 1, line)
        assert torch.equal(fold(problem).k[..., WIDTH : WIDTH + 2], problem.prior.k_lanes.to(dtype).expand(-1, HEADS, -1, -1))
        assert fold(problem).k.shape[-1] == folded_width(problem) == WIDTH + 2
    if limit is not None:
        problem = last_rows(limit + 1, dtype, 1, line)
        assert fold(problem).k.shape[-1] == folded_width(problem) == WIDTH + 8


def test_the_gradient_of_the_slope_goes_through_both_columns():
    lanes = torch.zeros(1, 1, 2, 2, requires_grad=True)
    keys = torch.tensor([[1.0, 5.0], [1001.0, 3.0], [70_001.0, 0.0]])[None, None]
    positions = Positions.line(3)
    prior = LogPrior(lanes, keys, integers=((0, 70_001),))
    q, k = torch.zeros(1, 1, 2, 4, dtype=torch.bfloat16), torch.zeros(1, 1, 3, 4, dtype=torch.bfloat16)
    folded = fold(Problem(q, k, k, prior, Mask().bind(positions.latest(2), positions), 1.0))
    (folded.q.float() @ folded.k.float().mT).sum().backward()
    torch.testing.assert_close(lanes.grad[0, 0, 0], torch.tensor([71_003.0, 8.0]), rtol=2**-8, atol=0)


def test_a_sum_knows_where_its_integers_are():
    positions = Positions.line(70_000)
    waves = LogPrior(torch.zeros(1, HEADS, 70_000, 3), torch.zeros(1, 1, 70_000, 3))
    assert (waves + recency_prior(SLOPES, positions, positions)).integers == ((3, 273),)
    assert (recency_prior(SLOPES, positions, positions) + waves).integers == ((0, 273),)


def test_reach_of_positions():
    """Known from layouts, looked up otherwise; packed documents are no longer than their row."""
    scattered = Positions.scattered(torch.tensor([[-300, 5, 70_000], [0, 1, 2]]))
    assert scattered.reach == 70_000 and Positions.line(5, -9).reach == 9 and Positions.line(5, 9).reach == 13
    assert Positions.grid(3, 50, 1).reach == 2
    positions, _ = packed(torch.zeros(1, 30, dtype=torch.bool))
    assert positions.reach == 29 and not positions.known
