"""What must hold for every registered attention, whatever it computes: float64 unless the precision is the point.

Each invariant is a plain function `check_*`; the tests apply it to all rows, and test_mutants.py to broken code. The file is long
because it is the list of the invariants.

What depends on how many tokens there are is asked at each of LENGTHS and SHAPES, besides what hypothesis draws; on grids 0, 1 and 2
prefix tokens take turns. At one size only: central differences of parameters (a single key moves nothing, long rows cost a forward pass
for each parameter; that gradients arrive is asked at every size), copies, bf16 (far lengths have files of their own), compilation.
"""

import copy
import io
from dataclasses import replace

import pytest
import torch
from attention_cases import (
    BIDIRECTIONAL_LINES,
    EMBED_DIM,
    GRIDS,
    HEAD_DIM,
    LINES,
    MODEL,
    OPTIONS,
    POSITION,
    ROWS,
    TRAIN_GRID,
    assert_close,
    make_layer,
    run,
    tokens,
)
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from goatbench.attention.cache import FullCache
from goatbench.attention.kernels import Reference
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import Role
from goatbench.models import GoatViT
from goatbench.training.optim import parameter_groups

LENGTHS = (37, 1, 2, 128, 129)
SHAPES = ((3, 5), (1, 1), (1, 2), (6, 6), (8, 16), (43, 3))  # 43 x 3 = 129
SIZES = [{"size": size, "num_prefix": size % 3} for size in range(6)]  # all of both
few = settings(max_examples=4, deadline=None)
rows = pytest.mark.parametrize(("name", "kind"), ROWS)

# A constant over the keys, invisible to softmax; the published code has it, so its twin keeps it.
WITHOUT_GRADIENT = {"goat_reference": {"scheme.fc2.bias"}}


def also(cases: list[dict], **fixed):
    """Explicit examples, besides those that hypothesis draws."""

    def decorate(test):
        for case in cases:
            test = example(**case, **fixed)(test)
        return test

    return decorate


def places(kind: str, size: int, num_prefix: int = 0) -> Positions:
    """The size-th of LENGTHS or SHAPES."""
    return Positions.line(LENGTHS[size % len(LENGTHS)]) if kind == "line" else Positions.grid(*SHAPES[size], num_prefix)


def gradients(out: torch.Tensor, inputs: list[torch.Tensor], seed: int = 7) -> tuple[torch.Tensor, ...]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(out.dtype)
    return torch.autograd.grad(out, inputs, weight, allow_unused=True)


# The fused kernels compute what the specification says.


@rows
@few
@also(SIZES, lanes="carve", seed=0)
@given(size=st.integers(0, 5), num_prefix=st.integers(0, 2), lanes=st.sampled_from(["carve", "append"]), seed=st.integers(0, 99))
def test_every_row_equals_the_reference_kernel(name, kind, size, num_prefix, lanes, seed):
    check_reference_kernel(name, kind, size, num_prefix, lanes, seed)


