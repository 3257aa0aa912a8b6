"""Sums of schemes, gates of the output and the token before the sequence: each against its formula, written out."""

import pytest
import torch
from attention_cases import EMBED_DIM, HEAD_DIM, NUM_HEADS, assert_close, make_layer, make_scheme, make_shape, run, tokens
from torch.nn import functional as F

from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Line, Positions
from goatbench.attention.priors.fourier import Goat
from goatbench.attention.rotary import Rope
from goatbench.attention.scheme import ModelShape
from goatbench.models import Decoder
from goatbench.models.backbone import scheme_factory

N = 11
SIZES = dict(vocab_size=7, num_scored=6, seq_len=32, embed_dim=32, depth=2, num_heads=2)


def turned(t: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """RoPE, base 10,000: plane p of (p, p + D/2) as a complex number times e^(i m theta_p)."""
    half = t.shape[-1] // 2
    angle = places[:, None] * 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    z = torch.complex(t[..., :half], t[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), dim=-1)


def projected(layer: SelfAttention, x: torch.Tensor) -> list[torch.Tensor]:
    """q, k and v with H heads each: key head g serves the query heads 2 g and 2 g + 1."""
    q, k, v = (p(x).unflatten(-1, (heads, -1)).transpose(1, 2) for p, heads in ((layer.q_proj, 4), (layer.k_proj, 2), (layer.v_proj, 2)))
    return [q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)]


def causal(n: int = N) -> torch.Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


def merged(layer: SelfAttention, out: torch.Tensor) -> torch.Tensor:
    return layer.proj(out.transpose(1, 2).flatten(2))


def test_rope_with_a_sink_scalar_is_the_eager_form_of_gpt_oss():
    """Scaled logits, masked; one more column with the head's sink; softmax; the column dropped. Grouped key heads."""
    layer, x, places = make_layer("rope+sink_scalar", "line"), tokens(N), torch.arange(N, dtype=torch.float64)
    q, k, v = projected(layer, x)
    logits = (turned(q, places) @ turned(k, places).mT / HEAD_DIM**0.5).masked_fill(~causal(), -torch.inf)
    sink = dict(layer.scheme.named_parameters())["parts.1.sink"]
    column = sink[None, :, None, None].expand(2, -1, N, 1)
    expected = merged(layer, torch.cat((logits, column), dim=-1).softmax(-1)[..., :-1] @ v)
    assert_close(run(layer, x, Positions.line(N)), expected, atol=1e-12)


def test_softmax1_adds_one_to_the_denominator():
    layer, x = make_layer("softmax1", "line"), tokens(N)
    q, k, v = projected(layer, x)
    weights = (q @ k.mT / HEAD_DIM**0.5).exp() * causal()
    assert_close(run(layer, x, Positions.line(N)), merged(layer, weights / (1 + weights.sum(-1, keepdim=True)) @ v), atol=1e-12)
    assert not list(layer.scheme.parameters())


def test_alibi_with_a_sink_scalar():
    layer, x, place = make_layer("alibi+sink_scalar", "line"), tokens(N), torch.arange(N, dtype=torch.float64)
    q, k, v = projected(layer, x)
    slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625], dtype=torch.float64)[:, None, None]
    weights = (q @ k.mT * layer.scale - slopes * (place[:, None] - place)).exp() * causal()
    sink = dict(layer.scheme.named_parameters())["parts.1.sink"].exp()[:, None, None]
    assert_close(run(layer, x, Positions.line(N)), merged(layer, weights / (sink + weights.sum(-1, keepdim=True)) @ v), atol=1e-12)


@pytest.mark.parametrize("lanes", ["carve", "append"])
def test_goat_with_rope_turns_the_content_dims_and_adds_the_prior(lanes):
    """With carved lanes the planes are those of the content dims that are left."""
    layer, x, positions = make_layer("goat+rope", "line", lanes=lanes), tokens(N), Positions.line(N)
    content = HEAD_DIM - (8 if lanes == "carve" else 0)  # 2 frequencies: 4 lanes; slope 2, sink, bump
    q, k, v = projected(layer, x)
    assert q.shape[-1] == content
    prior = layer.scheme.parts[0].prior(positions, positions).dense(NUM_HEADS, N, N, dtype=torch.float64)
    places = torch.arange(N, dtype=torch.float64)
    logits = (turned(q, places) @ turned(k, places).mT / content**0.5 + prior).masked_fill(~causal(), -torch.inf)
    assert_close(run(layer, x, positions), merged(layer, logits.softmax(-1) @ v), atol=1e-12)


