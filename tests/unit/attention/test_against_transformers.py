"""Rows against the model code of the package transformers, with the same weights. Its rotations and softmax are in float32."""

import pytest
import torch
from attention_cases import make_scheme, randomise
from torch import Tensor
from transformers import BeitConfig, DiffLlamaConfig, GptOssConfig, LlamaConfig, T5Config
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, DiffLlamaRotaryEmbedding
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.t5.modeling_t5 import T5Attention

from goatbench.attention.inner.differential import DifferentialV1
from goatbench.attention.inner.softmax import Softmax
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.rotary import Rope
from goatbench.attention.scheme import ModelShape, Role

DIM, HEADS, KV_HEADS, HEAD_DIM, N, TRAINED = 24, 8, 4, 16, 70, 32
SHAPE = ModelShape(1, True, DIM, 4, HEADS, KV_HEADS, HEAD_DIM, (TRAINED,))
SIZES = dict(hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=TRAINED)
PLACES = torch.arange(N)[None]
FUTURE = torch.full((N, N), -torch.inf).triu(1)[None, None]


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_layer(scheme, inner=Softmax, layer_index: int = 0) -> SelfAttention:
    """Without biases; queries large, so that attention is far from uniform."""
    layer = SelfAttention(SHAPE, scheme, lanes="append", qkv_bias=False, inner=inner, layer_index=layer_index)
    randomise(layer.scheme)
    with torch.no_grad():
        layer.proj.bias.zero_()
        layer.q_proj.weight.mul_(4)
    return layer


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("none", {"rope_type": "default"}),
        ("pi", {"rope_type": "linear", "factor": 4.0}),
        ("ntk_dynamic", {"rope_type": "dynamic", "factor": 4.0}),
        ("yarn", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}),
        ("yarn_gpt_oss", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "truncate": False}),
    ],
)
def test_scaled_rotations_are_llamas(name, theirs):
    """Logits of 600 tokens after 512 of training, temperature included."""
    length, trained = 600, 512
    config = LlamaConfig(**{**SIZES, "max_position_embeddings": trained}, rope_parameters={"rope_theta": 1e4, **theirs})
    q, k = draw(2, 1, HEADS, length, HEAD_DIM).unbind()
    their_q, their_k = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, torch.arange(length)[None]))
    shape = ModelShape(1, True, DIM, 1, HEADS, HEADS, HEAD_DIM, (trained,))
    scheme, places = Rope(shape, scaling=name, factor=theirs.get("factor", 1.0)), Positions.line(length)
    temperature = scheme.temperature(places)
    our_q = scheme.rotate(q, places, Role.QUERY) * (1 if temperature is None else temperature[..., None])
    logits = our_q @ scheme.rotate(k, places, Role.KEY).mT
    torch.testing.assert_close(logits, their_q @ their_k.mT, rtol=1e-4, atol=5e-3)  # float32 phases of 600 rad: 3e-5 each
    plain = Rope(shape)
    other = plain.rotate(q, places, Role.QUERY) @ plain.rotate(k, places, Role.KEY).mT
    assert name == "none" or float((logits - other).abs().max()) > 0.5


