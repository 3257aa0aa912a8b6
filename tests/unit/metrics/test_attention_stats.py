"""Statistics of attention: against a dense softmax in float64, in blocks as at once, and the closed forms of uniform attention."""

from __future__ import annotations

import math

import pytest
import torch
from attention_cases import GRIDS, OPTIONS, randomise

from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import Role
from goatbench.metrics import attention_stats as module
from goatbench.metrics.attention_stats import attention_stats
from goatbench.models import Decoder
from goatbench.training.live_storages import LiveStorages

LENGTH, RECENT = 33, 8
FIELDS = ("first_mass", "max_mass", "entropy_nats", "entropy_share", "recent_mass", "sink_mass", "distance", "distance_share")
NAMES = ["nope", "rope", "goat", "goat_reference", "alibi", "t5", "bam", "sink_scalar"]  # content, lanes, biases, a temperature, a sink
NAMES += ["fox", "cable", "alibi+sink_scalar", "goat+sink_scalar"]  # terms of single tokens, lanes of a row beside a sink


def decoder(name: str, **sizes) -> Decoder:
    torch.manual_seed(0)
    defaults = dict(vocab_size=5, num_scored=5, seq_len=48, embed_dim=64, depth=2, num_heads=2, mlp_ratio=2.0)
    net = Decoder(name, OPTIONS.get(name), **{**defaults, **sizes}).double()
    for scheme in net.position_schemes():
        randomise(scheme)
    with torch.no_grad():
        net.token_embedding.weight.mul_(50)
        for block in net.blocks:  # clear preferences
            block.attn.q_proj.weight.mul_(20)
            block.attn.k_proj.weight.mul_(20)
    return net


