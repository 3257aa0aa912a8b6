"""Rows of attention taken apart: made of known parts, they come back; distances by hand; the rows that a model really uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import OPTIONS

from goatbench.metrics.mean_attention import mean_attention
from goatbench.metrics.prior_curves import prior_curves, prior_rows
from goatbench.metrics.prior_parts import parts_of, total_variation
from goatbench.models import Decoder


def rows_of(sink: np.ndarray, relative: np.ndarray) -> np.ndarray:
    length = len(sink)
    logits = np.array([[sink[j] + relative[i - j] if j <= i else -np.inf for j in range(length)] for i in range(length)])
    weights = np.exp(logits)
    return weights / weights.sum(1, keepdims=True)


def test_known_parts_come_back():
    """Up to what softmax cannot see: a constant, and a ramp that stands in either term (here it goes to the offset)."""
    rng, places = np.random.default_rng(0), np.arange(12)
    sink, relative = rng.normal(size=12), rng.normal(size=12)
    slope = np.polyfit(places[1:], sink[1:], 1)[0]
    parts = parts_of(rows_of(sink, relative))
    flat, rest = sink - slope * places, relative - slope * places
    np.testing.assert_allclose(parts.sink, flat - flat[1:].mean(), atol=1e-9)
    np.testing.assert_allclose(parts.relative, rest - rest[1:].mean(), atol=1e-9)
    rebuilt = rows_of(parts.sink, parts.relative)
    np.testing.assert_allclose(rebuilt, parts.probabilities, atol=1e-9)


def test_one_bump_of_the_key_and_one_of_the_offset():
    sink, relative = np.zeros(8), np.zeros(8)
    sink[0], relative[0] = 3.0, 2.0
    parts = parts_of(rows_of(sink, relative))
    np.testing.assert_allclose(parts.sink, sink, atol=1e-9)
    np.testing.assert_allclose(parts.relative, relative, atol=1e-9)
    row = np.array([3.0, 0, 2.0]) - 5 / 3
    np.testing.assert_allclose(parts.centred[2, :3], row, atol=1e-9)
    assert np.isnan(parts.centred[2, 3:]).all()


def test_total_variation_by_hand():
    true = np.array([[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(total_variation(np.array([[1.0, 0.0], [0.9, 0.1]]), true), [0.0, 0.4])
    np.testing.assert_allclose(total_variation(np.array([[0.7, 0.0], [0.0, 0.0]]), true), [0.3, 1.0])  # the rest went to a sink


def make(attention: str) -> Decoder:
    torch.manual_seed(0)
    sizes = dict(vocab_size=24, num_scored=24, seq_len=16, embed_dim=32, depth=1, num_heads=1, embedding_std=1.0)
    net = Decoder(attention, OPTIONS.get(attention), **sizes)
    with torch.no_grad():
        for parameter in net.blocks[0].attn.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net.eval()


def test_without_content_the_attention_is_the_prior():
    """GOAT with queries of zero: rows of every sequence are those that the log-prior induces."""
    net = make("goat")
    with torch.no_grad():
        net.blocks[0].attn.q_proj.weight.zero_()
    tokens = torch.randint(24, (5, 12))
    prior = prior_rows(net, 12)
    torch.testing.assert_close(mean_attention(net, tokens), prior, rtol=0, atol=1e-5)
    torch.testing.assert_close(prior.sum(-1), torch.ones(1, 12, dtype=torch.float64))
    torch.testing.assert_close(prior[:, -1].log().flip(-1), prior_curves(net, 12)[0])


def test_attention_is_a_mean_over_sequences_and_lacks_what_a_sink_takes():
    net, tokens = make("sink_scalar"), torch.randint(24, (4, 10))
    each = torch.stack([mean_attention(net, row[None]) for row in tokens])
    torch.testing.assert_close(mean_attention(net, tokens), each.mean(0))
    assert (each.sum(-1) < 1).all() and (each >= 0).all() and not each.triu(1).any()
    assert prior_rows(net, 10) is None and prior_rows(make("rope"), 10) is None  # nothing that differs by key


def test_a_token_before_the_sequence_is_no_key():
    rows = mean_attention(make("sink_token"), torch.randint(24, (2, 10)))
    assert rows.shape == (1, 10, 10) and (rows.sum(-1) < 1).all()


def test_rows_that_no_softmax_makes_are_refused():
    net = Decoder("rope", inner="talking_heads", vocab_size=8, num_scored=8, seq_len=8, embed_dim=32, depth=1, num_heads=2)
    with pytest.raises(ValueError, match="TalkingHeads"):
        mean_attention(net, torch.zeros(1, 4, dtype=torch.int64))