def llamas(length: int, factor: float) -> tuple[Tensor, SelfAttention, Tensor]:
    """Tokens, our layer of plain RoPE with Llama's weights, and the output of Llama's attention under dynamic NTK."""
    config = LlamaConfig(**SIZES, rope_parameters={"rope_theta": 1e4, "rope_type": "dynamic", "factor": factor})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    ours, theirs, x = make_layer(make_scheme("rope", SHAPE)), LlamaAttention(config, 0), draw(2, length, DIM)
    future = torch.full((length, length), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        for their, our in ((theirs.q_proj, ours.q_proj), (theirs.k_proj, ours.k_proj), (theirs.v_proj, ours.v_proj)):
            their.weight.copy_(our.weight)
        theirs.o_proj.weight.copy_(ours.proj.weight)
        return x, ours, theirs(x, LlamaRotaryEmbedding(config)(x, torch.arange(length)[None]), future)[0]


@pytest.mark.parametrize("length", [TRAINED // 2, TRAINED, TRAINED + 1, 2 * TRAINED, 4 * TRAINED])
def test_dynamic_ntk_is_llamas_at_each_length(length):
    """Trained with it, for a factor of 4: unscaled up to the training length. Evaluated with it, for a factor of 1: the variant ntk that
    the tasks measure at this length, whose factor is length / training length."""
    places, causal = Positions.line(length), Mask(causal=True)
    with torch.no_grad():
        x, ours, expected = llamas(length, 4.0)
        plain = ours(x, places, causal)
        with ours.scheme.length_variant("ntk_dynamic", 4.0):
            torch.testing.assert_close(ours(x, places, causal), expected, rtol=1e-4, atol=2e-5)
        x, ours, expected = llamas(length, 1.0)
        with ours.scheme.length_variant("ntk", max(length / TRAINED, 1.0)):
            torch.testing.assert_close(ours(x, places, causal), expected, rtol=1e-4, atol=2e-5)
    assert length <= TRAINED + 1 or float((plain - expected).abs().max()) > 1e-3


def test_rope_with_sinks_is_gpt_oss():
    """Grouped key heads, base 150,000, YaRN by 32 without whole planes, a learned sink per query head."""
    parameters = {"rope_type": "yarn", "rope_theta": 150_000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    parameters["original_max_position_embeddings"] = TRAINED
    config = GptOssConfig(**SIZES, num_hidden_layers=1, attention_bias=False, rope_parameters=parameters)
    config._attn_implementation = "eager"
    options = {"base": 150_000.0, "scaling": "yarn_gpt_oss", "factor": 32.0}
    ours, theirs, x = make_layer(make_scheme("rope+sink_scalar", SHAPE, **options)), GptOssAttention(config, 0), draw(2, N, DIM)
    with torch.no_grad():
        for their, our in ((theirs.q_proj, ours.q_proj), (theirs.k_proj, ours.k_proj), (theirs.v_proj, ours.v_proj)):
            their.weight.copy_(our.weight)
        theirs.o_proj.weight.copy_(ours.proj.weight)
        theirs.sinks.copy_(ours.scheme.parts[1].sink)
        expected, _ = theirs(x, GptOssRotaryEmbedding(config)(x, PLACES), FUTURE)
        found = ours(x, Positions.line(N), Mask(causal=True))
        ours.scheme.parts[1].sink.fill_(-100.0)
        without = ours(x, Positions.line(N), Mask(causal=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert float((without - expected).abs().max()) > 0.01


def test_differential_attention_is_diffllamas():
    """Theirs pairs heads h and h + H/2 where ours pairs neighbours; the halves of a value are two of their value heads."""
    index = 2
    config = DiffLlamaConfig(**SIZES, num_hidden_layers=4, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    ours = make_layer(Rope(DifferentialV1.scheme_shape(SHAPE)), DifferentialV1, index)
    theirs, x = DiffLlamaAttention(config, index), draw(2, N, DIM)
    halves = lambda weight, heads: weight.unflatten(0, (heads // 2, 2, HEAD_DIM)).transpose(0, 1).flatten(0, 2)
    with torch.no_grad():
        ours.inner.norm.eps = config.rms_norm_eps
        theirs.q_proj.weight.copy_(halves(ours.q_proj.weight, HEADS))
        theirs.k_proj.weight.copy_(halves(ours.k_proj.weight, KV_HEADS))
        theirs.v_proj.weight.copy_(halves(ours.v_proj.weight, KV_HEADS))
        theirs.o_proj.weight.copy_(ours.proj.weight)
        for vector in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            getattr(theirs, vector).copy_(getattr(ours.inner, vector))
        expected, _ = theirs(x, DiffLlamaRotaryEmbedding(config)(x, PLACES), FUTURE)
        found = ours(x, Positions.line(N), Mask(causal=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    assert theirs.groupnorm.weight is None and (ours.inner.norm.weight == 1).all()  # ours is theirs as long as it is not trained


@pytest.mark.parametrize("causal", [True, False])
def test_t5_bias_is_t5s(causal):
    """In a decoder buckets of the past only, in an encoder half of them for each side."""
    config = T5Config(d_model=DIM, d_kv=HEAD_DIM, num_heads=HEADS, is_decoder=causal, relative_attention_max_distance=64)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    shape = ModelShape(1, causal, DIM, 1, HEADS, HEADS, HEAD_DIM, (TRAINED,))
    scheme = make_scheme("t5", shape, max_distance=64)
    with torch.no_grad():
        scheme.table.normal_()
        theirs.relative_attention_bias.weight.copy_(scheme.table)
        places = Positions.line(150)
        found = scheme.prior(places, places).dense(HEADS, 150, 150)
        torch.testing.assert_close(found, theirs.compute_bias(150, 150), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("package", "heads"), [("mpt", 8), ("bloom", 8), ("bloom", 12)])
def test_alibi_is_mpts_and_blooms_up_to_row_constants(package, heads):
    """Theirs count from one end of the text, which softmax does not see. For other than powers of two MPT orders slopes its own way."""
    shape, places = ModelShape(1, True, 8 * heads, 1, heads, heads, 8, (TRAINED,)), Positions.line(N)
    ours = make_scheme("alibi", shape).prior(places, places).dense(heads, N, N, dtype=torch.float64)[0]
    if package == "mpt":
        theirs = build_mpt_alibi_tensor(heads, N).double()
    else:
        theirs = build_alibi_tensor(torch.ones(1, N), heads, torch.float64)
    past = FUTURE[0].double()
    torch.testing.assert_close((ours + past).softmax(-1), (theirs + past).softmax(-1), rtol=1e-5, atol=1e-7)
    assert float((ours + past).softmax(-1)[:, -1].max()) > 0.3


@pytest.mark.parametrize("package", ["swin", "beit"])
def test_relative_table_is_swins_and_beits(package):
    """The order of offsets in the table; BEiT's has three more entries for its class token."""
    side, num_prefix = 5, int(package == "beit")
    scheme = make_scheme("rpb", ModelShape(2, False, DIM, 1, HEADS, HEADS, HEAD_DIM, (side, side), num_prefix))
    randomise(scheme)
    places = Positions.grid(side, side, num_prefix)
    with torch.no_grad():
        rows = [scheme.table.flatten(0, 1)]
        if package == "swin":
            theirs = SwinRelativePositionBias(HEADS, (side, side))
            call = theirs
        else:
            rows.append(scheme.prefix_rows)
            theirs = BeitRelativePositionBias(BeitConfig(image_size=10 * side, patch_size=10, num_attention_heads=HEADS, hidden_size=HEADS))
            call = lambda: theirs((side, side))
        theirs.relative_position_bias_table.copy_(torch.cat(rows))
        found = scheme.prior(places, places).dense(HEADS, places.num_tokens, places.num_tokens)
        torch.testing.assert_close(found, call(), rtol=0, atol=1e-6)