@pytest.mark.parametrize("kind", ["line", "grid"])
def test_goat_with_a_sink_scalar_has_both_sinks(kind):
    layer, positions = make_layer("goat+sink_scalar", kind), Positions.line(N) if kind == "line" else Positions.grid(2, 5, 1)
    x = tokens(N)
    q, k, v = projected(layer, x)
    prior = layer.scheme.parts[0].prior(positions, positions)
    whole = prior.dense(NUM_HEADS, N, N, dtype=torch.float64)
    weights = (q @ k.mT * layer.scale + whole).exp() * (causal() if kind == "line" else 1)
    sink = dict(layer.scheme.named_parameters())["parts.1.sink"].exp()[:, None, None]
    assert_close(run(layer, x, positions), merged(layer, weights / (sink + weights.sum(-1, keepdim=True)) @ v), atol=1e-11)


def test_a_sum_places_tokens_and_is_limited_as_its_parts_are():
    torch.manual_seed(0)
    shape = make_shape("rope", "line")
    alone, both = (scheme_factory(name, "carve")(shape).train() for name in ("rope_randomised", "rope_randomised+sink_scalar"))
    drawn = torch.randint(5, (2, 9))
    places = [scheme.place(drawn, Positions.line(9), False).coords for scheme in (alone, both)]
    assert torch.equal(*places) and not torch.equal(places[0], Positions.line(9).coords)
    limited = scheme_factory("learned_absolute+sink_scalar", "carve")(shape)
    assert limited.max_positions == shape.train_extent[0] and limited.why_limited == "have no learned entry"


def test_options_go_to_the_part_that_has_them_and_others_are_refused():
    shape = make_shape("goat", "line")
    scheme = scheme_factory("goat+rope")(shape, num_frequencies=3, min_period=3.0, base=50.0)
    goat, rope = scheme.parts
    assert isinstance(goat, Goat) and isinstance(rope, Rope)
    assert len(goat.frequencies) == 3 and rope.base == 50.0 and scheme.num_lanes == goat.num_lanes == 10
    with pytest.raises(ValueError, match=r"no part of goat\+rope has an option 'theta'"):
        scheme_factory("goat+rope")(shape, num_frequencies=3, min_period=3.0, theta=1)
    with pytest.raises(ValueError, match="Goat needs the option num_frequencies, min_period"):
        scheme_factory("goat+rope")(shape)
    with pytest.raises(ValueError, match="both rope and sinusoidal have an option 'base'"):
        scheme_factory("rope+sinusoidal")(shape, base=3.0)
    with pytest.raises(ValueError, match="names a scheme twice"):
        scheme_factory("rope+rope")
    with pytest.raises(ValueError, match=r"rope in goat\+rope: head_dim 25 .* leave 25 of 32 dims \(lanes=append leaves all\)"):
        scheme_factory("goat+rope")(ModelShape(1, False, 16, 1, 4, 4, 32, (64,)), num_frequencies=3, min_period=3.0)


# Gates.


@pytest.mark.parametrize("gate", ["headwise", "elementwise"])
def test_gate_multiplies_the_output_of_each_head_by_a_sigmoid_of_the_input(gate):
    shape = make_shape("rope", "line")
    torch.manual_seed(0)
    layer = SelfAttention(shape, make_scheme("rope", shape), gate=gate).double()
    plain = SelfAttention(shape, make_scheme("rope", shape)).double()
    plain.load_state_dict({name: t for name, t in layer.state_dict().items() if name != "gate.weight"})
    plain.proj = torch.nn.Identity()
    x, positions = tokens(N), Positions.line(N)
    heads = plain(x, positions, Mask(causal=True)).unflatten(-1, (NUM_HEADS, HEAD_DIM))
    z = torch.einsum("bkc,gc->bkg", x, layer.gate.weight)
    z = z[..., None] if gate == "headwise" else z.unflatten(-1, (NUM_HEADS, HEAD_DIM))
    expected = layer.proj((heads / (1 + torch.exp(-z))).flatten(2))
    assert_close(layer(x, positions, Mask(causal=True)), expected, atol=1e-12)
    assert layer.gate.weight.shape == ((NUM_HEADS if gate == "headwise" else NUM_HEADS * HEAD_DIM), EMBED_DIM) and layer.gate.bias is None


