"""SelfAttention against its definition: projections, head pairing, lanes carved or appended, scale, temperature."""

import pytest
import torch
from attention_cases import NUM_HEADS, SOFTMAX_LINES, assert_close, make_layer, make_scheme, make_shape, run, tokens
from torch.nn import functional as F

from goatbench.attention.kernels import Auto, Recording
from goatbench.attention.kernels.fold import fold
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import ModelShape, NoPosition, PositionScheme, Role
from goatbench.attention.sink_token import behind_prefix


def by_definition(layer: SelfAttention, x: torch.Tensor, positions: Positions) -> torch.Tensor:
    """Head by head: softmax(D^-1/2 q k^T + log_prior) v, causal where the model is; query head h reads key head h // (H / G)."""
    scheme, shape = layer.scheme, layer.shape
    x, prefix, ahead = scheme.embed(x, positions), scheme.prefix(), 0
    if prefix is not None:
        x, positions, _, ahead = behind_prefix(prefix, x, positions, Mask(), None)
    heads, kv, n = shape.num_heads, shape.num_kv_heads, x.shape[1]
    content, values = layer.q_proj.out_features // heads, shape.head_dim
    cut = lambda t, width: torch.stack(t.split(width, dim=-1), dim=1)
    q = scheme.rotate(cut(layer.q_proj(x), content), positions, Role.QUERY)
    k = scheme.rotate(cut(layer.k_proj(x), content), positions, Role.KEY)
    v = cut(layer.v_proj(x), values)
    prior = scheme.prior(positions, positions, scheme.token_state(x))
    dense = prior.dense(heads, n, n, dtype=torch.float64)
    temperature = scheme.temperature(positions)
    if temperature is not None:
        q = q * temperature[..., None]
    outs = []
    for h in range(heads):
        g = h // (heads // kv)
        logits = content**-0.5 * torch.einsum("bid,bjd->bij", q[:, h], k[:, g]) + dense[:, h]
        if shape.causal:
            logits = logits.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        total = logits.logsumexp(-1, keepdim=True)  # a bias of BAM's can be large
        total = total if prior.sink is None else torch.logaddexp(total, prior.sink[h])
        outs.append(torch.einsum("bij,bjd->bid", (logits - total).exp(), v[:, g]))
    merged = torch.cat(outs, dim=-1)
    if layer.gate is not None:  # one a dim, or one a head for all of its dims
        gates = 1 / (1 + torch.exp(-x @ layer.gate.weight.T))
        merged = merged * gates.repeat_interleave(merged.shape[-1] // gates.shape[-1], dim=-1)
    return F.linear(merged, layer.proj.weight, layer.proj.bias)[:, ahead:]


@pytest.mark.parametrize("lanes", ["carve", "append"])
@pytest.mark.parametrize("name", SOFTMAX_LINES)
def test_layer_is_its_definition(name, lanes):
    """1D causal with two query heads per key head, where the mechanism allows it; output and input gradient."""
    layer, positions = make_layer(name, "line", lanes=lanes), Positions.line(37)
    x = tokens(37).requires_grad_()
    actual, expected = run(layer, x, positions), by_definition(layer, x, positions)
    assert_close(actual, expected)
    weight = tokens(37, seed=5)
    assert_close(*(torch.autograd.grad(out, x, weight)[0] for out in (actual, expected)))


def test_carving_leaves_no_dead_row_and_appending_keeps_the_content():
    """goat in 1D with 2 frequencies: 4 + 2 + 1 + 1 = 8 lanes of a head of 32. Counts by hand."""
    carve, append = (make_layer("goat", "line", lanes=lanes, num_frequencies=2) for lanes in ("carve", "append"))
    for layer, content in ((carve, 24), (append, 32)):
        assert layer.q_proj.weight.shape == (4 * content, 16) and layer.k_proj.weight.shape == (2 * content, 16)
        assert layer.v_proj.weight.shape == (2 * 32, 16) and layer.proj.weight.shape == (16, 4 * 32)
        assert layer.scale == content**-0.5
        assert layer.k_proj.bias is None and layer.q_proj.bias is not None and layer.v_proj.bias is not None


@pytest.mark.parametrize("lanes", ["carve", "append"])
@pytest.mark.parametrize("name", ["goat", "goat_reference", "alibi", "nope"])
def test_queries_keys_and_values_reach_the_kernel_at_one_width(name, lanes):
    """With unequal widths SDPA silently takes the slow math path: appended lanes need as many zeros behind v."""
    check_one_width_and_the_flash_kernel(name, lanes)


def check_one_width_and_the_flash_kernel(name: str, lanes: str) -> None:
    widths = []

    class Spy(Recording):
        def __call__(self, problem):
            folded = fold(problem)
            widths.append({folded.q.shape[-1], folded.k.shape[-1], folded.v.shape[-1]})
            return super().__call__(problem)

    spy = Spy(Auto())
    layer = make_layer(name, "line", lanes=lanes, kernel=spy, dtype=torch.float32)
    run(layer, tokens(37, dtype=torch.float32), Positions.line(37))
    expected = 32 + (layer.scheme.num_lanes if lanes == "append" else 0)
    assert widths == [{expected}]
    assert spy.used == {"sdpa-flash"}


def test_lanes_that_do_not_fit_are_refused_with_advice():
    shape = make_shape("goat", "line")
    with pytest.raises(ValueError, match="Goat needs 32 lanes, but head_dim is 32: use fewer frequencies, wider heads, or lanes=append"):
        SelfAttention(shape, make_scheme("goat", shape, num_frequencies=14))
    SelfAttention(shape, make_scheme("goat", shape, num_frequencies=14), lanes="append")


def test_key_heads_must_divide_query_heads():
    shape = ModelShape(1, True, 16, 1, 4, 3, 8, (64,))
    with pytest.raises(ValueError, match="num_kv_heads 3 does not divide num_heads 4"):
        SelfAttention(shape, NoPosition(shape))


class Sharper(PositionScheme):
    """A temperature by head and query: 1 + h at even places, 1 at odd ones."""

    def temperature(self, query_positions):
        head = torch.arange(self.shape.num_heads, dtype=torch.float64)[None, :, None]
        return 1 + head * (query_positions.order[:, None] % 2 == 0)


def test_temperature_scales_the_content_logit_of_its_query():
    shape = make_shape("nope", "line")
    torch.manual_seed(0)
    layer = SelfAttention(shape, Sharper(shape)).double()
    x, positions = tokens(9), Positions.line(9)
    head_of_row = torch.arange(NUM_HEADS).repeat_interleave(32)
    scaled = F.linear(x, layer.q_proj.weight, layer.q_proj.bias)
    scaled[:, ::2] *= 1 + head_of_row.double()
    plain = SelfAttention(shape, NoPosition(shape)).double()
    plain.load_state_dict(layer.state_dict())
    plain.q_proj.register_forward_hook(lambda module, args, out: scaled)
    assert_close(layer(x, positions, Mask(causal=True)), plain(x, positions, Mask(causal=True)))


def test_kernel_can_be_exchanged():
    layer, spy = make_layer("goat", "line"), Recording(Auto())
    layer.kernel = spy
    run(layer, tokens(5), Positions.line(5))
    assert layer.kernel is spy and spy.used == {"sdpa-flash"}


@pytest.mark.parametrize("positions", [Positions.line(5), Positions.grid(2, 3)], ids=["tokens", "axes"])
def test_positions_of_something_else_are_refused(positions):
    shape = ModelShape(1, True, 16, 1, 2, 2, 8, (6,))
    layer = SelfAttention(shape, NoPosition(shape))
    with pytest.raises(ValueError, match=r"x has 6 tokens and the layer 1 axes of position"):
        layer(torch.randn(1, 6, 16), positions)
