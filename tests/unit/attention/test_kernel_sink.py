"""The null sink: a zero-value key in the denominator. Oracle: plain SDPA with that key really appended, in float64."""

import math

import pytest
import torch
from torch.nn import functional as F

from goatbench.attention.kernels import Problem, Reference, Sdpa
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.recency import recency_prior

H, N, D = 3, 37, 8
SCALE = D**-0.5


def leaves(seed=0):
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, H, N, D, generator=g, dtype=torch.float64).requires_grad_() for _ in range(3))
    sink = torch.randn(H, generator=g, dtype=torch.float64).requires_grad_()
    return q, k, v, sink


def appended_key(q, k, v, sink_rows, prior):
    """Softmax over N keys and one of value zero whose logit is sink_rows [H, N]; the mask carries prior and causality."""
    causal = torch.ones(N, N, dtype=torch.bool).tril()
    mask = torch.cat((prior.masked_fill(~causal, -torch.inf), sink_rows[..., None]), dim=-1)
    zero = torch.zeros(2, H, 1, D, dtype=q.dtype)
    k, v = torch.cat((k, zero), dim=2), torch.cat((v, zero), dim=2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None].expand(2, -1, -1, -1), scale=SCALE)


def problem(q, k, v, prior, needs_lse=False):
    line = Positions.line(N)
    return Problem(q, k, v, prior, Mask(causal=True).bind(line, line), SCALE, needs_lse)


def gradients(out, tensors, seed=5):
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=out.dtype)
    return torch.autograd.grad(out, tensors, weight)


@pytest.mark.parametrize("kernel", [Reference(), Sdpa()])
def test_sink_equals_an_appended_zero_key(kernel):
    """Reports transformers 41026 and miles 1500: a sink put into score_mod is wrong, and fused backends dropped it in silence."""
    q, k, v, sink = leaves()
    expected = appended_key(q, k, v, sink[:, None].expand(-1, N), torch.zeros(H, N, N, dtype=torch.float64))
    actual = kernel(problem(q, k, v, LogPrior(sink=sink)))[0]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    for a, b in zip(gradients(actual, (q, k, v, sink)), gradients(expected, (q, k, v, sink)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_a_detached_lse_gives_the_right_output_and_wrong_gradients():
    """The trap: `out * sigmoid(lse - s)` on the flash kernel's own lse, which carries no gradient. Value right, dq and dk wrong."""
    q, k, v, sink = leaves()
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=SCALE)
    assert not lse.requires_grad
    naive = out * torch.sigmoid(lse - sink[:, None])[..., None]
    ours = Sdpa()(problem(q, k, v, LogPrior(sink=sink)))[0]
    torch.testing.assert_close(ours, naive, rtol=0, atol=1e-12)
    exact = gradients(appended_key(q, k, v, sink[:, None].expand(-1, N), torch.zeros(H, N, N, dtype=torch.float64)), (q, k, v, sink))
    wrong, right = gradients(naive, (q, k, v, sink)), gradients(ours, (q, k, v, sink))
    error = lambda grads, i: float((grads[i] - exact[i]).abs().max() / exact[i].abs().max())
    assert error(wrong, 0) > 0.1 and error(wrong, 1) > 0.1  # dq, dk
    assert error(wrong, 2) < 1e-9 and error(wrong, 3) < 1e-9  # dv and dsink do not betray it
    assert max(error(right, i) for i in range(4)) < 1e-9


SLOPES = torch.tensor([0.5, 0.1, 0.02], dtype=torch.float64)


def recency_lanes(relative: bool):
    """Recency as one lane slope * j, with or without the row term -slope * i."""
    j = torch.arange(N, dtype=torch.float64)[None, None, :, None]
    q_lanes = SLOPES[None, :, None, None].expand(1, H, N, 1)
    return LogPrior(q_lanes, j, row_lanes=j if relative else None)


def test_sink_beside_a_slope_needs_the_row_term():
    """The truth is -slope * (i - j) against a sink of constant logit. The absolute form slope * j is the same softmax without a
    sink and another one with it."""
    q, k, v, sink = leaves()
    i, j = torch.arange(N, dtype=torch.float64)[:, None], torch.arange(N, dtype=torch.float64)
    expected = appended_key(q, k, v, sink[:, None].expand(-1, N), -SLOPES[:, None, None] * (i - j))
    actual = Sdpa()(problem(q, k, v, recency_lanes(relative=True) + LogPrior(sink=sink)))[0]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-11)
    for a, b in zip(gradients(actual, (q, k, v, sink)), gradients(expected, (q, k, v, sink)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    absolute = Sdpa()(problem(q, k, v, recency_lanes(relative=False) + LogPrior(sink=sink)))[0]
    assert float((absolute - expected).detach().norm() / expected.detach().norm()) > 0.1
    shifted = LogPrior(q_term=-SLOPES[None, :, None] * i[None, None, :, 0]) + recency_lanes(relative=False)
    torch.testing.assert_close(Sdpa()(problem(q, k, v, shifted + LogPrior(sink=sink)))[0], expected, rtol=0, atol=1e-11)


def test_without_a_sink_the_row_term_cancels():
    q, k, v, _ = leaves()
    relative, absolute = (Sdpa()(problem(q, k, v, recency_lanes(r)))[0] for r in (True, False))
    torch.testing.assert_close(relative, absolute, rtol=0, atol=0)


def test_lse_of_uniform_attention_is_known():
    """q = 0: lse of row i is log(i + 1), with a sink of logit 0 log(i + 2) (softmax-off-by-one), and out is sum(v) / (i + 2)."""
    _, k, v, _ = leaves()
    q = torch.zeros_like(k)
    count = torch.arange(1, N + 1, dtype=torch.float64)
    _, lse = Sdpa()(problem(q, k, v, LogPrior(), needs_lse=True))
    torch.testing.assert_close(lse, count.log().expand(2, H, N), rtol=0, atol=1e-12)
    out, lse = Sdpa()(problem(q, k, v, LogPrior(sink=torch.zeros(H, dtype=torch.float64)), needs_lse=True))
    torch.testing.assert_close(lse, (count + 1).log().expand(2, H, N), rtol=0, atol=1e-12)
    torch.testing.assert_close(out, v.cumsum(2) / (count + 1)[:, None], rtol=0, atol=1e-12)


@pytest.mark.parametrize("with_sink", [False, True])
def test_gradient_of_the_lse_alone(with_sink):
    """d lse / dq = scale * sum of p_j k_j over the real keys; d lse / ds = p_sink. By the definition, not through a kernel."""
    q, k, v, sink = leaves()
    prior = LogPrior(sink=sink) if with_sink else LogPrior()
    _, lse = Sdpa()(problem(q, k, v, prior, needs_lse=True))
    tensors = (q, k, sink) if with_sink else (q, k)
    grads = torch.autograd.grad(lse.sum(), tensors)
    with torch.no_grad():
        logits = (SCALE * q @ k.transpose(-1, -2)).masked_fill(~torch.ones(N, N, dtype=torch.bool).tril(), -torch.inf)
        weight = logits.exp()
        total = weight.sum(-1, keepdim=True) + (sink.exp()[:, None, None] if with_sink else 0.0)
        p = weight / total
        torch.testing.assert_close(grads[0], SCALE * p @ k, rtol=0, atol=1e-12)
        torch.testing.assert_close(grads[1], SCALE * p.transpose(-1, -2) @ q, rtol=0, atol=1e-12)
        if with_sink:
            torch.testing.assert_close(grads[2], (sink.exp()[:, None, None] / total).sum(dim=(0, 2, 3)), rtol=0, atol=1e-12)


def test_a_sink_of_small_logit_vanishes():
    q, k, v, _ = leaves()
    plain = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE)
    out = Sdpa()(problem(q, k, v, LogPrior(sink=torch.full((H,), -60.0, dtype=torch.float64))))[0]
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-12)


