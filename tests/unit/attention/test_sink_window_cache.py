"""SinkWindowCache: every query sees sinks, window and itself in their slots; chunks equal token by token; memory is constant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attention_cases import LINES, MODEL, OPTIONS, POSITION, make_layer, move, randomise, run, tokens
from torch import Tensor

from goatbench.attention.cache import FullCache
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Line, Positions
from goatbench.attention.sink_window_cache import SinkWindowCache, streaming_objection
from goatbench.models import Decoder
from goatbench.models.streaming import streaming

CAUSAL = Mask(causal=True)
EMBEDDED = ["learned_absolute", "sinusoidal"]
STREAMING = [name for name in LINES if name not in EMBEDDED]
ONE_AT_A_TIME = [  # streams of their own, several maps, or a rotation beside what is not relative
    name for name in STREAMING if name in ("fox", "cable", "fope", "diff_v1", "diff_v2", "goat_diff", "mta", "mta_conv")
]
IN_CHUNKS = [name for name in STREAMING if name not in ONE_AT_A_TIME]
SUMMING = ["fox", "cable"]  # a prior that counts every token up to a key
MASKED = ["rope", "alibi", "goat", "fire", "bam", "cope", "talking_heads", "diff_v1", *EMBEDDED]
FORMULAS = ["nope", "rope", "alibi", "sink_scalar", "goat", "goat+rope", "rope+sink_token"]


def make_cache(name: str, num_sinks: int, window: int, renumber: bool = True) -> SinkWindowCache:
    return SinkWindowCache(num_sinks, window, renumber, num_prefix=int("sink_token" in name))


def rotated(x: Tensor, slots: Tensor) -> Tensor:
    """RoPE on [H, n, D] at slots [n]: pairs (p, p + D/2) as complex numbers, turned by slot * 10000^(-2p/D)."""
    half = x.shape[-1] // 2
    angle = slots[:, None] * 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=-1)


def log_prior(name: str, scheme, query: Tensor, slots: Tensor) -> Tensor:
    """[H, n] for a query in slot `query` and keys in `slots`, from the formulas of the papers."""
    offset = query - slots
    scheme, name = (scheme.parts[0], "goat") if name == "goat+rope" else (scheme, name)
    if name == "alibi":
        return -torch.tensor([2.0 ** (-8.0 * (h + 1) / 4) for h in range(4)], dtype=torch.float64)[:, None] * offset
    if name != "goat":
        return torch.zeros(4, len(slots), dtype=torch.float64)
    wave = offset[:, None] * scheme.frequencies.double()  # [n, F]
    spectral = scheme.even @ wave.cos().T + scheme.odd @ wave.sin().T
    key_only = scheme.gain[:, None] * scheme.sink_net(Positions.scattered(slots[None].long())) + scheme.bump[:, None] * (slots == 0)
    return spectral + key_only - F.softplus(scheme.slope_raw)[:, None] * offset


def by_formula(name: str, layer, x: Tensor, num_sinks: int, window: int, renumber: bool = True) -> Tensor:
    """One row of the batch, query by query: softmax over sinks, window and self, all renumbered. A learned token goes first, at its own
    angle 0, and the others count from behind it."""
    ahead = int("sink_token" in name)
    x = torch.cat((layer.scheme.prefix(), x)) if ahead else x
    heads = lambda t, n: t.unflatten(-1, (n, -1)).transpose(0, 1)  # [n, K, D]
    q, k, v = heads(layer.q_proj(x), 4), heads(layer.k_proj(x), 2), heads(layer.v_proj(x), 2)
    k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    out = []
    for i in range(ahead, len(x)):
        seen = [j for j in range(i + 1) if j < num_sinks or j >= i - window]
        slots = (torch.arange(len(seen)) if renumber else torch.tensor(seen)).double() - ahead
        slots[:ahead] = 0
        q_i, k_i = q[:, i : i + 1], k[:, seen]
        if "rope" in name:
            q_i, k_i = rotated(q_i, slots[-1:]), rotated(k_i, slots)
        logits = (q_i @ k_i.transpose(1, 2))[:, 0] * k.shape[-1] ** -0.5 + log_prior(name, layer.scheme, slots[-1], slots)
        weights = logits.exp()
        total = weights.sum(-1, keepdim=True)
        if name == "sink_scalar":
            total = total + layer.scheme.sink.exp()[:, None]
        out.append((weights / total)[:, None] @ v[:, seen])
    return layer.proj(torch.cat(out, dim=1).transpose(0, 1).flatten(1))


def streamed(layer, x: Tensor, cache, sizes) -> Tensor:
    parts, start = [], 0
    with torch.no_grad():
        for size in sizes:
            parts.append(run(layer, x[:, start : start + size], Positions.line(size, offset=start), CAUSAL, cache))
            start += size
    assert start == x.shape[1]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("renumber", [True, False])
@pytest.mark.parametrize(("num_sinks", "window"), [(3, 5), (0, 4), (1, 1)])
@pytest.mark.parametrize("name", FORMULAS)
def test_token_by_token_and_chunks_equal_the_formula(name, num_sinks, window, renumber):
    layer, x = make_layer(name, "line"), tokens(40, batch=1)
    if "sink_token" in name and not num_sinks:
        with pytest.raises(ValueError, match="cannot do without; at least 1"):
            make_cache(name, num_sinks, window)
        return
    with torch.no_grad():
        expected = by_formula(name, layer, x[0], num_sinks, window, renumber)
    one = streamed(layer, x, make_cache(name, num_sinks, window, renumber), [1] * 40)
    torch.testing.assert_close(one[0], expected, rtol=0, atol=1e-12)
    for chunk in (2, 7, 32):
        cache = make_cache(name, num_sinks, window, renumber)
        torch.testing.assert_close(streamed(layer, x, cache, cache.steps(40, chunk))[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MASKED)
def test_in_text_positions_a_stream_is_a_mask_of_sinks_and_window(name):
    """Two layers, token by token and, where a step may hold several, in chunks."""
    net, ids = decoder(name), torch.randint(5, (1, 16), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = net(ids, mask=Mask(causal=True, window=6, num_sinks=3))
        one = SinkWindowCache(3, 5, renumber=False)
        found = [torch.cat([net(ids[:, i : i + 1], cache=one) for i in range(16)], dim=1)]
        if streaming(net, 3, renumber=False)[0] == "chunks":
            cache, parts, start = SinkWindowCache(3, 5, renumber=False), [], 0
            for size in cache.steps(16, 7):
                parts.append(net(ids[:, start : start + size], cache=cache))
                start += size
            found.append(torch.cat(parts, dim=1))
    assert len(found) == 1 + (name != "diff_v1") and one.num_cached == 3 + 5 + 1
    for logits in found:
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["rope", "alibi", "goat"])
def test_sinks_and_places_are_two_questions(name):
    """The 2 x 2 of StreamingLLM: each of the four is something else, once tokens are evicted."""
    layer, x = make_layer(name, "line"), tokens(40, batch=1)
    outs = [
        streamed(layer, x, SinkWindowCache(num_sinks, 8 - num_sinks, renumber), [1] * 40)
        for num_sinks in (0, 3)
        for renumber in (True, False)
    ]
    for i, a in enumerate(outs):
        for b in outs[i + 1 :]:
            torch.testing.assert_close(a[:, :9], b[:, :9], rtol=0, atol=1e-12)
    without, without_in_text, kept, kept_in_text = (out[:, 20:] for out in outs)
    assert (without - kept).abs().max() > 1e-3 and (without_in_text - kept_in_text).abs().max() > 1e-3
    assert (kept - kept_in_text).abs().max() > 1e-3
    moved = (without - without_in_text).abs().max()  # without sinks only absolute places can tell, and rope and alibi have none
    assert moved > 1e-3 if name == "goat" else moved < 1e-12


@pytest.mark.parametrize("name", SUMMING)
def test_a_sum_over_evicted_tokens_has_no_place_in_the_text(name):
    net = decoder(name)
    how, why = streaming(net, 1, renumber=False)
    assert how == "no" and "sums over all tokens" in why and streaming(net)[0] == "tokens"


def test_dynamic_ntk_streams_token_by_token_only():
    """Its frequencies are those of the length, which in a chunk would be that of its last query."""
    layer, x = make_layer("rope", "line", scaling="ntk_dynamic"), tokens(12, batch=1)
    streamed(layer, x, SinkWindowCache(1, 4), [1] * 12)
    with pytest.raises(ValueError, match="token by token"):
        streamed(layer, x, SinkWindowCache(1, 4), [5, 7])


@pytest.mark.parametrize("name", IN_CHUNKS)
def test_chunks_equal_token_by_token_through_two_layers(name):
    """A deeper layer's keys were made under evicted tokens; they are the same numbers either way. Chunks and tokens may alternate."""
    net, ids = decoder(name), torch.randint(5, (2, 60), generator=torch.Generator().manual_seed(1))
    one, chunked = make_cache(name, 3, 8), make_cache(name, 3, 8)
    ahead = net.position.num_prefix_tokens
    with torch.inference_mode():
        expected = torch.cat([net(ids[:, i : i + 1], cache=one) for i in range(60)], dim=1)
        found, start = [], 0
        for size in [11 - ahead, 1, 16, 1, 1, 7, 23 + ahead]:
            found.append(net(ids[:, start : start + size], cache=chunked))
            start += size
    torch.testing.assert_close(torch.cat(found, dim=1), expected, rtol=0, atol=1e-10)
    assert chunked.num_tokens == one.num_tokens == 60 + ahead and chunked.num_cached == 3 + 8 + 23 + ahead and one.num_cached == 3 + 8 + 1
    with torch.inference_mode():
        plain = net(ids)
    torch.testing.assert_close(expected[:, : 12 - ahead], plain[:, : 12 - ahead], rtol=0, atol=1e-10)
    assert (expected[:, 30:] - plain[:, 30:]).abs().max() > 1e-6  # the eviction matters