def tokens(batch: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(5, (batch, length), generator=torch.Generator().manual_seed(1))


def dense_rows(net: Decoder, ids: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Layer by layer the whole matrix of probabilities [B, H, Q, 1 + K], the sink first: plain softmax over everything. And the largest
    norm of a token behind each layer."""
    length, found, norms = ids.shape[1], [], []
    positions = Positions.line(length)
    x = net.position.embed(net.token_embedding(ids), positions)
    for block in net.blocks:
        attn, y = block.attn, block.norm1(x)
        heads = lambda t, n: t.unflatten(-1, (n, -1)).transpose(1, 2)
        q = attn.scheme.rotate(heads(attn.q_proj(y), attn.head_layout.num_q), positions, Role.QUERY)
        k = attn.scheme.rotate(heads(attn.k_proj(y), attn.head_layout.num_k), positions, Role.KEY)
        prior, temperature = attn.scheme.prior(positions, positions, attn.scheme.token_state(y)), attn.scheme.temperature(positions)
        q = q if temperature is None else q * temperature[..., None]
        logits = q @ k.transpose(-1, -2) * attn.scale + prior.dense(2, length, length, dtype=torch.float64)
        logits = logits.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        sink = torch.full((2,), -math.inf) if prior.sink is None else prior.sink
        column = sink.double()[None, :, None, None].expand(len(ids), 2, length, 1)
        found.append(torch.cat((column, logits), dim=-1).softmax(-1))
        x = block(x, positions, Mask(causal=True))
        norms.append(x.square().sum(-1).sqrt().max())
    return found, torch.stack(norms)


def expected_stats(p: torch.Tensor) -> dict[str, torch.Tensor]:
    """From one layer's matrix, row by row."""
    rows = {name: [] for name in FIELDS}
    for i in range(p.shape[2]):
        sink, keys = p[:, :, i, 0], p[:, :, i, 1 : i + 2]
        given = keys / keys.sum(-1, keepdim=True)
        entropy = -(given * given.log()).sum(-1)
        rows["sink_mass"].append(sink)
        if i >= 1:
            distance = (given * torch.arange(i, -1, -1)).sum(-1)
            rows["distance"].append(distance)
            rows["distance_share"].append(distance / i)
            rows["first_mass"].append(keys[..., 0])
            rows["max_mass"].append(keys.amax(-1))
            rows["entropy_nats"].append(entropy)
            rows["entropy_share"].append(entropy / math.log(i + 1))
        if i >= RECENT:
            rows["recent_mass"].append(keys[..., -RECENT:].sum(-1))
    return {name: torch.stack(values).mean((0, 1)) for name, values in rows.items()}


@pytest.mark.parametrize("block_logits", [2 * 2 * LENGTH * 5, 2**22])  # five queries, all at once
@pytest.mark.parametrize("name", NAMES)
def test_blocks_equal_a_dense_softmax(name, block_logits, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_LOGITS", block_logits)
    net, ids = decoder(name), tokens()
    with torch.no_grad():
        rows, norms = dense_rows(net, ids)
    expected = [expected_stats(p) for p in rows]
    found = attention_stats(net, ids, recent=RECENT)
    for field in FIELDS:
        value = getattr(found, field)
        torch.testing.assert_close(value, torch.stack([layer[field] for layer in expected]), rtol=0, atol=1e-10)
    torch.testing.assert_close(found.largest_norm, norms, rtol=1e-10, atol=0)
    assert (found.num_rows, found.num_recent_rows) == (2 * (LENGTH - 1), 2 * (LENGTH - RECENT))
    assert (found.sink_mass > 0.01).all() if name.endswith("sink_scalar") else (found.sink_mass.abs() < 1e-12).all()
    assert net.training and net.blocks[0].attn.kernel.name == "auto"  # left as it was


def test_uniform_attention_has_the_closed_forms():
    net = decoder("nope")
    with torch.no_grad():
        for block in net.blocks:
            block.attn.q_proj.weight.zero_()
    found = attention_stats(net, tokens(), recent=RECENT)
    seen = range(2, LENGTH + 1)  # visible keys of row 1, 2, ...
    mean = lambda values: torch.full((2, 2), sum(values) / len(values), dtype=torch.float64)
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    close(found.entropy_nats, mean([math.log(n) for n in seen]))
    close(found.entropy_share, torch.ones(2, 2, dtype=torch.float64))
    close(found.first_mass, mean([1 / n for n in seen]))
    close(found.max_mass, mean([1 / n for n in seen]))
    close(found.distance, mean([(n - 1) / 2 for n in seen]))
    close(found.distance_share, mean([0.5 for _ in seen]))
    close(found.recent_mass, mean([RECENT / n for n in range(RECENT + 1, LENGTH + 1)]))


def test_rows_that_are_trivially_one_are_left_out():
    found = attention_stats(decoder("alibi"), tokens(length=RECENT), recent=RECENT)
    assert found.num_recent_rows == 0 and found.recent_mass.isnan().all() and found.first_mass.isfinite().all()
    with pytest.raises(ValueError, match="recent = 0"):
        attention_stats(decoder("alibi"), tokens(), recent=0)


def test_one_query_at_a_time(monkeypatch):
    net, ids = decoder("alibi", depth=1), tokens(1)
    whole = attention_stats(net, ids, recent=RECENT)
    monkeypatch.setattr(module, "BLOCK_LOGITS", 1)
    torch.testing.assert_close(attention_stats(net, ids, recent=RECENT).distance, whole.distance, rtol=0, atol=1e-12)


def live_bytes(name: str, length: int) -> int:
    """The most that storages hold at once, of one sequence and one layer of two heads."""
    net = decoder(name, embed_dim=32, depth=1, mlp_ratio=1.0).float()
    with LiveStorages() as live:
        attention_stats(net, tokens(1, length), recent=RECENT)
    return live.peak


@pytest.mark.parametrize("name", ["rope", "goat", "sink_scalar", "t5", "fire", "fox"])
def test_no_map_of_queries_by_keys_is_ever_held(name, monkeypatch):
    """Not with one byte an entry; all at once every entry takes several numbers."""
    monkeypatch.setattr(module, "BLOCK_LOGITS", 2**17)
    assert live_bytes(name, 4096) < 4096**2
    monkeypatch.setattr(module, "BLOCK_LOGITS", 2**40)
    assert live_bytes(name, 512) > 2 * 8 * 512**2


@pytest.mark.parametrize(("inner", "name"), [("multi_token", "MultiToken"), ("differential_v1", "DifferentialV1")])
def test_rows_that_do_not_sum_to_one_are_refused_by_name(inner, name):
    torch.manual_seed(0)
    net = Decoder("rope", vocab_size=5, num_scored=5, seq_len=48, embed_dim=64, depth=1, num_heads=2, inner=inner)
    with pytest.raises(ValueError, match=f"^{name} has no rows of probabilities"):
        attention_stats(net, tokens())


def test_tokens_before_the_sequence_have_no_distance():
    """Behind a learned token that takes all the attention, distances are those among the others."""
    net = decoder("sink_token", depth=1)
    with torch.no_grad():
        for parameter in (net.blocks[0].attn.q_proj.weight, net.blocks[0].attn.k_proj.weight):
            parameter.zero_()
    found = attention_stats(net, tokens(), recent=RECENT)
    # the learned token's own row sees 1 key; row i of the sequence sees the token and i + 1 keys, all with equal mass
    expected = sum(i / 2 for i in range(LENGTH)) / LENGTH
    torch.testing.assert_close(found.distance, torch.full((1, 2), expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_elementwise_biases_know_which_query_they_are_asked_about(monkeypatch):
    """A ViT with 2D ALiBi: in blocks as at once, and every row sums to 1."""
    assert "alibi_2d" in GRIDS
    from goatbench.models import GoatViT

    torch.manual_seed(0)
    net = GoatViT("alibi_2d", img_size=24, patch_size=4, embed_dim=64, depth=1, num_heads=2, num_classes=3).double()
    images = torch.randn(1, 3, 24, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = attention_stats(net, images, recent=37)
    monkeypatch.setattr(module, "BLOCK_LOGITS", 5 * 2 * 37)
    parts = attention_stats(net, images, recent=36)
    torch.testing.assert_close(parts.entropy_nats, whole.entropy_nats, rtol=0, atol=1e-12)
    torch.testing.assert_close(parts.recent_mass + parts.first_mass, torch.ones(1, 2, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_class_token_of_a_vit_is_a_key_and_has_no_place():
    """Uniform attention over CLS and 3 x 4 patches: a thirteenth for each; distances are those among patches, by hand."""
    from goatbench.models import GoatViT

    torch.manual_seed(0)
    net = GoatViT("nope", img_size=(12, 16), patch_size=4, embed_dim=64, depth=1, num_heads=2, num_classes=3).double()
    with torch.no_grad():
        net.blocks[0].attn.q_proj.weight.zero_()
        net.blocks[0].attn.q_proj.bias.zero_()
    found = attention_stats(net, torch.randn(2, 3, 12, 16, dtype=torch.float64), recent=1)
    places = [(y, x) for y in range(3) for x in range(4)]
    rows = [[math.dist(p, q) for q in places] for p in places]
    mean, share = (sum(values) / 12 for values in ([sum(row) / 12 for row in rows], [sum(row) / 12 / max(row) for row in rows]))
    for field, value in (("first_mass", 1 / 13), ("entropy_share", 1.0), ("distance", mean), ("distance_share", share)):
        torch.testing.assert_close(getattr(found, field), torch.full((1, 2), value, dtype=torch.float64), rtol=0, atol=1e-12)
