"""The model of the compression task: everything passes through the state of the last token."""

from __future__ import annotations

import math

import pytest
import torch

from goatbench.models.compressor import Compressor, sinusoids

SIZES = dict(vocab_size=20, num_scored=16, seq_len=9, embed_dim=32, depth=2, num_heads=2, weight_std=0.2, embedding_std=1.0)


def make(attention: str = "rope", **sizes) -> Compressor:
    torch.manual_seed(0)
    return Compressor(attention, **{**SIZES, **sizes}).eval()


def test_logits_are_a_function_of_the_last_state_and_the_place():
    """Without attention's output the last token knows of itself alone: then nothing that was read changes a logit."""
    net, tokens = make(), torch.randint(16, (6, 9))
    tokens[:, -1] = 19
    assert (net(tokens)[0] - net(tokens)[1]).abs().max() > 1e-3
    with torch.no_grad():
        for layer in net.attention_layers:
            layer.proj.weight.zero_()
    logits = net(tokens)
    assert logits.shape == (6, 9, 20)
    torch.testing.assert_close(logits, logits[:1].expand_as(logits))
    assert (logits[0, 0] - logits[0, 1]).abs().max() > 1e-3  # its places still differ


def test_places_are_the_sinusoids_of_the_transformer():
    table = sinusoids(5, 8)
    assert table.dtype == torch.float64 and table.shape == (5, 8)
    for place, index in ((0, 0), (3, 1), (4, 3)):
        angle = place / 10_000 ** (2 * index / 8)
        assert table[place, index].item() == pytest.approx(math.sin(angle), abs=1e-12)
        assert table[place, 4 + index].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_equal_seeds_give_equal_weights_to_every_mechanism():
    rope, nope = make("rope"), make("nope")
    for name, weights in nope.named_parameters():
        assert torch.equal(weights, rope.get_parameter(name)), name


def test_an_odd_width_is_an_error():
    with pytest.raises(ValueError, match="odd"):
        make("nope", embed_dim=33, num_heads=1)
