"""Multi-token attention against its formula written out index by index, and what sets it apart from plain attention."""

import itertools

import pytest
import torch
from attention_cases import INNER, assert_close, make_layer, move, run, tokens
from torch import nn

from goatbench.attention.cache import FullCache
from goatbench.attention.inner.multi_token import MultiToken, TalkingHeads
from goatbench.attention.kernels import Auto, Sdpa
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.alibi import Alibi
from goatbench.attention.scheme import ModelShape, NoPosition

HEADS, KV_HEADS, HEAD_DIM, DIM, LENGTH = 4, 2, 8, 16, 11


def make(cls=NoPosition, depth: int = 1, layer_index: int = 0, seed: int = 0, inner=MultiToken, **options) -> SelfAttention:
    torch.manual_seed(seed)
    shape = ModelShape(1, True, DIM, depth, HEADS, KV_HEADS, HEAD_DIM, (64,))
    build = lambda shape, index, kernel: inner(shape, index, kernel, **options)
    return SelfAttention(shape, cls(shape), inner=build, layer_index=layer_index).double()


def draw(length: int = LENGTH, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_definition(layer: SelfAttention, x: torch.Tensor, slopes: list[float], window: int | None) -> torch.Tensor:
    """Each convolution entry of the kernel by entry: 0 before it where the future is, -inf after it."""
    inner, n = layer.inner, x.shape[1]
    split = lambda t, heads: t.unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = (split(p(x), h) for p, h in ((layer.q_proj, HEADS), (layer.k_proj, KV_HEADS), (layer.v_proj, KV_HEADS)))
    k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
    place = torch.arange(n)
    slope = torch.tensor(slopes, dtype=x.dtype)[:, None, None]
    logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 - slope * (place[:, None] - place)

    def convolved(maps: torch.Tensor, kernel: torch.Tensor | None) -> torch.Tensor:
        """[b, h, i, j]: the sum over up >= 0 and right of kernel[h, up, right] * maps[b, h, i - up, j + right]."""
        if kernel is None:
            return maps
        c_q, c_k = kernel.shape[1:]
        total = torch.zeros_like(maps)
        for up, right in itertools.product(range(c_q), range(-(c_k // 2), c_k // 2 + 1)):
            r, s = place[:, None] - up, place + right
            reached = (r >= 0) & (s >= 0) & (s <= r)  # s <= r: no future of its own row
            entry = kernel[:, c_q - 1 - up, c_k // 2 + right][:, None, None]
            total = total + entry * torch.where(reached, maps[:, :, r.clamp_min(0), s.clamp(0, n - 1)], 0)
        return total

    mixed = lambda maps, mixer: maps if mixer is None else torch.einsum("ab,zbij->zaij", torch.block_diag(*mixer), maps)
    past = (place <= place[:, None]) & (place > place[:, None] - (window or n))
    maps = mixed(convolved(logits * past, inner.kernel_before), inner.mixer_before)
    weights = torch.where(past, maps.exp(), 0)
    weights = weights / weights.sum(-1, keepdim=True)
    weights = mixed(convolved(weights, inner.kernel_after) * past, inner.mixer_after)
    out = weights @ v
    if inner.norm is not None:
        out = out * (out.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * inner.norm.weight
    if inner.gate is not None:
        out = out / (1 + torch.exp(-(out * inner.gate.weight[0]).sum(-1, keepdim=True) - inner.gate.bias))
    return layer.proj(out.transpose(1, 2).flatten(2))


def assert_is_its_formula(layer: SelfAttention, length: int, slopes: list[float], window: int | None = None) -> None:
    """Output and every gradient."""
    move(layer.inner, std=0.5)
    x = draw(length).requires_grad_()
    actual = layer(x, Positions.line(length), Mask(causal=True, window=window))
    expected = by_definition(layer, x, slopes, window)
    assert_close(actual, expected)
    weight = draw(length, batch=3)[:2]
    inputs = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(actual, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True):
        assert_close(a, b, atol=1e-9)


@pytest.mark.parametrize(("position", "slopes"), [(NoPosition, [0.0] * 4), (Alibi, [0.25, 0.0625, 0.015625, 0.00390625])])
@pytest.mark.parametrize("sizes", [dict(query_kernel=3, key_kernel=5, heads_per_group=2), dict(query_kernel=2, key_kernel=3)])
@pytest.mark.parametrize("window", [None, 4])
def test_it_is_its_formula(position, slopes, sizes, window):
    """With a prior: it is added before the convolution. Keys before a window are zeros to the kernels, too."""
    assert_is_its_formula(make(position, **sizes), LENGTH, slopes, window)


@pytest.mark.parametrize("length", [1, 2, 37, 128, 129])
@pytest.mark.parametrize("row", ["mta", "mta_conv", "talking_heads"])
def test_a_row_is_the_formula_at_every_length(row, length):
    """For these rows kernel=reference is the kernel itself, so this stands for fused == dense."""
    assert_is_its_formula(make(inner=INNER[row]["inner"], **INNER[row]["inner_options"]), length, [0.0] * HEADS)


def test_depth_scaling_is_that_of_the_first_version():
    """The output of layer 3 (counted from 0) is 1 - (0.8 - 0.6 exp(-0.9)) times that of the plain norm."""
    outs = [make(norm=norm, depth=4, layer_index=3) for norm in ("plain", "depth")]
    x, positions = draw(), Positions.line(LENGTH)
    for layer in outs:
        nn.init.zeros_(layer.proj.bias)
    plain, depth = (layer(x, positions, Mask(causal=True)) for layer in outs)
    assert_close(depth, plain * (0.2 + 0.6 * 0.4065696597405991))


def test_it_starts_as_plain_attention():
    """Identity kernels and mixers; norm and gate come on top."""
    layer = make(norm="none")
    plain = SelfAttention(layer.shape, NoPosition(layer.shape)).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    args = draw(), Positions.line(LENGTH), Mask(causal=True)
    assert_close(layer(*args), plain(*args), atol=1e-13)
    move(layer.inner)
    assert float((layer(*args) - plain(*args)).detach().abs().max()) > 1e-2


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("part", ["convolve", "mix"])
def test_each_part_stands_alone_on_either_side_of_the_softmax(part, where):
    """It is the whole with the identity everywhere else; on the other side the same numbers are another function."""
    options = {"convolve": "none", "mix": "none", "norm": "none", part: where}
    alone, whole, other = make(**options), make(norm="none"), make(norm="none")
    move(alone.inner, std=0.5)
    (name,) = [name for name, _ in alone.inner.named_parameters()]
    state, side = alone.state_dict(), {"before": "after", "after": "before"}[where]
    whole.load_state_dict(state, strict=False)
    other.load_state_dict({key.replace(name, name.replace(where, side)): t for key, t in state.items()}, strict=False)
    args = draw(), Positions.line(LENGTH), Mask(causal=True)
    assert_close(alone(*args), whole(*args), atol=1e-13)
    assert float((alone(*args) - other(*args)).detach().abs().max()) > 1e-2


def test_talking_heads_are_multi_token_attention_with_one_query_and_one_key():
    talking, multi = make(inner=TalkingHeads), make(convolve="both", query_kernel=1, key_kernel=1, norm="none")
    move(talking.inner)
    multi.load_state_dict(talking.state_dict(), strict=False)
    args = draw(), Positions.line(LENGTH), Mask(causal=True)
    assert_close(talking(*args), multi(*args), atol=1e-13)


def test_parameter_counts_of_the_released_880m_model():
    """24 layers, 16 heads of 96, convolutions in layers 2, 6, ..: 29,592 parameters beyond plain attention's; talking heads 12,288."""
    shape = ModelShape(1, True, 1536, 24, 16, 16, 96, (2048,))
    count = lambda modules: sum(p.numel() for m in modules for p in m.parameters())
    assert count(MultiToken(shape, i, Auto(), every=4) for i in range(24)) == 29_592
    assert count(TalkingHeads(shape, i, Auto()) for i in range(24)) == 12_288
    assert [i for i in range(24) if MultiToken(shape, i, Auto(), every=4).kernel_before is not None] == [2, 6, 10, 14, 18, 22]


def test_decoding_needs_ten_past_queries_and_no_more():
    """c_q = 6 twice: the logits of 2 * 5 earlier queries. With 9 the second token block would differ."""
    layer = make_layer("mta", "line")
    assert layer.inner.num_past_queries == 10
    x, positions = tokens(30), Positions.line(30)

    def decode() -> torch.Tensor:
        cache = FullCache()
        with torch.no_grad():
            return torch.cat([run(layer, x[:, i : i + 1], Positions.line(1, i), cache=cache) for i in range(30)], dim=1)

    with torch.no_grad():
        expected = run(layer, x, positions)
    assert_close(decode(), expected)
    layer.inner.num_past_queries = 9
    assert float((decode() - expected).abs().max()) > 1e-6


def test_rows_need_not_sum_to_one():
    layer = make(norm="none")
    move(layer.inner, std=0.5)
    logits = torch.randn(1, HEADS, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = layer.inner.weigh(logits, torch.ones(1, 1, 6, 6, dtype=torch.bool).tril(), None)
    assert float((weights.sum(-1) - 1).detach().abs().max()) > 0.1 and bool((weights < 0).any())
    assert float(weights.triu(1).detach().abs().max()) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(key_kernel=4), "key_kernel = 4 has no centre: an odd number, published 11"),
        (dict(query_kernel=0), "query_kernel = 0 is too small: 1 or more"),
        (dict(heads_per_group=3), "heads_per_group 3 does not divide num_heads 4"),
        (dict(every=4), "every = 4 leaves no layer of 1 with a convolution: use every=1"),
        (dict(mix="everywhere"), "mix = 'everywhere' is unknown; one of none, before, after, both"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="causal models only"):
        MultiToken(ModelShape(1, False, DIM, 1, HEADS, KV_HEADS, HEAD_DIM, (64,)), 0, Auto())
    layer = make()
    with pytest.raises(ValueError, match="kernel=sdpa never has: use kernel=auto"):
        layer.kernel = Sdpa()
    documents = Mask(causal=True, segment=torch.zeros(1, LENGTH, dtype=torch.int64))
    with pytest.raises(ValueError, match="reach over document borders"):
        layer(draw(), Positions.line(LENGTH), documents)
    meta = draw(1).expand(2, 20_000, -1)
    with pytest.raises(ValueError, match="3200000000 logits written out, the limit is 268435456"):
        layer(meta, Positions.line(20_000), Mask(causal=True))
