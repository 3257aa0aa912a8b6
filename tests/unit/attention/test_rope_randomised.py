"""Randomised positions: what is drawn, when, and that it is RoPE at those positions."""

import pytest
import torch
from attention_cases import assert_close

from goatbench.attention.cache import FullCache
from goatbench.attention.positions import Positions
from goatbench.attention.rope_randomised import ordered_subset, token_seeds
from goatbench.models import Decoder

LENGTH = 16


def decoder(name="rope_randomised", **options):
    torch.manual_seed(0)
    sizes = dict(vocab_size=11, num_scored=11, seq_len=LENGTH, embed_dim=32, depth=2, num_heads=2)
    return Decoder(name, options, **sizes).double()


def tokens(batch=3, length=LENGTH, seed=0):
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(seed))


def places(net, ids, positions=None):
    return net.position.place(ids, Positions.line(ids.shape[1]) if positions is None else positions, False)


def test_subsets_are_ordered_reproducible_and_cover_the_range():
    drawn = torch.stack([ordered_subset(seed, 20, 300) for seed in range(2000)])
    assert (drawn.diff(dim=1) > 0).all() and drawn.min() == 0 and drawn.max() == 299
    assert torch.equal(ordered_subset(5, 20, 300), drawn[5]) and not torch.equal(drawn[5], drawn[6])
    # the k-th smallest of 20 of 300 has mean k * 301 / 21 - 1
    expected = torch.arange(1, 21) * 301 / 21 - 1
    torch.testing.assert_close(drawn.double().mean(0), expected.double(), rtol=0, atol=1.2)
    assert torch.equal(ordered_subset(1, 30, 30), torch.arange(30))


def test_training_draws_a_function_of_each_sequence_alone():
    net, ids = decoder().train(), tokens()
    drawn = places(net, ids)
    assert (drawn.coords.diff(dim=1) > 0).all() and drawn.coords.max() < 16 * LENGTH and drawn.coords.max() > 4 * LENGTH
    assert torch.equal(drawn.order, torch.arange(LENGTH).expand(3, -1))  # causality is by the order, as before
    assert torch.equal(places(net, ids[1:2]).coords, drawn.coords[1:2])
    changed = ids.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 11
    is_same = (places(net, changed).coords == drawn.coords).all(-1).all(-1)
    assert is_same.tolist() == [False, True, True]


def test_seeds_of_rows_that_differ_differ():
    ids = torch.randint(5, (4000, 32), generator=torch.Generator().manual_seed(0))
    swapped = ids[:, torch.tensor([1, 0, *range(2, 32)])]
    distinct = torch.cat((ids, swapped)).unique(dim=0)
    seeds = token_seeds(distinct)
    assert len(set(seeds)) == len(distinct) and min(seeds) >= 0


def test_training_is_rope_at_the_drawn_positions_and_evaluation_is_rope():
    net, rope, ids = decoder(), decoder("rope"), tokens()
    rope.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(ids), rope(ids)) and places(net, ids).coords.squeeze().tolist() == list(range(LENGTH))
    drawn = places(net.train(), ids)
    assert_close(net(ids), rope(ids, positions=drawn), atol=1e-12)
    assert float((net(ids) - rope(ids)).abs().max()) > 1e-4


def test_recomputed_activations_stand_at_the_same_positions():
    ids, grads = tokens(), []
    for recompute in (False, True):
        net = decoder().train()
        net.set_grad_checkpointing(recompute)
        net(ids).square().sum().backward()
        grads.append(net.blocks[0].attn.q_proj.weight.grad)
    assert_close(grads[0], grads[1])


def test_documents_in_one_sequence_restart_and_left_padding_stays_before():
    net = decoder().train()
    order = torch.tensor([[0, 1, 2, 3, 0, 1], [-2, -1, 0, 1, 2, 3]])
    coords = places(net, tokens(2, 6), Positions.scattered(order)).coords[..., 0]
    assert coords[0, 4:].tolist() == coords[0, :2].tolist() and coords[0, 0] < coords[0, 1] < coords[0, 3]
    assert coords[1, :2].tolist() == [-2, -1] and (coords[1, 2:].diff() > 0).all()


def test_drawn_at_evaluation_depends_on_the_length_alone():
    """As the authors evaluate: one subset a length, so that no token sees later ones through its position."""
    net = decoder(draw_at_evaluation=True).eval()
    first, second = places(net, tokens()), places(net, tokens(seed=1))
    assert torch.equal(first.coords, second.coords) and first.coords.shape == (1, LENGTH, 1)
    assert first.coords.max() > LENGTH
    assert net.max_positions == 16 * LENGTH
    with pytest.raises(ValueError, match="no cache"):
        net(tokens(), cache=FullCache())
    with pytest.raises(ValueError, match="raise option max_length"):
        net(tokens(length=16 * LENGTH + 1))


def test_a_range_shorter_than_training_is_refused():
    with pytest.raises(ValueError, match="at least the training length, 16"):
        decoder(max_length=15)
