"""Copy, selective copy, induction: sequences as described; what cannot work fails and what must work succeeds."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from goatbench.attention.mask import Mask
from goatbench.data.philox import SEQUENCES, uniforms
from goatbench.data.text.problems import QUERY
from goatbench.data.text.synthetic import SyntheticTest, SyntheticTraining
from goatbench.data.text.toy_problems import BLANK, COPY, INDUCTION, SELECTIVE_COPY
from goatbench.models import Decoder


def test_copies_are_the_payload_in_order():
    for row in SyntheticTest(COPY, 40, None, each=50).tokens.tolist():
        assert len(row) == 41 and row[:4] == row[-4:] and max(row[:4]) < 24
        assert row[4:-5] == [BLANK] * 32 and row[-5] == QUERY


def test_selective_copies_are_the_symbols_among_the_noise():
    tokens = SyntheticTest(SELECTIVE_COPY, 40, None, each=2000).tokens
    for row in tokens.tolist():
        assert len(row) == 41 and row[-5] == QUERY and QUERY not in row[:-5]
        assert [token for token in row[:-5] if token < 24] == row[-4:]
    noise = np.bincount(tokens[:, :-5][tokens[:, :-5] >= 24], minlength=32)[26:]
    assert abs(noise - 2000 * 32 / 6).max() < 5 * np.sqrt(2000 * 32 / 6)
    first = (tokens[:, :36] < 24).int().argmax(1)
    assert {0, 1, 2} <= set(first.tolist()) and first.float().mean() == pytest.approx(32 / 5, abs=1)  # the least of four of 0 .. 32


def test_the_asked_symbol_occurred_once_and_its_successor_is_the_answer():
    tokens = SyntheticTest(INDUCTION, 32, (0.0, 0.5, 1.0), each=3000).tokens.tolist()
    for i, row in enumerate(tokens):
        place = row.index(row[-2])
        assert len(row) == 33 and row[:-1].count(row[-2]) == 2 and row[-1] == row[place + 1] != row[-2]
        assert place == (0, 15, 29)[i // 3000]  # 29 lies two before the question: one symbol follows
    answers = Counter((row[-1] - row[-2]) % 24 for row in tokens)
    assert sorted(answers) == list(range(1, 24))  # 23 answers, each as likely: what the card calls chance
    assert max(abs(count - 9000 / 23) for count in answers.values()) < 5 * np.sqrt(9000 / 23)


@pytest.mark.parametrize("problem", [COPY, SELECTIVE_COPY, INDUCTION])
def test_steps_of_every_length_can_be_built(problem):
    training = SyntheticTraining(problem, 16, 1, seed=0, num_samples=640, batch_size=8)
    assert {training.length_of(0, step) for step in range(1, 400, 2)} == set(range(problem.min_length, 17))
    assert SyntheticTest(problem, problem.min_length, (0.0, 1.0), each=2).tokens.shape == (4, problem.min_length + 1)


def order_blind_exact_match(alphabet: int, size: int) -> float:
    """The highest exact match for drawn symbols of which only how often each occurs is known.

    Of each set of counts one order can be written, and all of its orders are equally likely: (sets of counts) / alphabet^size.
    """
    return math.comb(alphabet + size - 1, size) / alphabet**size


def test_the_order_blind_ceiling_by_counting():
    """All words of 3 letters of 3: of the words with equal counts, one can be guessed."""
    words = list(product(range(3), repeat=3))
    assert order_blind_exact_match(3, 3) == pytest.approx(len({tuple(sorted(word)) for word in words}) / len(words))
    assert order_blind_exact_match(24, 4) == pytest.approx(0.0529, abs=1e-4)


def make(attention: str, depth: int = 1) -> Decoder:
    """float64, far from uniform."""
    torch.manual_seed(0)
    net = Decoder(attention, vocab_size=32, num_scored=24, seq_len=24, embed_dim=32, depth=depth, num_heads=1).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(5)
    return net.eval()


def logits(net: Decoder, tokens: torch.Tensor, answer: int, mask: Mask = Mask(causal=True)) -> torch.Tensor:
    """At the first symbol of the answer."""
    with torch.inference_mode():
        return net(tokens[:, :-1], mask=mask)[:, -answer]


def swapped(tokens: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rows with the tokens at a [n] and b [n] exchanged."""
    result, rows = tokens.clone(), torch.arange(len(tokens))
    result[rows, a], result[rows, b] = tokens[rows, b], tokens[rows, a]
    return result


@pytest.mark.parametrize("problem", [COPY, SELECTIVE_COPY, INDUCTION])
def test_one_layer_without_positions_does_not_see_the_order(problem):
    """Its logits are a function of the last token and the set before it, so they are equal for two orders with different answers;
    of rope some differ clearly."""
    tokens = SyntheticTest(problem, 24, None, each=20).tokens
    if problem is INDUCTION:
        asked = (tokens[:, :-2] == tokens[:, -2:-1]).int().argmax(1)
        a, b = asked + 1, (asked + 7) % 22
    else:
        symbols = (tokens[:, :20] < 24).int()
        a, b = symbols.argmax(1), 19 - symbols.flip(1).argmax(1)  # first and last of the payload
    other = swapped(tokens, a, b)
    differs = (other != tokens).any(1)
    assert differs.sum() > 15
    torch.testing.assert_close(
        logits(make("nope"), tokens, problem.answer), logits(make("nope"), other, problem.answer), rtol=0, atol=1e-10
    )
    moved = (logits(make("rope"), tokens, problem.answer) - logits(make("rope"), other, problem.answer)).abs().amax(1)
    assert moved[differs].max() > 0.1


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("problem", [COPY, INDUCTION])
def test_a_window_shorter_than_the_distance_sees_nothing(problem, depth):
    """`depth` layers of window w reach depth * (w - 1) tokens back: with the answer further away, no symbol of it changes a logit."""
    tokens = SyntheticTest(problem, 24, (0.0,), each=20).tokens
    other = tokens.clone()
    other[:, :4] = (other[:, :4] + 1) % 24
    window, net = Mask(causal=True, window=7), make("rope", depth)
    assert torch.equal(logits(net, tokens, problem.answer, window), logits(net, other, problem.answer, window))
    assert (logits(net, tokens, problem.answer) - logits(net, other, problem.answer)).abs().max() > 1e-3


@pytest.mark.parametrize(("attention", "works"), [("rope", True), ("nope", False)])
def test_one_layer_copies_with_positions_and_cannot_without(attention, works):
    """Sequences of one length, 150 steps of 64: with positions at least 95 %, without never above the order-blind ceiling."""
    net, steps, length = make_small(attention), 150, 16
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 30, (steps - step) / 45)
        tokens = drawn(range(64 * step, 64 * step + 64), length, seed=0)
        found = net.head(net.hidden(tokens[:, :-1])[:, -4:])
        loss = F.cross_entropy(found.flatten(0, 1), tokens[:, -4:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = drawn(range(2000), length, seed=1)
    with torch.inference_mode():
        exact = (net(tokens[:, :-1])[:, -4:].argmax(-1) == tokens[:, -4:]).all(1).double().mean().item()
    ceiling = order_blind_exact_match(24, 4)
    assert exact >= 0.95 if works else exact < ceiling + 5 * (ceiling / 2000) ** 0.5


def make_small(attention: str) -> Decoder:
    torch.manual_seed(0)
    return Decoder(attention, vocab_size=32, num_scored=24, seq_len=16, embed_dim=64, depth=1, num_heads=2, mlp_ratio=2)


def drawn(ids: range, length: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(COPY.build(uniforms(seed, 0, np.array(ids), length, SEQUENCES), length, None))
