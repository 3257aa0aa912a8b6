"""Every kernel without objection equals the reference, on out, lse and all gradients; the reference equals a loop."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from goatbench.attention.kernels import KERNELS, Auto, Flash, Flex, Problem, Recording, Reference, Sdpa, get_kernel
from goatbench.attention.kernels.fold import fold
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions

LENGTHS = (1, 2, 37, 128, 129)
BATCH = 2


@dataclass
class Case:
    """A problem in float64 and the leaves whose gradients are compared."""

    problem: Problem
    leaves: dict[str, torch.Tensor]


def make_case(
    mask: Mask,
    queries: Positions,
    keys: Positions,
    prior: str = "lanes",
    sink: bool = False,
    needs_lse: bool = False,
    seed: int = 0,
    heads: tuple[int, int] = (4, 2),
    dims: tuple[int, int, int] = (5, 8, 3),
) -> Case:
    g = torch.Generator().manual_seed(seed)
    (num_heads, num_kv_heads), (content, value, num_lanes) = heads, dims
    num_queries, num_keys = queries.num_tokens, keys.num_tokens
    leaves: dict[str, torch.Tensor] = {}

    def leaf(name, *shape):
        leaves[name] = torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_()
        return leaves[name]

    q = leaf("q", BATCH, num_heads, num_queries, content)
    k = leaf("k", BATCH, num_kv_heads, num_keys, content)
    v = leaf("v", BATCH, num_kv_heads, num_keys, value)
    fields = {}
    if prior in ("lanes", "everything"):
        fields["q_lanes"] = leaf("q_lanes", 1, num_heads, num_queries, num_lanes)
        fields["k_lanes"] = leaf("k_lanes", 1, 1, num_keys, num_lanes)
        fields["row_lanes"] = leaf("row_lanes", 1, 1, num_queries, num_lanes)
    if prior == "by batch row":
        fields["q_lanes"] = leaf("q_lanes", BATCH, num_heads, num_queries, num_lanes)
        fields["k_lanes"] = leaf("k_lanes", BATCH, num_kv_heads, num_keys, num_lanes)
        fields["k_term"] = leaf("k_term", BATCH, num_kv_heads, num_keys)
    if prior in ("terms", "everything"):
        fields["q_term"] = leaf("q_term", 1, num_heads, num_queries)
        fields["k_term"] = leaf("k_term", 1, 1, num_keys)
    if prior in ("bias", "everything"):
        slope = leaf("slope", num_heads)
        fields["biases"] = (lambda b, h, i, j: slope[h] * (i - j).abs().sqrt() * (1 + b),)
    if prior == "constant bias":
        fields["biases"] = (lambda b, h, i, j: -(1.0 + h) * (i - j).abs(),)
    if sink:
        fields["sink"] = leaf("sink", num_heads)
    return Case(Problem(q, k, v, LogPrior(**fields), mask.bind(queries, keys), content**-0.5, needs_lse), leaves)


def evaluate(kernel, case: Case) -> dict[str, torch.Tensor]:
    """Out, lse and the gradient of a random functional of both; a leaf that the result does not depend on has gradient 0."""
    out, lse = kernel(case.problem)
    g = torch.Generator().manual_seed(99)
    loss = (out * torch.randn(out.shape, generator=g, dtype=out.dtype)).sum()
    result = {"out": out}
    if case.problem.needs_lse:
        result["lse"] = lse
        weight = torch.randn(lse.shape, generator=g, dtype=lse.dtype)
        loss = loss + (weight * lse)[lse > -torch.inf].sum()
    else:
        assert lse is None
    grads = torch.autograd.grad(loss, list(case.leaves.values()), allow_unused=True)
    for (name, leaf), grad in zip(case.leaves.items(), grads, strict=True):
        result[f"d{name}"] = torch.zeros_like(leaf) if grad is None else grad
    return {name: t.detach() for name, t in result.items()}


def assert_same(actual, expected, atol=1e-9):
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-9, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def setting(name: str, n: int) -> tuple[Mask, Positions, Positions]:
    """One named mask and layout at n tokens."""
    line = Positions.line(n)
    height = {128: 8, 129: 3}.get(n, 1)
    if name == "full":
        return Mask(), line, line
    if name == "causal":
        return Mask(causal=True), line, line
    if name == "cached":
        num_new = max(1, n // 3)
        return Mask(causal=True), Positions.line(num_new, offset=n - num_new), line
    if name == "window + sinks":
        return Mask(causal=True, window=5, num_sinks=2), line, line
    if name == "documents":
        return Mask(causal=True, segment=torch.stack((torch.arange(n) // 7, torch.arange(n) // 40))), line, line
    if name == "left padding":  # the first row's padded queries see nothing
        return Mask(causal=True, key_valid=torch.arange(n) >= torch.tensor([[(n + 2) // 3], [0]])), line, line
    if name == "grid":
        grid = Positions.grid(height, n // height)
        return Mask(), grid, grid
    if name == "grid with prefix":
        grid = Positions.grid(height, n // height, num_prefix=2)
        return Mask(), grid, grid
    assert name == "scattered"
    order = torch.stack([torch.randperm(n, generator=torch.Generator().manual_seed(s)) for s in (1, 2)])
    scattered = Positions.scattered(order)
    return Mask(causal=True), scattered, scattered


SETTINGS = ("full", "causal", "cached", "window + sinks", "documents", "left padding", "grid", "grid with prefix", "scattered")
PRIORS = ("none", "lanes", "terms", "by batch row", "constant bias", "bias", "everything")


def by_loop(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition, one number at a time, without any tensor operation of the code under test."""
    q, k, v, prior = problem.q.tolist(), problem.k.tolist(), problem.v.tolist(), problem.prior
    group = len(q[0]) // len(k[0])
    num_queries, num_keys = len(q[0][0]), len(k[0][0])
    orders = problem.mask.query_positions.order.tolist(), problem.mask.key_positions.order.tolist()
    lse = torch.zeros(problem.q.shape[:3], dtype=torch.float64)
    out = torch.zeros(*lse.shape, problem.v.shape[-1], dtype=torch.float64)
    dot = lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))
    for b in range(len(q)):
        for h in range(len(q[0])):
            for i in range(num_queries):
                logits = {}
                for j in range(num_keys):
                    if problem.mask.mask.causal and orders[1][0][j] > orders[0][0][i]:
                        continue
                    if problem.mask.mask.key_valid is not None and not problem.mask.mask.key_valid[b, j]:
                        continue
                    logit = problem.scale * dot(q[b][h][i], k[b][h // group][j])
                    q_lane = prior.q_lanes[0, h, i].tolist()
                    logit += dot(q_lane, prior.k_lanes[0, 0, j].tolist()) - dot(q_lane, prior.row_lanes[0, 0, i].tolist())
                    logit += float(prior.q_term[0, h, i]) + float(prior.k_term[0, 0, j])
                    logit += sum(float(bias(torch.tensor(b), torch.tensor(h), torch.tensor(i), torch.tensor(j))) for bias in prior.biases)
                    logits[j] = logit
                total = sum(math.exp(x) for x in logits.values()) + (math.exp(float(prior.sink[h])) if prior.sink is not None else 0.0)
                lse[b, h, i] = math.log(total) if total else -math.inf
                for j, x in logits.items():
                    out[b, h, i] += math.exp(x) / total * torch.tensor(v[b][h // group][j], dtype=torch.float64)
    return out, lse


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("name", ["full", "cached", "left padding"])
def test_reference_equals_a_loop_over_its_definition(name, sink):
    case = make_case(*setting(name, 5), prior="everything", sink=sink, needs_lse=True, heads=(4, 2), dims=(3, 2, 2))
    with torch.no_grad():
        out, lse = Reference()(case.problem)
        expected_out, expected_lse = by_loop(case.problem)
    torch.testing.assert_close(out, expected_out, rtol=0, atol=1e-12)
    torch.testing.assert_close(lse, expected_lse, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("name", ["causal", "left padding"])
def test_reference_gradients_equal_finite_differences(name, sink):
    case = make_case(*setting(name, 3), prior="everything", sink=sink, needs_lse=True, dims=(2, 2, 1))
    names, leaves = zip(*case.leaves.items(), strict=True)

    def function(*values):
        leaf = dict(zip(names, values, strict=True))
        prior = LogPrior(
            leaf["q_lanes"],
            leaf["k_lanes"],
            leaf["row_lanes"],
            leaf["q_term"],
            leaf["k_term"],
            (lambda b, h, i, j: leaf["slope"][h] * (i - j).abs(),),
            leaf.get("sink"),
        )
        out, lse = Reference()(replace(case.problem, q=leaf["q"], k=leaf["k"], v=leaf["v"], prior=prior))
        return out, torch.where(lse == -torch.inf, 0.0, lse)

    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("mode", ["out", "sink", "lse", "sink and lse"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", SETTINGS)
def test_sdpa_equals_the_reference(name, prior, mode):
    learned_bias = prior in ("bias", "everything")
    # The long lengths (around the kernel's block of 128) for the priors that differ in kind; the others are their parts.
    for n in LENGTHS if prior in ("lanes", "by batch row", "bias") else LENGTHS[:3]:
        case = make_case(*setting(name, n), prior=prior, sink="sink" in mode, needs_lse="lse" in mode, seed=n)
        objections = Sdpa().objections(case.problem)
        if learned_bias and "lse" in mode:  # stated, not silently wrong
            assert "no log-sum-exp with a learned" in objections[0]
            continue
        assert objections == ()
        assert_same(evaluate(Sdpa(), case), evaluate(Reference(), case))


@pytest.mark.parametrize("name", SETTINGS)
def test_learned_bias_with_lse_without_gradient(name):
    """Where nobody asks for a gradient the objection falls away, and the numbers must be right."""
    for n in (2, 37):
        case = make_case(*setting(name, n), prior="everything", sink=True, needs_lse=True, seed=n)
        with torch.no_grad():
            assert Sdpa().objections(case.problem) == ()
            for actual, expected in zip(Sdpa()(case.problem), Reference()(case.problem), strict=True):
                torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    group=st.integers(1, 3),
    num_kv_heads=st.integers(1, 2),
    num_keys=st.integers(1, 40),
    num_queries=st.integers(1, 40),
    dims=st.tuples(st.integers(1, 9), st.integers(1, 16), st.integers(1, 5)),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 9),
    prior=st.sampled_from(PRIORS),
    sink=st.booleans(),
    needs_lse=st.booleans(),
)
def test_any_problem_without_objection(seed, group, num_kv_heads, num_keys, num_queries, dims, causal, window, prior, sink, needs_lse):
    num_queries = min(num_queries, num_keys)
    queries, keys = Positions.line(num_queries, offset=num_keys - num_queries), Positions.line(num_keys)
    case = make_case(
        Mask(causal=causal, window=window), queries, keys, prior, sink, needs_lse, seed, (group * num_kv_heads, num_kv_heads), dims
    )
    expected = evaluate(Reference(), case)
    for kernel in (Sdpa(), Auto()):
        if not kernel.objections(case.problem):
            assert_same(evaluate(kernel, case), expected)


@pytest.mark.parametrize("name", ["full", "causal", "cached", "window + sinks", "documents", "left padding"])
def test_flex_forward_on_a_cpu(name):
    case = make_case(*setting(name, 37), prior="lanes", sink=True, needs_lse=True)
    assert Flex().objections(case.problem) == ("no backward on a CPU",)
    with torch.no_grad():
        assert Flex().objections(case.problem) == ()
        assert Flex().describe(case.problem) == "flex-eager"
        for actual, expected in zip(Flex()(case.problem), Reference()(case.problem), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_flex_scores_a_bias_by_batch_row_and_head():
    case = make_case(*setting("causal", 5), prior="bias")
    with torch.no_grad():
        torch.testing.assert_close(Flex()(case.problem)[0], Reference()(case.problem)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_kv_heads", [2, 4])
def test_no_prior_is_bit_identical_to_plain_sdpa(dtype, causal, num_kv_heads):
    g = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 129, 16, generator=g).to(dtype).requires_grad_()
    k, v = (torch.randn(2, num_kv_heads, 129, 16, generator=g).to(dtype).requires_grad_() for _ in range(2))
    line = Positions.line(129)
    out, _ = Auto()(Problem(q, k, v, LogPrior(), Mask(causal=causal).bind(line, line), 0.25))
    plain = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.25, enable_gqa=num_kv_heads < 4)
    assert torch.equal(out, plain)
    weight = torch.randn(out.shape, generator=g).to(dtype)
    for a, b in zip(torch.autograd.grad(out, (q, k, v), weight), torch.autograd.grad(plain, (q, k, v), weight), strict=True):
        assert torch.equal(a, b)


def test_a_query_without_keys_returns_zero_and_minus_infinity():
    line = Positions.line(3)
    nothing = Mask(key_valid=torch.zeros(BATCH, 3, dtype=torch.bool))
    for kernel in (Reference(), Sdpa()):
        case = make_case(nothing, line, line, prior="lanes", needs_lse=True)
        result = evaluate(kernel, case)
        assert (result["out"] == 0).all() and (result["lse"] == -torch.inf).all()
        assert all((t == 0).all() for name, t in result.items() if name.startswith("d"))
        case = make_case(nothing, line, line, prior="lanes", needs_lse=True, sink=True)
        result = evaluate(kernel, case)
        assert (result["out"] == 0).all()
        torch.testing.assert_close(result["lse"], case.leaves["sink"].detach()[None, :, None].expand(BATCH, -1, 3), rtol=0, atol=1e-12)


# Half precision: an unbounded prior must survive it.


def recency(dtype, length, slope, mechanism, num_rows=16):
    """Causal recency -slope * (i - j) at `length` tokens; returns the problem and, in float64, out and lse of its last rows.

    'lanes': exact integer lanes j = 256 h + l, slope on the query; 'term': fp32 key term -slope * (-j); 'single': one lane slope*j.
    """
    g = torch.Generator().manual_seed(1)
    content, width = 48, 64
    scale = content**-0.5
    q, k = (torch.randn(1, 1, length, content, generator=g).to(dtype) for _ in range(2))
    v = torch.randn(1, 1, length, width, generator=g).to(dtype)
    j = torch.arange(length, dtype=torch.float64)
    line = Positions.line(length)
    sink = torch.tensor([1.5])
    term = (slope * j).float()[None, None]
    if mechanism == "lanes":
        high = torch.floor((j + 128) / 256)
        features = torch.stack((high, j - 256 * high), dim=-1).float()[None, None]
        q_lanes = torch.tensor([256 * slope, slope]).expand(1, 1, length, 2)
        prior = LogPrior(q_lanes, features, row_lanes=features, sink=sink)
        # The kernel's slope is the rounded one; that is the prior which it must compute exactly.
        slope = float((torch.tensor(slope) / scale).to(dtype).double() * scale)
    elif mechanism == "term":
        prior = LogPrior(k_term=term, q_term=-term, sink=sink)
    else:
        prior = LogPrior(torch.ones(1, 1, length, 1), term[..., None], q_term=-term, sink=sink)
    problem = Problem(q, k, v, prior, Mask(causal=True).bind(line, line), scale, needs_lse=True)
    i = j[-num_rows:, None]
    logits = scale * q[0, 0, -num_rows:].double() @ k[0, 0].double().T - slope * (i - j)
    logits = torch.cat((logits.masked_fill(j > i, -torch.inf), sink.double().expand(num_rows, 1)), dim=-1)
    return problem, torch.softmax(logits, -1)[:, :-1] @ v[0, 0].double(), torch.logsumexp(logits, -1)


def relative_rms(actual, expected):
    return float((actual.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt())


@pytest.mark.parametrize("slope", [0.47, 0.0394, 0.0053])
@pytest.mark.parametrize("mechanism", ["lanes", "term"])
def test_recency_in_bf16_is_exact_at_4096_tokens(mechanism, slope):
    """Relative rms output error at most 5e-3, the floor of bf16 content; the sink and the lse agree as well."""
    problem, out, lse = recency(torch.bfloat16, 4096, slope, mechanism)
    with torch.no_grad():
        actual_out, actual_lse = Sdpa()(problem)
    assert relative_rms(actual_out[0, 0, -16:], out) < 5e-3
    torch.testing.assert_close(actual_lse[0, 0, -16:].double(), lse, rtol=0, atol=1e-2)


def test_a_single_lane_in_bf16_is_a_staircase():
    """Why the exact forms exist: the same prior as one lane slope * j is wrong by tens of percent."""
    problem, out, _ = recency(torch.bfloat16, 4096, 0.47, "single")
    with torch.no_grad():
        assert relative_rms(Sdpa()(problem)[0][0, 0, -16:], out) > 0.3


@pytest.mark.parametrize("mechanism", ["lanes", "term"])
def test_autocast_splits_as_bf16_does(mechanism):
    """Under autocast the kernel runs in bf16 though q is float32: the lanes must be made for bf16."""
    problem, out, _ = recency(torch.float32, 1024, 0.47, mechanism)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        actual, _ = Sdpa()(problem)
    assert actual.dtype == torch.bfloat16
    # The lanes' slope is rounded to bf16 here, the oracle's to float32: 2^-9 of a decay length at most.
    assert relative_rms(actual[0, 0, -16:], out) < 1e-2


@pytest.mark.parametrize("content", [48, 60, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_key_term_is_split_without_loss(content, dtype):
    """The folded columns sum to the term to 2^-22 relative, whatever 1/scale rounds to; its gradient is counted once."""
    g = torch.Generator().manual_seed(0)
    k_term = (1000 * torch.randn(1, 1, 50, generator=g)).requires_grad_()
    q, v = torch.zeros(1, 1, 1, content, dtype=dtype), torch.zeros(1, 1, 50, 64, dtype=dtype)
    k = torch.zeros(1, 1, 50, content, dtype=dtype)
    scale = content**-0.5
    problem = Problem(q, k, v, LogPrior(k_term=k_term), Mask().bind(Positions.line(1), Positions.line(50)), scale)
    folded = fold(problem)
    assert folded.q.shape[-1] == folded.k.shape[-1] == folded.v.shape[-1]
    assert folded.q.shape[-1] % 8 == 0
    logits = scale * (folded.q.double() @ folded.k.double().transpose(-1, -2))[0, 0, 0]
    torch.testing.assert_close(logits, k_term[0, 0].double(), rtol=2**-22, atol=0)
    (grad,) = torch.autograd.grad(logits.sum(), k_term)
    torch.testing.assert_close(grad, torch.ones_like(grad), rtol=2**-8, atol=0)


# Choosing a kernel.


def test_unknown_kernel_names_the_nearest():
    with pytest.raises(ValueError, match=r"'flsh': did you mean 'flash'\? known: auto, flash, flex, reference, sdpa"):
        get_kernel("flsh")
    assert [get_kernel(name).name for name in KERNELS] == list(KERNELS)


def test_auto_raises_with_every_kernels_objections():
    case = make_case(*setting("causal", 37), prior="bias", needs_lse=True)
    auto = Auto(candidates=(Sdpa(), Flex(), Flash(), Reference(max_logits=100)))
    with pytest.raises(ValueError) as error:
        auto(case.problem)
    for part in ("sdpa: no log-sum-exp", "flex: no backward", "flash: ", "CUDA only", "reference: 10952 logits written out"):
        assert part in str(error.value)
    assert len(auto.objections(case.problem)) == 4


def test_auto_takes_the_reference_only_below_its_limit():
    case = make_case(*setting("causal", 37), prior="bias", needs_lse=True)
    assert Auto().describe(case.problem) == "reference"
    assert Auto().objections(case.problem) == ()


def test_a_mask_too_large_to_write_out_is_an_objection():
    small = Sdpa(max_mask_elements=1000)
    assert small.objections(make_case(*setting("causal", 37)).problem) == ()
    assert "1369 mask elements" in small.objections(make_case(*setting("window + sinks", 37)).problem)[0]
    assert "10952 logits" in small.objections(make_case(*setting("causal", 37), prior="constant bias").problem)[0]


def test_flash_states_what_it_cannot_do():
    case = make_case(*setting("left padding", 37), prior="everything", sink=True, dims=(250, 8, 3))
    text = " ".join(Flash().objections(case.problem))
    for part in ("CUDA only", "float16 and bfloat16 only", "biases", "padding", "sink", "head width 256 "):
        assert (part in text) == (part != "head width 256 "), (part, text)
    case = make_case(*setting("causal", 37), prior="lanes", dims=(255, 8, 3))
    assert "head width 258 with lanes, at most 256" in " ".join(Flash().objections(case.problem))


@pytest.mark.parametrize(
    ("prior", "kind"), [("none", "sdpa-flash"), ("lanes", "sdpa-flash"), ("constant bias", "sdpa-flash"), ("bias", "sdpa-math")]
)
def test_describe_tells_the_backend(prior, kind):
    """A learned bias trains on the math path on a CPU, and the record must say so."""
    case = make_case(*setting("causal", 37), prior=prior)
    recording = Recording(Auto())
    for _ in range(2):
        recording(case.problem)
    assert recording.used == {kind}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        Sdpa()(case.problem)
    flash_ran = any("flash_attention_for_cpu" in event.key for event in profile.key_averages())
    assert flash_ran == (kind == "sdpa-flash")


def test_recording_notes_every_kernel_that_ran():
    recording = Recording(Auto())
    recording(make_case(*setting("causal", 37)).problem)
    recording(make_case(*setting("causal", 37), prior="bias").problem)
    recording(make_case(*setting("causal", 37), prior="bias", needs_lse=True).problem)
    assert recording.used == {"sdpa-flash", "sdpa-math", "reference"}


@pytest.mark.parametrize("name", ["full", "causal", "window + sinks"])
@pytest.mark.parametrize("mode", ["out", "sink and lse"])
def test_compiles_without_graph_break(name, mode):
    torch._dynamo.reset()
    case = make_case(*setting(name, 37), prior="by batch row", sink="sink" in mode, needs_lse="lse" in mode)
    kernel = Auto()
    compiled = torch.compile(lambda problem: kernel(problem), fullgraph=True, backend="aot_eager")
    assert_same(evaluate(compiled, case), evaluate(Reference(), case))