def test_an_unknown_gate_is_refused_and_none_has_no_parameter():
    shape = make_shape("rope", "line")
    assert SelfAttention(shape, make_scheme("rope", shape)).gate is None
    with pytest.raises(ValueError, match="gate 'both' is unknown; one of none, headwise, elementwise"):
        SelfAttention(shape, make_scheme("rope", shape), gate="both")


# The token before the sequence.


def make_net(position: str = "rope+sink_token", **sizes) -> Decoder:
    torch.manual_seed(0)
    net = Decoder(position, **{**SIZES, **sizes}).double()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return net


def ids(length: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(6, (batch, length), generator=torch.Generator().manual_seed(1))


def test_positions_behind_a_prefix():
    line = Positions.line(3, offset=5).behind_prefix(2)
    assert line.layout == Line(3, 5) and line.order.tolist() == [[3, 4, 5, 6, 7]]
    assert line.is_prefix.tolist() == [[True, True, False, False, False]] and line.coords[0, :, 0].tolist() == [0, 0, 5, 6, 7]
    padded = Positions.scattered(torch.tensor([[-1, 0, 1], [0, 1, 2]])).behind_prefix(1)
    assert padded.order.tolist() == [[-1, -1, 0, 1], [-1, 0, 1, 2]]


def test_the_sink_token_is_one_more_token_that_is_not_rotated():
    """A model whose table holds the sink as an ordinary token, fed in front by hand, its logits dropped; without positions they agree,
    and with rope the sink's key keeps angle 0."""
    net = make_net("sink_token", depth=1)
    table = torch.cat((net.token_embedding.weight, net.position.token))
    plain = Decoder("nope", **{**SIZES, "depth": 1}).double()
    plain.load_state_dict({name: t for name, t in net.state_dict().items() if "scheme" not in name})
    plain.token_embedding = torch.nn.Embedding.from_pretrained(table)
    x = ids(9)
    with_sink = torch.cat((torch.full((2, 1), SIZES["vocab_size"]), x), dim=1)
    assert_close(net(x), plain(with_sink)[:, 1:], atol=1e-12)
    assert net(x).shape == (2, 9, 7)
    rope = make_net()
    key = torch.randn(1, 2, 3, 16, dtype=torch.float64)
    rotated = rope.position.rotate(key, Positions.line(2).behind_prefix(1), None)
    assert torch.equal(rotated[:, :, 0], key[:, :, 0])
    assert_close(rotated[:, :, 1:], turned(key[:, :, 1:], torch.arange(2, dtype=torch.float64)), atol=1e-12)


def test_the_first_token_can_attend_to_the_sink_and_there_is_one_in_the_model():
    """In a model without it the first token sees itself alone, whatever the weights."""
    net, x = make_net(), ids(1)
    before = net(x)
    with torch.no_grad():
        net.position.prefix().add_(torch.randn(1, 32, dtype=torch.float64))
    assert float((net(x) - before).detach().abs().max()) > 1e-3
    tokens_of_model = {id(p) for name, p in net.named_parameters() if name.endswith(".token")}
    assert len(tokens_of_model) == 1 and all(block.attn.scheme.prefix() is net.position.prefix() for block in net.blocks)
    assert {"blocks.0.attn.scheme.parts.1.token"} <= net.no_weight_decay()


def test_documents_share_the_sink_and_nothing_else():
    """Two documents in one row, masked apart and with positions of their own: each is what it is alone."""
    net, x = make_net(), ids(9, batch=1)
    first, second = x[:, :4], x[:, 4:]
    order = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    segment = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    packed = net(x, Positions.scattered(order), Mask(causal=True, segment=segment))
    assert_close(packed, torch.cat((net(first), net(second)), dim=1), atol=1e-12)


def test_what_counts_distances_to_every_key_refuses_a_token_without_a_coordinate():
    with pytest.raises(ValueError, match=r"alibi in alibi\+sink_token: alibi counts the distance to every key"):
        make_net("alibi+sink_token")
    with pytest.raises(ValueError, match="set slope=false"):
        Decoder("goat+sink_token", {"num_frequencies": 1, "min_period": 3.0}, **SIZES)
    Decoder("goat+sink_token", {"num_frequencies": 1, "min_period": 3.0, "slope": False}, **SIZES)(ids(5))
    with pytest.raises(ValueError, match="causal sequences"):
        scheme_factory("sink_token")(make_shape("nope", "grid"))


# GOAT with learned frequencies.


@pytest.mark.parametrize(("name", "kind"), [("goat_learned_freqs", "line"), ("goat_learned_freqs", "grid"), ("goat_mixed", "grid")])
def test_learned_waves_are_their_formula(name, kind):
    """Entry by entry from the parameters; the rest of the prior is GOAT's."""
    positions = Positions.line(7) if kind == "line" else Positions.grid(2, 3, 1)
    layer = make_layer(name, kind, sink=False, slope=False)
    scheme, n = layer.scheme, positions.num_tokens
    p = {key: value.detach() for key, value in scheme.named_parameters()}
    axes = positions.num_axes
    if name == "goat_mixed":
        vectors = p["wave_vectors"]
    else:
        w = scheme.frequencies * p["log_ratio"].exp()
        vectors = torch.stack([F.one_hot(torch.tensor(a), axes) * f for a in range(axes) for f in w]).expand(NUM_HEADS, -1, -1)
    offset = positions.coords[0][:, None] - positions.coords[0]  # [n, n, A]
    phase = torch.einsum("ija,hva->hijv", offset, vectors.double())
    expected = (phase.cos() * p["even"][:, None, None] + phase.sin() * p["odd"][:, None, None]).sum(-1)
    patch = ~positions.is_prefix[0]
    expected = expected * patch[:, None] * patch
    assert_close(scheme.prior(positions, positions).dense(NUM_HEADS, n, n)[0], expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["line", "grid"])
def test_learned_frequencies_start_as_goat(kind):
    shape = make_shape("goat", kind)
    options = {"num_frequencies": 3, "min_period": 2.5}
    fixed, learned = (scheme_factory(name)(shape, **options) for name in ("goat", "goat_learned_freqs"))
    learned.load_state_dict({**fixed.state_dict(), "log_ratio": torch.zeros(3)})
    positions = Positions.line(9) if kind == "line" else Positions.grid(2, 4, 1)
    dense = lambda scheme: scheme.prior(positions, positions).dense(NUM_HEADS, 9, 9)
    assert torch.equal(dense(learned), dense(fixed))
    fresh = scheme_factory("goat_learned_freqs")(shape, **options)
    assert (fresh.log_ratio == 0).all() and fresh.for_layer(1).log_ratio is not fresh.log_ratio


def test_mixed_waves_start_as_rope_mixed():
    """GOAT's frequencies along one direction per head, then along its perpendicular."""
    shape = make_shape("goat_mixed", "grid")
    scheme = scheme_factory("goat_mixed")(shape, num_frequencies=3, min_period=2.5)
    first, second = scheme.wave_vectors.detach().double().unflatten(1, (2, 3)).unbind(1)  # [H, 3, 2]
    assert_close(first.norm(dim=-1), scheme.frequencies.double().expand(4, 3), atol=1e-6)
    assert_close((first * second).sum(-1), torch.zeros(4, 3, dtype=torch.float64), atol=4e-6)
    unit = F.normalize(first, dim=-1)
    assert_close(unit, unit[:, :1].expand(-1, 3, -1), atol=1e-6)
    assert float((unit[0, 0] - unit[1, 0]).abs().max()) > 1e-3
    with pytest.raises(ValueError, match="two-dimensional"):
        scheme_factory("goat_mixed")(make_shape("goat", "line"), num_frequencies=3, min_period=2.5)
