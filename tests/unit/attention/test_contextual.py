"""CoPE against its equations, gate by gate, and what makes it contextual."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from attention_cases import EMBED_DIM, assert_close, tokens

from goatbench.attention.cache import FullCache
from goatbench.attention.inner.contextual import Contextual
from goatbench.attention.kernels import Auto, Reference
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import ModelShape, NoPosition

HEADS, KV_HEADS, HEAD_DIM, N = 4, 2, 8, 11
SHAPE = ModelShape(1, True, EMBED_DIM, 1, HEADS, KV_HEADS, HEAD_DIM, (64,))
CAUSAL = Mask(causal=True)


def make(num_positions: int = 4, kernel=None, std: float = 1.0) -> SelfAttention:
    torch.manual_seed(0)
    layer = SelfAttention(SHAPE, NoPosition(SHAPE), kernel, inner=partial(Contextual, num_positions=num_positions)).double()
    with torch.no_grad():
        layer.inner.table.normal_(std=std)
        layer.q_proj.weight.mul_(3)
    return layer


def by_hand(layer: SelfAttention, x: torch.Tensor) -> torch.Tensor:
    """Plain loops over queries and keys; the gates of later keys are not there at all."""
    split = lambda t, heads: t.unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = (split(p(x), h) for p, h in ((layer.q_proj, HEADS), (layer.k_proj, KV_HEADS), (layer.v_proj, KV_HEADS)))
    table, last = layer.inner.table, layer.inner.num_positions - 1
    rows = []
    for b in range(len(x)):
        for h in range(HEADS):
            for i in range(x.shape[1]):
                logits = [q[b, h, i] @ k[b, h // 2, j] / math.sqrt(HEAD_DIM) for j in range(i + 1)]
                place, with_place = 0.0, [None] * (i + 1)
                for j in range(i, -1, -1):
                    place = place + torch.sigmoid(logits[j])
                    p = torch.clamp(place, max=last)
                    low = math.floor(float(p.detach()))
                    w = p - low
                    e = (1 - w) * table[low] + w * table[min(low + 1, last)]
                    with_place[j] = logits[j] + q[b, h, i] @ e
                rows.append(torch.stack(with_place).softmax(0) @ v[b, h // 2, : i + 1])
    out = torch.stack(rows).view(len(x), HEADS, x.shape[1], HEAD_DIM)
    return layer.proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kernel", [Auto(), Reference()])
def test_output_and_gradients_are_the_definition(kernel):
    layer, x = make(kernel=kernel), tokens(N).requires_grad_()
    actual, expected = layer(x, Positions.line(N), CAUSAL), by_hand(layer, x)
    assert_close(actual, expected, atol=1e-12)
    weight = tokens(N, seed=5)
    inputs = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(actual, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True):
        assert_close(a, b, atol=1e-10)


def test_at_its_initial_table_it_is_plain_attention():
    layer, x = make(std=0.0), tokens(N)
    plain = SelfAttention(SHAPE, NoPosition(SHAPE)).double()
    plain.load_state_dict({name: t for name, t in layer.state_dict().items() if name != "inner.table"})
    assert_close(layer(x, Positions.line(N), CAUSAL), plain(x, Positions.line(N), CAUSAL), atol=1e-13)
    assert (SelfAttention(SHAPE, NoPosition(SHAPE), inner=Contextual).inner.table == 0).all()


def test_a_later_token_changes_nothing_before_it():
    """Through the gates neither: they are masked before they are summed."""
    layer, x = make(), tokens(N)
    changed = x.clone()
    changed[:, 6] += 1
    before, after = (layer(t, Positions.line(N), CAUSAL) for t in (x, changed))
    assert torch.equal(before[:, :6], after[:, :6]) and ((before - after)[:, 6:].abs().amax(-1) > 0).all()


def test_decoding_in_chunks_and_a_left_padded_batch_equal_one_pass():
    layer, x = make(), tokens(N)
    expected, cache, parts, start = layer(x, Positions.line(N), CAUSAL).detach(), FullCache(), [], 0
    for length in (4, 1, 1, 3, 2):
        with torch.no_grad():
            parts.append(layer(x[:, start : start + length], Positions.line(length, start), CAUSAL, cache))
        start += length
    assert_close(torch.cat(parts, dim=1), expected)
    order = torch.arange(N + 3)[None] - 3
    padded = torch.cat((tokens(3, seed=8), x), dim=1)
    assert_close(layer(padded, Positions.scattered(order), Mask(causal=True, key_valid=order >= 0))[:, 3:], expected)


def test_too_many_logits_and_bidirectional_attention_are_refused():
    layer = make()
    with pytest.raises(ValueError, match="causal sequences only"):
        Contextual(replace(SHAPE, causal=False), 0, Auto())
    with pytest.raises(ValueError, match="logits written out, the limit is"):  # before one of them is
        layer(tokens(2**13 + 1, batch=1), Positions.line(2**13 + 1), CAUSAL)