def test_sink_gradient_in_bf16_stays_near_float64():
    """Half-precision training of a sink beside a slope: the fp32 row path keeps dsink at bf16 accuracy of the content."""
    q, k, v, sink = leaves()
    slopes = torch.tensor([0.5, 0.125, 0.03125])  # exact in bf16 after division by the scale's power of two
    scale = 0.25
    line = Positions.line(N)

    def run(dtype):
        tensors = [t.detach().bfloat16().to(dtype).requires_grad_() for t in (q, k, v)]
        s = sink.detach().float().requires_grad_()
        j = torch.arange(N, dtype=torch.float32)[None, None, :, None]
        prior = LogPrior(slopes[None, :, None, None].expand(1, H, N, 1), j, row_lanes=j, sink=s)
        out, _ = Sdpa()(Problem(*tensors, prior, Mask(causal=True).bind(line, line), scale))
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
        return torch.autograd.grad(out, (*tensors, s), weight.to(dtype))

    half, exact = run(torch.bfloat16), run(torch.float64)
    for a, b in zip(half, exact, strict=True):
        assert float((a.double() - b.double()).norm() / b.double().norm()) < 2e-2
    assert math.isfinite(float(half[-1].sum()))


@pytest.mark.parametrize(("dtype", "first"), [(torch.bfloat16, 0), (torch.float16, 0), (torch.float16, 200_000)])
def test_a_sink_beside_a_slope_and_a_learned_bias_in_half_precision(dtype, first):
    """The sink is a key of its own there, and slope * i as a number of the mask was wrong by half at 4,000 tokens; at 200,000 it is
    more than float16 holds. Value and the gradients of sink and bias; that of the slopes is a difference of thousands, which the kernel
    takes in its own dtype."""
    keys = Positions.line(4000, first)
    queries, given = keys.latest(16), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, H, n, D, generator=given).bfloat16() for n in (16, 4000, 4000))

    def run(dtype, kernel):
        sink, weight = (torch.tensor(t, requires_grad=True) for t in ([0.5, 1.0, 3.0], [1e-3] * H))
        bias = lambda batch, head, i, j: -weight[head] * (i + 3984 - j).clamp_max(300)
        prior = recency_prior(torch.tensor([0.46875, 2.0**-4, 2.0**-9]), queries, keys) + LogPrior(biases=(bias,), sink=sink)
        tensors = [t.to(dtype) for t in (q, k, v)]
        case = Problem(*tensors, prior, Mask(causal=True).bind(queries, keys), 0.25)
        assert kernel.objections(case) == ()
        out, _ = kernel(case)
        return out.detach().double(), *gradients(out.double(), (sink, weight))

    for half, exact in zip(run(dtype, Sdpa()), run(torch.float64, Reference()), strict=True):
        assert float((half - exact).norm() / exact.norm()) < 0.02