@pytest.mark.parametrize("name", ONE_AT_A_TIME)
def test_what_goes_token_by_token_says_so(name):
    net, ids = decoder(name), torch.randint(5, (1, 14))
    assert streaming(net)[0] == "tokens"
    cache = SinkWindowCache(1, 4)
    with torch.inference_mode():
        for i in range(10):
            assert torch.isfinite(net(ids[:, i : i + 1], cache=cache)).all()
        with pytest.raises(ValueError, match="token by token"):
            net(ids[:, 10:], cache=cache)


@pytest.mark.parametrize("name", STREAMING)
def test_nothing_evicted_is_bit_for_bit_the_full_cache(name):
    layer, x = make_layer(name, "line"), tokens(12)
    for renumber in (True, False) if name in MASKED else (True,):
        for sizes in ([1] * 12, [12], [5, 1, 6]):
            cache = make_cache(name, 5, 7, renumber)
            assert torch.equal(streamed(layer, x, cache, sizes), streamed(layer, x, FullCache(), sizes))


def test_a_plain_mask_of_sinks_and_window_is_something_else():
    """With text positions the sinks' offsets grow for ever: the error that facts about StreamingLLM warn of."""
    layer, x = make_layer("rope", "line"), tokens(40, batch=1)
    masked = layer(x, Positions.line(40), Mask(causal=True, window=9, num_sinks=3))
    one = streamed(layer, x, SinkWindowCache(3, 8), [1] * 40)
    torch.testing.assert_close(one[:, :12], masked[:, :12], rtol=0, atol=1e-12)
    assert (one[:, 20:] - masked[:, 20:]).abs().max() > 1e-3


