"""The text decoders that nobody builds on a CPU: their sizes, on the meta device, against a formula."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.models import build_decoder

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
