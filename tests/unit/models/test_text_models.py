"""The text decoders that nobody builds on a CPU: their sizes, on the meta device, against a formula; and what they are trained by."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.config_tree import ConfigTree
from goatbench.models import build_decoder
from goatbench.plan.memory import build_undrawn
from goatbench.registry import tasks
from goatbench.training.optim import warmup_steps

TREE = ConfigTree.find()
GPT2 = ["data.tokenizer=gpt2", "data.tokenizer_file=folder"]


@pytest.mark.parametrize(
    ("name", "overrides", "attention", "millions"),
    [
        ("decoder_text_5m", [], "rope", 4.855),
        ("decoder_text_85m", [], "rope", 85.3),
        ("decoder_c4_125m", GPT2, "rope", 123.6),  # the published model has 123.6 M
        ("decoder_c4_125m", GPT2, "alibi", 123.1),
        ("decoder_fineweb_1b", GPT2, "rope", 1227.1),
    ],
)
def test_parameter_counts(name, overrides, attention, millions, monkeypatch):
    """Embedding V C (once if tied), head bias V, last norm C; a layer: two norms 2 C, q and k C H D each, v C^2, output C^2 + C, and
    an MLP 2 C m. D is what the lanes leave of the head width: all of it for rope, two less for alibi."""
    spec = compose(["task=lm_length", f"model={name}", f"attention={attention}", *overrides]).spec
    m = spec.model
    monkeypatch.setattr(torch, "randint", lambda *_: 0)  # the seed of the weights, which the meta device cannot give
    with torch.device("meta"):
        net = build_decoder(m, spec.attention)
    content = m.num_heads * (m.embed_dim // m.num_heads - (2 if attention == "alibi" else 0))
    attention_weights = 2 * m.embed_dim * content + 2 * m.embed_dim**2 + m.embed_dim
    layer = 2 * m.embed_dim + attention_weights + 2 * m.embed_dim * round(m.mlp_ratio * m.embed_dim)
    expected = m.vocab_size * m.embed_dim * (1 if m.tie_embeddings else 2) + m.vocab_size + m.embed_dim + m.depth * layer
    assert sum(p.numel() for p in net.parameters()) == expected == pytest.approx(millions * 1e6, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "embed_dim", "depth", "num_heads"),
    [("300m", 1024, 20, 16), ("550m", 1280, 24, 10), ("880m", 1536, 24, 16), ("1b", 2048, 24, 16)],
)
def test_the_released_sizes_of_multi_token_attention(name, embed_dim, depth, num_heads):
    """By the command in their files: key-query convolutions of 6 x 11 in layers 2, 6, ..., heads mixed, norm and gate everywhere."""
    command = TREE.comment("model", f"decoder_mta_{name}")[0].split()
    assert command[:2] == ["goatbench", "run"]
    spec = compose(command[2:]).spec
    assert spec.model.name == f"decoder_mta_{name}" and spec.attention.options["base"] == 1e5 and spec.model.tie_embeddings
    layers = build_undrawn(spec).attention_layers
    assert (len(layers), layers[0].shape.num_heads, layers[0].shape.embed_dim, spec.model.seq_len) == (depth, num_heads, embed_dim, 2048)
    convolving = [layer for layer in layers if layer.inner.kernel_before is not None]
    assert [layer.layer_index for layer in convolving] == list(range(2, depth, 4))
    assert {layer.inner.kernel_before.shape for layer in convolving} == {(num_heads, 6, 11)}
    extra = sum(p.numel() for layer in layers for p in layer.inner.parameters())
    head_dim = embed_dim // num_heads
    assert extra == depth * (2 * num_heads * (6 * 11 / 4 + num_heads) + 2 * head_dim + 1)  # a quarter of the layers convolves


@pytest.mark.parametrize(
    "attention",
    [["goat", "attention.options_1d.num_frequencies=4"], ["goat_reference", "attention.options_1d.pos_rank=4"], ["rope"], ["alibi"]],
)
def test_the_published_recipe_of_c4(attention):
    """4e9 tokens, 16 x 2,048 a step, 2,000 steps of warm-up to 1e-4, cosine to 3e-5, and validation every 2,000 steps on 100 windows."""
    name, *options = attention
    given = ["data.path=c4", "data.tokenizer_file=folder", f"attention={name}", *options]
    spec = compose(["task=lm_length", "scale=paper", "recipe=goat_c4", *given]).spec
    training, data, model = spec.training, spec.data, spec.model
    assert (data.name, data.tokenizer, data.packing, data.num_validation) == ("c4", "gpt2", "concat", 100)
    assert (model.name, model.seq_len, training.batch_size) == ("decoder_c4_125m", 2048, 16)
    steps = training.epochs * (data.num_train // training.batch_size)
    assert data.num_train == 2000 * training.batch_size and steps * 16 * 2048 == pytest.approx(4e9, rel=1e-3)
    assert warmup_steps(training, steps) == 2000
    assert (spec.learning_rate, spec.learning_rate_source) == (1e-4, "given")
    assert spec.learning_rate * training.min_learning_rate_ratio == pytest.approx(3e-5, rel=1e-12)
    assert (training.optimizer, training.betas, training.weight_decay, training.clip_norm) == ("adamw", (0.9, 0.95), 0.1, 1.0)
    assert spec.trainer.precision == "bf16-mixed" and spec.first_stage is None
    assert [spec.attention.options_1d[key.rpartition(".")[2].partition("=")[0]] for key in options] == [4] * len(options)


@pytest.mark.parametrize(
    ("task", "model", "like", "millions"),
    [
        ("needle", "decoder_toy_85m", "decoder_c4_125m", 85.0),
        ("passkey", "decoder_toy_1b", "decoder_fineweb_1b", 1124.3),
        ("multi_needle", "decoder_toy_85m", "decoder_c4_125m", 85.0),
        ("multi_needle", "decoder_toy_1b", "decoder_fineweb_1b", 1124.3),
        ("babilong", "decoder_stories_85m", "decoder_c4_125m", 97.6),
        ("babilong", "decoder_stories_1b", "decoder_fineweb_1b", 1157.7),
    ],
)
def test_made_up_sequences_at_the_sizes_of_real_text(task, model, like, millions):
    """The layers of the text model, with the task's own vocabulary, which the task accepts."""
    spec = compose([f"task={task}", "scale=paper", "attention=rope", f"model={model}"]).spec
    text = compose(["task=lm_length", "scale=paper", "attention=rope", f"model={like}", *GPT2]).spec.model
    layers = ("embed_dim", "depth", "num_heads", "num_kv_heads", "mlp_ratio")
    assert [getattr(spec.model, key) for key in layers] == [getattr(text, key) for key in layers]
    assert sum(p.numel() for p in build_undrawn(spec).parameters()) == pytest.approx(millions * 1e6, rel=1e-3)
    if task != "babilong":
        assert tasks.get(task).data(spec).model.seq_len == text.seq_len