def test_slots_and_what_is_kept():
    cache = SinkWindowCache(2, 3)
    for i in range(20):
        k = torch.full((1, 1, 1, 2), float(i))
        out, keys, queries = cache.update(0, {"k": k}, Positions.line(1, offset=i))
        assert out["k"][0, 0, :, 0].tolist() == [j for j in range(i + 1) if j < 2 or j >= i - 3]
        assert keys.layout == Line(0, min(i, 5) + 1) and queries.layout == Line(min(i, 5), 1)
    assert list(cache.steps(7, 3)) == [3, 3, 1]
    cache.reset()
    assert cache.num_tokens == cache.num_cached == cache.num_bytes == 0
    assert list(cache.steps(14, 4)) == [4, 1, 4, 4, 1] and list(cache.steps(14, 100)) == [5, 9]


@pytest.mark.parametrize("name", EMBEDDED)
def test_positions_added_at_the_input_are_refused(name):
    layer, x = make_layer(name, "line"), tokens(3)
    with pytest.raises(ValueError, match="adds positions to the tokens at the input"):
        layer(x, Positions.line(3), CAUSAL, SinkWindowCache(1, 4))
    assert all(streaming_objection(make_layer(other, "line").scheme) is None for other in STREAMING)


def test_what_cannot_be_is_refused():
    layer, x = make_layer("rope", "line"), tokens(30)
    with pytest.raises(ValueError, match="at least 0 sinks"):
        SinkWindowCache(-1, 4)
    with pytest.raises(ValueError, match="window of at least 1"):
        SinkWindowCache(1, 0)
    with pytest.raises(ValueError, match="steps"):
        layer(x, Positions.line(30), CAUSAL, SinkWindowCache(1, 4))
    with pytest.raises(ValueError, match="without gaps"):
        layer(x, Positions.line(30, offset=2), CAUSAL, SinkWindowCache(1, 40))
    cache = SinkWindowCache(1, 4)
    streamed(layer, x, cache, [5, 25])
    with pytest.raises(ValueError, match="plainly causal"):
        layer(x[:, :3], Positions.line(3, offset=30), Mask(causal=True, window=2), cache)
    with pytest.raises(ValueError, match="another batch"):
        layer(x[:1, :1], Positions.line(1, offset=33), CAUSAL, cache)
    with pytest.raises(ValueError, match="call reset"):
        cache.update(0, {"k": x}, Positions.line(30, offset=34))


