"""Rows against x-transformers' attention with the same weights: outputs and input gradients. Its softmax is in float32."""

from functools import partial

import pytest
import torch
from attention_cases import make_inner, make_scheme, move, randomise
from torch import Tensor
from x_transformers import x_transformers as library

from goatbench.attention.inner.contextual import Contextual
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import ModelShape

DIM, HEADS, HEAD_DIM, N = 24, 4, 16, 150  # beyond T5's last bucket
SHAPE = ModelShape(1, True, DIM, 1, HEADS, HEADS, HEAD_DIM, (64,))
INTERLEAVED = torch.cat((torch.arange(0, HEAD_DIM, 2), torch.arange(1, HEAD_DIM, 2)))  # our dim d is their dim INTERLEAVED[d]
ROWS = {  # row -> arguments of their attention
    "alibi": {},
    "t5": {},
    "rope": {},
    "rope_xpos": {},
    "softmax1": {"add_zero_kv": True},
    "sink_scalar": {"head_learned_sink": True},
    "alibi+sink_scalar": {"head_learned_sink": True},
    "fox": {"data_dependent_alibi": True},
    "cable": {"data_dependent_alibi": True},
    "cope": {"use_cope": True, "cope_max_pos": 5},
    "talking_heads": {"pre_talking_heads": True, "post_talking_heads": True},
    "gated_headwise": {"gate_values": True, "gate_values_headwise": True},
    "gated_elementwise": {"gate_values": True},
}
ROTATED = ("rope", "rope_xpos", "talking_heads")


def make_ours(name: str) -> SelfAttention:
    """float64, no bias anywhere, all content dims kept; gated rows without the rotation that their configs have."""
    torch.manual_seed(0)
    gate = name.removeprefix("gated_") if "gated" in name else "none"
    scheme = make_scheme("nope" if "gated" in name else name, SHAPE)
    inner = partial(Contextual, num_positions=5) if name == "cope" else make_inner(name)
    layer = SelfAttention(SHAPE, scheme, lanes="append", qkv_bias=False, inner=inner, gate=gate).double()
    randomise(layer.scheme)
    move(layer.inner, std=0.5)
    with torch.no_grad():
        layer.proj.bias.zero_()
        layer.q_proj.weight.mul_(3)
    return layer


def make_theirs(name: str, ours: SelfAttention) -> library.Attention:
    theirs = library.Attention(DIM, dim_head=HEAD_DIM, heads=HEADS, causal=True, **ROWS[name]).double()
    pairs = [(theirs.to_q, ours.q_proj), (theirs.to_k, ours.k_proj), (theirs.to_v, ours.v_proj), (theirs.to_out, ours.proj)]
    with torch.no_grad():
        for their, our in pairs:
            their.weight.copy_(our.weight)
        if name in ROTATED:
            for their, our in pairs[:2]:
                their.weight.unflatten(0, (HEADS, HEAD_DIM))[:, INTERLEAVED] = our.weight.unflatten(0, (HEADS, HEAD_DIM))
        copy_parameters(name, theirs, ours)
    return theirs


def copy_parameters(name: str, theirs: library.Attention, ours: SelfAttention) -> None:
    """Of the mechanism itself."""
    parameters = dict(ours.scheme.named_parameters())
    if "sink_scalar" in name:
        theirs.attend.head_attn_sink.copy_(next(p for key, p in parameters.items() if key.endswith("sink")))
    if name in ("fox", "cable"):
        gates, sign = theirs.data_dependent_alibi.to_forget_gates[0], 1 if name == "fox" else -1
        gates.weight.copy_(sign * parameters["gate.weight"])
        gates.bias.copy_(sign * parameters["gate.bias"])
    if name == "cope":
        theirs.attend.cope.pos_emb.copy_(ours.inner.table)
    if name == "talking_heads":  # theirs adds the mixture before the softmax to the logits
        theirs.attend.pre_softmax_talking_heads.weight.copy_((ours.inner.mixer_before[0] - torch.eye(HEADS))[..., None, None])
        theirs.attend.post_softmax_talking_heads.weight.copy_(ours.inner.mixer_after[0][..., None, None])
    if "gated" in name:
        theirs.to_v_gate.weight.copy_(ours.gate.weight)


def positions_of_theirs(name: str, ours: SelfAttention) -> dict[str, object]:
    """What their layer stack hands to each attention."""
    if "alibi" in name:
        return {"attn_bias": library.AlibiPositionalBias(HEADS)(N, N).double()}
    if name == "t5":
        bias = library.RelativePositionBias(scale=1.0, causal=True, num_buckets=32, max_distance=128, heads=HEADS).double()
        bias.relative_attention_bias.weight.data.copy_(ours.scheme.table)
        return {"attn_bias": bias(N, N)}
    if name in ROTATED:
        return {"rotary_pos_emb": library.RotaryEmbedding(HEAD_DIM, use_xpos=name == "rope_xpos").double().forward_from_seq_len(N)}
    return {}


def with_gradient(attend, x: Tensor) -> tuple[Tensor, Tensor]:
    out = attend(x)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=out.dtype)
    return out, torch.autograd.grad(out, x, weight)[0]


@pytest.mark.parametrize("name", ROWS)
def test_row_is_that_of_x_transformers(name):
    ours = make_ours(name)
    theirs, where = make_theirs(name, ours), positions_of_theirs(name, ours)
    x = torch.randn(2, N, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    attend = lambda layer: lambda t: layer(t, Positions.line(N), Mask(causal=True))
    found, gradient = with_gradient(attend(ours), x)
    expected, expected_gradient = with_gradient(lambda t: theirs(t, **where), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=3e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=3e-5)
    plain = SelfAttention(SHAPE, make_scheme("nope", SHAPE), qkv_bias=False).double()
    plain.load_state_dict({key: t for key, t in ours.state_dict().items() if key in plain.state_dict()})
    assert float((attend(plain)(x) - expected).detach().abs().max()) > 0.01


@pytest.mark.parametrize("heads", [4, 6, 12])
def test_alibi_slopes_are_theirs_for_any_number_of_heads(heads):
    shape = ModelShape(1, True, 8 * heads, 1, heads, heads, 8, (64,))
    prior = make_scheme("alibi", shape).prior(Positions.line(N), Positions.line(N)).dense(heads, N, N, dtype=torch.float64)[0]
    expected = library.AlibiPositionalBias(heads)(N, N).double()
    past = torch.ones(N, N, dtype=torch.bool).tril()
    torch.testing.assert_close(prior.masked_fill(~past, 0), expected.masked_fill(~past, 0), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("offset", [0, 1000])
def test_sinusoids_are_theirs_at_their_amplitude(offset):
    """All sines, then all cosines; theirs starts at C^-0.5 and learns it, ours is fixed. Their phases are in float32."""
    theirs = library.ScaledSinusoidalEmbedding(DIM).double()
    tokens = torch.zeros(1, N, DIM, dtype=torch.float64)
    found = make_scheme("sinusoidal", SHAPE, amplitude=DIM**-0.5).embed(tokens, Positions.line(N, offset))[0]
    with torch.no_grad():
        torch.testing.assert_close(found, theirs(tokens, offset=offset), rtol=0, atol=1e-4)
    assert make_scheme("sinusoidal", SHAPE).amplitude == SHAPE.embedding_std  # unless told otherwise, as large as the tokens
