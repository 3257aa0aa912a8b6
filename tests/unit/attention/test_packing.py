"""Packed documents: the numbers of each document alone, for every way in which a mechanism looks at positions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attention_cases import LINES, MODEL, OPTIONS, POSITION, POSITIVE

from goatbench.attention.packing import packed
from goatbench.models import Decoder
from goatbench.spec import TrainingSpec
from goatbench.training.causal_lm import CausalLM

BOS = 12
LENGTHS = ((9, 1, 14), (5, 11, 8))  # of the documents of two rows, each with its BOS
UNPACKED = {"mta", "mta_conv", "talking_heads"}  # written-out logits know no documents
MECHANISMS = ["goat", "rope", "alibi", "sinusoidal", "sink_scalar", "learned_absolute"]


def rows() -> torch.Tensor:
    """[2, 25]: the documents of LENGTHS one after the other, and one token more, the target of the last."""
    g = torch.Generator().manual_seed(0)
    row = lambda lengths: torch.cat([F.pad(torch.randint(12, (n - 1,), generator=g), (1, 0), value=BOS) for n in lengths])
    return torch.stack([torch.cat((row(lengths), torch.tensor([3]))) for lengths in LENGTHS])


def make(name: str) -> Decoder:
    torch.manual_seed(1)
    sizes = dict(vocab_size=13, num_scored=12, seq_len=32, embed_dim=64, depth=2, num_heads=2, mlp_ratio=2.0)
    net = Decoder(POSITION.get(name, name), OPTIONS.get(name), **sizes, **MODEL.get(name, {})).double()
    with torch.no_grad():
        for parameter in net.parameters():  # away from the start, where a prior is all but uniform
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64))
        if name in POSITIVE:
            for parameter in net.position.parameters():
                parameter.abs_().add_(0.1)
    return net


def nll_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().masked_fill(targets.flatten() == BOS, -100), reduction="sum")


def test_places_and_documents_by_hand():
    positions, mask = packed(torch.tensor([[1, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0]]).bool())
    assert positions.order.tolist() == [[0, 1, 2, 0, 0, 1], [0, 1, 0, 1, 2, 3]]
    assert mask.segment.tolist() == [[1, 1, 1, 2, 3, 3], [0, 0, 1, 1, 1, 1]] and mask.causal
    first = mask.bind(positions, positions).dense()[1, 0]
    assert first.int().tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("name", MECHANISMS)
def test_packed_documents_have_the_logits_and_gradients_of_the_documents_alone(name):
    """Levanter issue 860: packing dropped evaluation to chance while the loss looked fine."""
    tokens = rows()
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    whole = make(name)
    logits = whole(inputs, *packed(inputs == BOS))
    nll_of(logits, targets).backward()
    alone = make(name)
    total = torch.zeros((), dtype=torch.float64)
    for row, lengths in enumerate(LENGTHS):
        start = 0
        for length in lengths:
            part = slice(start, start + length)
            found = alone(inputs[row : row + 1, part])
            torch.testing.assert_close(logits[row : row + 1, part], found, atol=1e-5, rtol=0)
            total = total + nll_of(found, targets[row : row + 1, part])
            start += length
    total.backward()
    for (parameter, value), other in zip(whole.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(value.grad, other.grad, atol=1e-5, rtol=1e-5, msg=parameter)
    assert (whole(inputs) - logits).abs().max() > 1e-3  # one stream is something else


@pytest.mark.parametrize("name", [name for name in LINES if name not in UNPACKED])
def test_every_row_scores_packed_documents_as_it_scores_them_alone(name):
    net, inputs = make(name).eval(), rows()[:, :-1]
    with torch.no_grad():
        found, stream = net(inputs, *packed(inputs == BOS)), net(inputs)
        for row, lengths in enumerate(LENGTHS):
            parts = zip(inputs[row].split(lengths), found[row].split(lengths), strict=True)
            for document, logits in parts:
                torch.testing.assert_close(logits, net(document[None])[0], atol=1e-5, rtol=0)
    assert (stream - found).abs().max() > 1e-3


@pytest.mark.parametrize("name", sorted(UNPACKED))
def test_rows_that_cannot_keep_documents_apart_say_so(name):
    inputs = rows()[:, :-1]
    with pytest.raises(ValueError, match="over document borders: use packing=concat"):
        make(name).eval()(inputs, *packed(inputs == BOS))


def test_training_masks_documents_only_when_asked_to():
    """One stream ('concat') is bit for bit the plain forward pass; documents are that of `packed`."""
    training = TrainingSpec(epochs=1, batch_size=2, default_learning_rate=1e-3)
    net, tokens = make("goat").float(), rows()
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    batch = (tokens, torch.arange(2))
    count = int((targets != BOS).sum())
    with torch.no_grad():
        plain = CausalLM(net, training, 1e-3, 10, 12)
        assert torch.equal(plain._predictions(tokens)[0], net(inputs))
        losses = [module.training_step(batch, 0).item() for module in (plain, CausalLM(net, training, 1e-3, 10, 12, document_start=BOS))]
        expected = [nll_of(logits, targets).item() / count for logits in (net(inputs), net(inputs, *packed(inputs == BOS)))]
    assert losses == pytest.approx(expected, rel=1e-5) and abs(losses[0] - losses[1]) > 1e-4