def check_reference_kernel(name: str, kind: str, size: int, num_prefix: int = 0, lanes: str = "carve", seed: int = 0) -> None:
    positions = places(kind, size, num_prefix)
    x = tokens(positions.num_tokens, seed=seed).requires_grad_()
    results = []
    for kernel in (None, Reference()):
        layer = make_layer(name, kind, num_prefix=num_prefix, kernel=kernel, lanes=lanes, seed=seed)
        out = run(layer, x, positions)
        results.append([out, *gradients(out, [x, *layer.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None:
            assert_close(actual, expected, atol=1e-9)


def test_nope_is_bit_identical_to_plain_attention():
    """F.scaled_dot_product_attention on the same projections, in three precisions, causal and not."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for causal in (True, False):
            layer, x = make_layer("nope", "line", causal=causal, dtype=dtype), tokens(37, dtype=dtype)
            split = lambda t: t.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
            q, k, v = split(layer.q_proj(x)), split(layer.k_proj(x)), split(layer.v_proj(x))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=HEAD_DIM**-0.5, enable_gqa=True)
            assert torch.equal(run(layer, x, Positions.line(37)), layer.proj(out.transpose(1, 2).flatten(2)))


# Positions count by their offsets, axes and prefix alone.

RELATIVE = [(name, kind) for name, kind in ROWS if make_layer(name, kind, num_prefix=0).scheme.is_relative]
# With a prefix token rotary rows are absolute: it is not rotated, and sees the patches turn. A learned table knows no coordinates.
ABSOLUTE = [(name, kind) for name, kind in ROWS if name != "learned_absolute" and not make_layer(name, kind).scheme.is_relative]


def shifted(positions: Positions, offset: float) -> Positions:
    return replace(positions, coords=positions.coords + offset)


@pytest.mark.parametrize(("name", "kind"), RELATIVE)
@few
@also(SIZES, offset=17_000)
@also([{"size": size, "num_prefix": 0} for size in (1, 2, 4, 5)], offset=-900)  # rotary rows are relative without prefix only
@given(size=st.integers(0, 5), num_prefix=st.integers(0, 2), offset=st.integers(-1000, 60_000))
def test_shifting_all_coordinates_leaves_relative_rows_unchanged(name, kind, size, num_prefix, offset):
    positions = places(kind, size, num_prefix)
    layer, x = make_layer(name, kind, num_prefix=num_prefix), tokens(positions.num_tokens)
    assume(layer.scheme.is_relative)
    expected = run(layer, x, positions)
    assert_close(run(layer, x, shifted(positions, offset)), expected, atol=1e-9)
    if kind == "line" and offset >= 0:
        assert_close(run(layer, x, Positions.line(positions.num_tokens, offset)), expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["line", "grid"])
@pytest.mark.parametrize("name", ["goat", "goat_spectral"])
def test_the_spectral_and_slope_parts_of_goat_are_relative(name, kind):
    """What is absolute in goat is its key-only term alone."""
    layer, positions = make_layer(name, kind, sink=False), places(kind, 0, 1)
    x = tokens(positions.num_tokens)
    for offset in (1, 17_000):
        assert_close(run(layer, x, shifted(positions, offset)), run(layer, x, positions), atol=1e-9)


@pytest.mark.parametrize(("name", "kind"), ABSOLUTE)
def test_shifting_moves_the_rows_that_are_not_relative(name, kind):
    """So that the invariant above can tell."""
    layer, positions = make_layer(name, kind), places(kind, 0, 1)
    x = tokens(positions.num_tokens)
    assert float((run(layer, x, shifted(positions, 5)) - run(layer, x, positions)).detach().abs().max()) > 1e-4


@rows
def test_rotation_preserves_norms(name, kind):
    """Of queries and keys, at any real coordinates, where a row says that it is an isometry."""
    layer = make_layer(name, kind)
    if not layer.scheme.is_isometry:
        return
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 15, layer.head_layout.content_dim, generator=generator, dtype=torch.float64)
    coords = 1000 * torch.randn(2, 15, layer.shape.num_axes, generator=generator, dtype=torch.float64)
    positions = Positions.scattered(torch.arange(15)[None].expand(2, -1), coords)
    for role in Role:
        assert_close(layer.scheme.rotate(x, positions, role).norm(dim=-1), x.norm(dim=-1), atol=1e-12)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("num_prefix", [1, 3])
def test_coordinates_of_prefix_tokens_are_ignored(name, num_prefix):
    for size in range(len(SHAPES)):
        check_prefix_coordinates_are_ignored(name, num_prefix, size)


def check_prefix_coordinates_are_ignored(name: str, num_prefix: int = 1, size: int = 0) -> None:
    """CLS and registers have no place: whatever stands in their coordinates, the output is the same to the bit."""
    layer, positions = make_layer(name, "grid", num_prefix=num_prefix), places("grid", size, num_prefix)
    x = tokens(positions.num_tokens)
    elsewhere = replace(positions, coords=positions.coords + 7.5 * positions.is_prefix[..., None])
    assert torch.equal(run(layer, x, elsewhere), run(layer, x, positions))


def _transpose_parameters(name: str, layer, other) -> None:
    """Give `other` the parameters of `layer` with the axes exchanged."""
    state = {key: value.clone() for key, value in layer.state_dict().items()}
    goat = "scheme.parts.0" if name.startswith("goat+") else "scheme"
    if name in ("goat", "goat_spectral", "goat+sink_scalar", "goat_learned_freqs", "goat_diff"):
        for part in (f"{goat}.even", f"{goat}.odd"):
            state[part] = state[part].unflatten(1, (2, -1)).flip(1).flatten(1)
    net = f"{goat}.sink_net.fc1.weight"
    if net in state:  # features: cos of both axes, then sin of both axes
        state[net] = state[net].unflatten(1, (2, 2, -1)).flip(2).flatten(1)
    if name == "goat_mixed":
        state["scheme.wave_vectors"] = state["scheme.wave_vectors"].flip(-1)
    if name in ("learned_absolute", "rpb"):
        state["scheme.table"] = state["scheme.table"].transpose(0, 1)
    if name in ("rope_axial_ape", "rope_mixed_ape"):
        state["scheme.absolute.table"] = state["scheme.absolute.table"].transpose(0, 1)
    if name in ("rope_mixed", "rope_mixed_ape"):
        state["scheme.frequencies"] = state["scheme.frequencies"].flip(-1)
    if name in ("rope_axial", "rope_axial_ape"):  # of each half of a head, the first planes turn with x, the others with y
        for part in ("q_proj.weight", "q_proj.bias", "k_proj.weight"):
            state[part] = state[part].unflatten(0, (-1, 2, 2, HEAD_DIM // 4)).flip(2).flatten(0, 3)
    if name == "sinusoidal":  # first half of the dims y, second half x
        for part in ("q_proj.weight", "k_proj.weight", "v_proj.weight"):
            state[part] = state[part].unflatten(1, (2, -1)).flip(1).flatten(1)
    other.load_state_dict(state)


# Not goat_reference: its y has the high and its x the low frequencies. Not lookhere: its heads look into fixed directions.
TRANSPOSABLE = [name for name in GRIDS if name not in ("goat_reference", "lookhere")]


@pytest.mark.parametrize("name", TRANSPOSABLE)
@few
@also(SIZES)
@given(size=st.integers(0, 5), num_prefix=st.integers(0, 2))
def test_transposing_image_and_grid_transposes_the_attention(name, size, num_prefix):
    check_transposition(name, size, num_prefix)


def check_transposition(name: str, size: int = 0, num_prefix: int = 1) -> None:
    """Parameters that belong to an axis change places with it."""
    height, width = SHAPES[size]
    layer = make_layer(name, "grid", num_prefix=num_prefix)
    other = make_layer(name, "grid", num_prefix=num_prefix, grid=TRAIN_GRID[::-1])
    _transpose_parameters(name, layer, other)
    x = tokens(num_prefix + height * width)
    turn = lambda t, h, w: torch.cat((t[:, :num_prefix], t[:, num_prefix:].unflatten(1, (h, w)).transpose(1, 2).flatten(1, 2)), dim=1)
    turned = turn(x, height, width)
    if name == "sinusoidal":
        turned = turned.unflatten(2, (2, -1)).flip(2).flatten(2)
    actual = run(other, turned, Positions.grid(width, height, num_prefix))
    assert_close(actual, turn(run(layer, x, Positions.grid(height, width, num_prefix)), height, width), atol=1e-9)


# The same tokens, cut into pieces or put beside others.


@pytest.mark.parametrize("name", LINES)
@few
@also([{"length": length, "chunks": [length - 3, 1, 1]} for length in LENGTHS if length > 3])  # prefill, then token by token
@also([{"length": 2, "chunks": [1]}, {"length": 1, "chunks": []}])
@given(length=st.sampled_from(LENGTHS), chunks=st.lists(st.integers(1, 64), max_size=20))
def test_decoding_in_any_chunks_equals_one_pass(name, length, chunks):
    check_decoding(name, length, chunks)


@pytest.mark.parametrize("name", LINES)
def test_decoding_token_by_token_equals_one_pass(name):
    check_decoding(name, 37, [1] * 37)


def check_decoding(name: str, length: int, chunks: list[int]) -> None:
    """Through FullCache; what the chunks leave over comes as one last chunk."""
    layer, x = make_layer(name, "line"), tokens(length)
    cache, start, parts = FullCache(), 0, []
    with torch.no_grad():
        expected = run(layer, x, Positions.line(length))
        for chunk in [*chunks, length]:
            end = min(start + chunk, length)
            if end > start:
                parts.append(run(layer, x[:, start:end], Positions.line(end - start, start), cache=cache))
            start = end
    assert_close(torch.cat(parts, dim=1), expected)


PADDABLE = [(name, True) for name in LINES] + [(name, False) for name in BIDIRECTIONAL_LINES]


@pytest.mark.parametrize(("name", "causal"), PADDABLE)
@few
@also([{"length": length} for length in LENGTHS], pads=[3, 0], negative=True)
@given(length=st.sampled_from(LENGTHS[:3]), pads=st.lists(st.integers(0, 36), min_size=2, max_size=3), negative=st.booleans())
def test_a_left_padded_batch_equals_its_rows_alone(name, causal, length, pads, negative):
    check_left_padding(name, causal, length, pads, negative)


def check_left_padding(name: str, causal: bool, length: int, pads: list[int], negative: bool = True) -> None:
    """Row r begins after pads[r] padding tokens; their order is below 0, or 0 as the first token's, and their content is noise."""
    layer, total = make_layer(name, "line", causal=causal), max(pads) + length
    x = tokens(total, batch=len(pads))
    order = torch.arange(total)[None] - torch.tensor(pads)[:, None]
    mask = Mask(causal=causal, key_valid=order >= 0)
    with torch.no_grad():
        batch = run(layer, x, Positions.scattered(order if negative else order.clamp_min(0)), mask)
        for row, pad in enumerate(pads):
            alone = run(layer, x[row : row + 1, pad:], Positions.line(total - pad))
            assert_close(batch[row : row + 1, pad:], alone)


@pytest.mark.parametrize("name", GRIDS)
def test_dropped_patches_row_by_row_equal_their_rows_alone(name):
    """Each row of a batch keeps other patches, in another order; the embedding is added before they are dropped. Of a single patch
    none can be dropped."""
    for (height, width), num_prefix in zip(SHAPES, (1, 1, 2, 0, 1, 2), strict=True):
        check_dropped_patches(name, height, width, num_prefix)


def check_dropped_patches(name: str, height: int, width: int, num_prefix: int) -> None:
    """At the training resolution: rpb has no table for some patches of another grid."""
    layer, grid = make_layer(name, "grid", num_prefix=num_prefix, grid=(height, width)), Positions.grid(height, width, num_prefix)
    x, count = layer.scheme.embed(tokens(grid.num_tokens), grid), height * width
    drawn = [num_prefix + torch.randperm(count)[: (count + 1) // 2] for _ in range(2)]
    index = torch.stack([torch.cat((torch.arange(num_prefix), patches)) for patches in drawn])
    kept = x.gather(1, index[..., None].expand(-1, -1, EMBED_DIM))
    together = layer(kept, grid.gather(index))
    for row in (slice(0, 1), slice(1, 2)):
        assert_close(together[row], layer(kept[row], grid.gather(index[row])))


# Parameters.

VARIANTS = [*((n, "line", True, 0) for n in LINES), *((n, "line", False, 0) for n in BIDIRECTIONAL_LINES)]
VARIANTS += [*((n, "grid", False, 0) for n in GRIDS), *((n, "grid", False, 2) for n in GRIDS)]


@pytest.mark.parametrize(("name", "kind", "causal", "num_prefix"), VARIANTS)
def test_every_parameter_moves_the_output_and_its_gradient_arrives(name, kind, causal, num_prefix):
    check_parameters_matter(name, kind, causal, num_prefix)


@rows
@pytest.mark.parametrize("case", SIZES, ids=lambda case: "size{size}-prefix{num_prefix}".format(**case))
def test_gradients_arrive_at_every_size(name, kind, case):
    """At every parameter, finite; a single token as well, where most are zero: none may be missing for data-parallel training."""
    layer, positions = make_layer(name, kind, num_prefix=case["num_prefix"]), places(kind, **case)
    out = run(layer, tokens(positions.num_tokens), positions)
    for (parameter_name, _), grad in zip(layer.named_parameters(), gradients(out, [*layer.parameters()]), strict=True):
        assert grad is not None and grad.isfinite().all(), parameter_name


def check_parameters_matter(name: str, kind: str, causal: bool = False, num_prefix: int = 0) -> None:
    """For each parameter of the layer: the gradient along a random direction is the central difference, and not zero."""
    layer = make_layer(name, kind, causal=causal, num_prefix=num_prefix)
    positions = places(kind, 0, num_prefix)
    x = tokens(positions.num_tokens)
    weight = torch.randn(2, positions.num_tokens, EMBED_DIM, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    loss = lambda: (weight * run(layer, x, positions)).sum()
    names, parameters = zip(*layer.named_parameters(), strict=True)
    grads = torch.autograd.grad(loss(), parameters, allow_unused=True)
    for parameter_name, parameter, grad in zip(names, parameters, grads, strict=True):
        assert grad is not None, f"{parameter_name} is not used"
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
        analytic, step = float((grad * direction).sum()), 1e-5
        with torch.no_grad():
            parameter.add_(step * direction)
            above = float(loss())
            parameter.sub_(2 * step * direction)
            numeric = (above - float(loss())) / (2 * step)
            parameter.add_(step * direction)
        assert analytic == pytest.approx(numeric, rel=1e-4, abs=1e-6), parameter_name
        if parameter_name in WITHOUT_GRADIENT.get(name, ()):
            assert abs(numeric) < 1e-6
        else:
            assert abs(numeric) > 1e-5, f"{parameter_name} does not move the output"


@pytest.mark.parametrize("name", GRIDS)
def test_no_position_parameter_is_decayed(name):
    check_no_position_parameter_is_decayed(name)


def check_no_position_parameter_is_decayed(name: str) -> None:
    """By the optimizer groups that training uses; all other matrices are decayed."""
    sizes = dict(img_size=12, patch_size=2, in_chans=1, num_classes=3, embed_dim=64, depth=2, num_heads=2, num_reg_tokens=1)
    net = GoatViT(POSITION.get(name, name), OPTIONS.get(name), **sizes, **MODEL.get(name, {}))
    names = {id(p): n for n, p in net.named_parameters()}
    groups = parameter_groups(net, 0.05)
    decayed = {names[id(p)] for group in groups if group["weight_decay"] > 0 for p in group["params"]}
    all_names = {names[id(p)] for group in groups for p in group["params"]}
    assert all_names == set(names.values())
    undecayed = {n for n in all_names if ".scheme." in n or n in ("cls_token", "reg_token") or net.get_parameter(n).ndim < 2}
    assert decayed == all_names - undecayed


@rows
def test_copies_and_saved_states_compute_the_same(name, kind):
    """deepcopy is equal and independent; a state dict, through a file, holds all there is: only parameters are saved."""
    layer, positions = make_layer(name, kind), places(kind, 0, 1)
    x = tokens(positions.num_tokens)
    expected = run(layer, x, positions).detach()
    twin = copy.deepcopy(layer)
    assert torch.equal(run(twin, x, positions), expected)
    assert layer.state_dict().keys() == dict(layer.named_parameters()).keys()
    stream = io.BytesIO()
    torch.save(layer.state_dict(), stream)
    stream.seek(0)
    other = make_layer(name, kind, seed=1)
    assert not torch.equal(run(other, x, positions), expected)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(run(other, x, positions), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(run(layer, x, positions), expected)


# Precision, inference and compilation.


def relative_rms(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt())


@rows
@pytest.mark.parametrize("how", ["bf16-true", "autocast"])
def test_bf16_keeps_priors_in_float32(name, kind, how):
    """A whole model cast to bf16, or autocast on the CPU: parameters and buffers of the scheme keep their precision, the output is that
    of float64 up to the rounding of content, and gradients arrive."""
    positions = places(kind, 0, 1)
    x = tokens(positions.num_tokens)
    expected = run(make_layer(name, kind), x, positions).detach()
    layer = make_layer(name, kind, dtype=torch.float32)
    before = {key: value.dtype for key, value in [*layer.scheme.named_parameters(), *layer.scheme.named_buffers()]}
    if how == "bf16-true":
        layer.to(torch.bfloat16)
        out = run(layer, x.bfloat16(), positions)
        assert out.dtype == layer.q_proj.weight.dtype == torch.bfloat16
    else:
        with torch.autocast("cpu", torch.bfloat16):
            out = run(layer, x.float(), positions)
    after = {key: value.dtype for key, value in [*layer.scheme.named_parameters(), *layer.scheme.named_buffers()]}
    assert after == before and torch.bfloat16 not in after.values()
    assert relative_rms(out.detach(), expected) < 0.02
    out.float().square().sum().backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), parameter_name


@rows
def test_nothing_from_inference_mode_is_reused_in_training(name, kind):
    for size in range(6 if kind == "grid" else 5):
        check_training_after_inference(name, kind, size=size)


def check_training_after_inference(name: str, kind: str, decode: bool = True, size: int = 0) -> None:
    """Evaluation first, with and without a cache, then a training step on the same positions: the gradients of a layer that has
    never been evaluated. Lightning's sanity check evaluates under inference_mode before the first step."""
    positions, layer = places(kind, size, 1), make_layer(name, kind)
    x = tokens(positions.num_tokens)
    cache = FullCache()
    with torch.inference_mode():
        run(layer.eval(), x, positions)
        if decode:
            run(layer, x, positions, cache=cache)
    actual, expected = ([*gradients(run(m, x, positions), list(m.parameters()))] for m in (layer.train(), make_layer(name, kind)))
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    if decode and kind == "line":  # training goes on behind the cached tokens
        out = run(layer, x[:, :1], Positions.line(1, positions.num_tokens), cache=cache)
        assert all(grad is not None and grad.isfinite().all() for grad in gradients(out, [layer.q_proj.weight, layer.proj.weight]))


# Absolute embeddings act before the layer; the rows left out run the code of these.
COMPILED = [(name, "grid") for name in ("goat", "goat_reference", "nope", "rope_axial", "rope_mixed", "alibi_2d", "sink_scalar")]
COMPILED += [(name, "grid") for name in ("lookhere", "rpb")]
COMPILED += [(name, "line") for name in ("goat", "goat_reference", "goat_no_slope", "rope", "rope_xpos", "fope", "alibi")]
COMPILED += [(name, "line") for name in ("t5", "kerple_power", "mta", "talking_heads", "diff_v1", "diff_v2")]
QUICK = [("goat", "grid"), ("rope_mixed", "grid"), ("rpb", "grid")]
QUICK += [(name, "line") for name in ("goat", "rope", "alibi", "t5", "mta", "diff_v2")]


@pytest.mark.parametrize(("name", "kind"), [pytest.param(*row, marks=() if row in QUICK else pytest.mark.slow) for row in COMPILED])
def test_compiles_without_graph_break(name, kind):
    torch._dynamo.reset()
    layer, positions = make_layer(name, kind), places(kind, 0, 1)
    x = tokens(positions.num_tokens).requires_grad_()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for module in (compiled, layer):
        out = module(x, positions, Mask(causal=layer.shape.causal))
        results.append([out, *gradients(out, [x, *layer.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None:
            assert_close(actual, expected)


@pytest.mark.parametrize("kind", ["line", "grid"])
def test_a_sweep_of_lengths_needs_two_graphs_at_most(kind):
    """64, 100, 128, 200 and 256 tokens: one graph for the first, one with symbolic sizes for all others."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layer = make_layer("goat", kind, num_prefix=0)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for height, width in ((8, 8), (10, 10), (8, 16), (10, 20), (16, 16)):
        positions = Positions.line(height * width) if kind == "line" else Positions.grid(height, width)
        x, mask = tokens(height * width), Mask(causal=kind == "line")
        assert_close(compiled(x, positions, mask), layer(x, positions, mask))
    assert 1 <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