def test_training_is_possible_after_a_stream_under_inference_mode():
    layer, x = make_layer("goat", "line"), tokens(20)
    cache = SinkWindowCache(2, 4)
    with torch.inference_mode():
        streamed(layer, x, cache, [6, 14])
    layer(x, Positions.line(20), CAUSAL).sum().backward()
    assert all(p.grad is not None for p in layer.scheme.parameters())


def decoder(name: str, dtype: torch.dtype = torch.float64, **sizes) -> Decoder:
    torch.manual_seed(0)
    defaults = dict(vocab_size=5, num_scored=5, seq_len=16, embed_dim=32, depth=2, num_heads=2, mlp_ratio=2.0)
    net = Decoder(POSITION.get(name, name), OPTIONS.get(name), **{**defaults, **sizes}, **MODEL.get(name, {})).to(dtype).eval()
    for scheme in net.position_schemes():
        randomise(scheme)
    with torch.no_grad():
        net.token_embedding.weight.mul_(50)
    return net


def stream_bytes(net: Decoder, num_tokens: int, chunk: int) -> tuple[set[int], Tensor, Tensor]:
    """Allocated bytes seen in the second half of a stream of random tokens, their ids, and the last hidden state."""
    cache, seen, start = SinkWindowCache(4, 60), set(), 0
    ids = torch.randint(5, (1, num_tokens), generator=torch.Generator().manual_seed(0))
    for size in cache.steps(num_tokens, chunk):
        hidden = net.hidden(ids[:, start : start + size], cache=cache)
        start += size
        if start > num_tokens // 2:
            seen.add(cache.num_bytes)
    assert cache.num_tokens == num_tokens
    return seen, ids, hidden[:, -1]


def assert_constant_and_exact(name: str, num_tokens: int, chunk: int) -> None:
    """Memory; and the last token, which sees the first 4, the 60 before it and itself, has what a fresh stream of these alone gives it.
    One layer: in deeper ones what is kept was made under tokens that are gone."""
    net = decoder(name, torch.float32, depth=1)
    move(net, std=0.2)
    if name == "goat":
        with torch.no_grad():
            net.blocks[0].attn.scheme.slope_raw.fill_(-4.0)  # 0.018 nats a token: the first ones count
    fresh = lambda first, last: net.hidden(torch.cat((first, last), dim=1), cache=SinkWindowCache(4, 60))[:, -1]
    with torch.inference_mode():
        early, _, _ = stream_bytes(net, num_tokens // 50, chunk)
        late, ids, hidden = stream_bytes(net, num_tokens, chunk)
        first, last = ids[:, :4], ids[:, -61:]
        expected, without_the_first = fresh(first, last), fresh((first + 1) % 5, last)
    assert early == late and len(late) == 1
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-4)
    assert float((without_the_first - expected).abs().max()) > 1e-2


def test_memory_of_twenty_thousand_single_tokens_is_constant():
    cache, k, seen = SinkWindowCache(4, 60), torch.zeros(1, 1, 1, 8), set()
    for i in range(20_000):
        out, keys, _ = cache.update(0, {"k": k.fill_(i)}, Positions.line(1, offset=i))
        seen.add(cache.num_bytes)
        assert i < 64 or (out["k"].shape[2] == 65 and keys.layout == Line(0, 65))
    assert out["k"][0, 0, :, 0].tolist() == [0, 1, 2, 3, *range(20_000 - 61, 20_000)]
    slab, sinks = 2 * 65 * 8 * 4, 4 * 8 * 4  # twice S + W + 1 tokens, and the sinks once evicted from: 8 numbers of 4 bytes each
    assert seen == {slab, slab + sinks}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["goat", "rope"])
def test_a_decoder_reads_twenty_thousand_tokens_one_by_one_in_constant_memory(name):
    assert_constant_and_exact(name, 20_000, 1)


@pytest.mark.parametrize("name", ["goat", "rope"])
@pytest.mark.parametrize("num_tokens", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_tokens_in_chunks_in_constant_memory(name, num_tokens):
    assert_constant_and_exact(name, num_tokens, 256)
