"""Cached decoding equals one forward pass for every mechanism; sampling is restricted, seeded, and follows the distribution."""

from __future__ import annotations

import pytest
import torch
from attention_cases import LINES, MODEL, OPTIONS, POSITION, randomise
from torch import nn

from goatbench.attention.cache import FullCache
from goatbench.models import Decoder
from goatbench.models.generate import generate


def make(name: str = "goat", **sizes) -> Decoder:
    """float64, every parameter of the prior away from its initial value."""
    torch.manual_seed(0)
    defaults = dict(vocab_size=5, num_scored=4, seq_len=48, embed_dim=64, depth=2, num_heads=2, mlp_ratio=2.0)
    net = Decoder(POSITION.get(name, name), OPTIONS.get(name), **{**defaults, **MODEL.get(name, {}), **sizes}).double()
    for scheme in net.position_schemes():
        randomise(scheme)
    with torch.no_grad():
        net.head.weight.mul_(50)  # clear preferences
        net.token_embedding.weight.mul_(50)  # which sinusoidal positions do not drown
    return net


def draw(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(4, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunks", [(40,), (33, 1, 1, 1, 1, 1, 1, 1), (16, 16, 8), (1, 7, 31, 1)])
@pytest.mark.parametrize("name", LINES)
def test_prefill_and_decoding_equal_one_forward_pass(name, chunks):
    net, tokens, cache = make(name).eval(), draw(2, 40), FullCache()
    with torch.inference_mode():
        parts = [net(part, cache=cache) for part in tokens.split(list(chunks), dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), net(tokens), rtol=0, atol=1e-10)
    assert cache.num_tokens == 40 + net.position.num_prefix_tokens


@pytest.mark.parametrize("name", LINES)
def test_greedy_tokens_are_those_of_full_forward_passes(name):
    net, tokens = make(name), draw(3, 12)
    found = generate(net, tokens, 9, temperature=0)
    with torch.no_grad():
        for _ in range(9):
            tokens = torch.cat((tokens, net(tokens)[:, -1:, :4].argmax(-1)), dim=1)
    assert torch.equal(found, tokens[:, 12:]) and len(found.unique()) > 1


class Fixed(nn.Module):
    """A model with one distribution, which never looks at its tokens, and likes the fifth token best."""

    vocab_size, num_scored, max_positions = 5, 4, None
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.05, 0.35])

    def hidden(self, tokens, cache):
        return torch.zeros(*tokens.shape, 1)

    def head(self, hidden):
        return self.probabilities.log().expand(len(hidden), 5)


def test_draws_follow_the_allowed_part_of_the_distribution():
    seeded = torch.Generator().manual_seed(0)
    counts = lambda **options: generate(Fixed(), draw(200, 1), 100, generator=seeded, **options).flatten().bincount(minlength=5) / 20_000
    expected = Fixed.probabilities[:4] / 0.65
    torch.testing.assert_close(counts(), torch.cat((expected, torch.zeros(1))), rtol=0, atol=0.015)  # 4 sd
    torch.testing.assert_close(counts(allowed=5), Fixed.probabilities, rtol=0, atol=0.015)
    sharper = Fixed.probabilities[:2].square()
    torch.testing.assert_close(counts(allowed=2, temperature=0.5)[:2], sharper / sharper.sum(), rtol=0, atol=0.015)
    assert generate(Fixed(), draw(2, 3), 4, temperature=0).unique().tolist() == [2]


def test_the_generator_decides_and_the_global_state_stays():
    net, prompts = make(), draw(2, 8)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (generate(net, prompts, 20, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert net.training and not first.is_inference()  # left as it was, and usable


def test_only_allowed_tokens_come_out_even_where_another_is_likelier():
    net = make()
    with torch.no_grad():
        net.head.bias[4] = 50.0
    assert int(generate(net, draw(4, 6), 30, generator=torch.Generator().manual_seed(0)).max()) <= 3
    assert generate(net, draw(2, 6), 3, allowed=5, temperature=0).unique().tolist() == [4]


def test_no_tokens_is_no_work():
    assert generate(make(), draw(3, 6), 0).shape == (3, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(allowed=6), "allowed = 6: tokens 0 to 4 exist"),
        (dict(temperature=-1.0), "temperature = -1.0"),
        (dict(num_tokens=-1), "num_tokens = -1"),
        (dict(num_tokens=44), "49 positions are needed, but this mechanism ends at its training length of 48"),
        (dict(prompts=torch.zeros(2, 0, dtype=torch.int64)), "there is no start token"),
    ],
)
def test_what_cannot_be_done_is_said(options, message):
    arguments = {"prompts": draw(2, 6), "num_tokens": 3, **options}
    with pytest.raises(ValueError, match=message):
        generate(make("learned_absolute"), **arguments)
    assert generate(make("learned_absolute"), draw(1, 6), 43, temperature=0).shape == (1, 43)


def test_a_broken_model_is_an_error():
    net = make()
    with torch.no_grad():
        net.head.bias[1] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        generate(net, draw(1, 4), 2)
