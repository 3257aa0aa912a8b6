"""The causal decoder with every one-dimensional mechanism: start of training, weights, causality, lengths, optimiser groups."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from attention_cases import LINES, MODEL, OPTIONS, POSITION, move
from pydantic import ValidationError

from goatbench.attention.kernels import Reference
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.models import Decoder, build_decoder, kernels_used, model_info
from goatbench.spec import AttentionSpec, DecoderSpec
from goatbench.training.optim import parameter_groups

SIZES = dict(vocab_size=5, num_scored=4, seq_len=64, embed_dim=64, depth=2, num_heads=2, mlp_ratio=2.0)


def make(name: str = "nope", seed: int = 0, lanes: str = "carve", **sizes) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(POSITION.get(name, name), OPTIONS.get(name), lanes, **{**SIZES, **MODEL.get(name, {}), **sizes}).eval()


def draw(length: int, batch: int = 2, high: int = 4, seed: int = 1) -> torch.Tensor:
    return torch.randint(high, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "embed_dim", "tie_embeddings"), [(name, 64, tied) for name in LINES for tied in (False, True)] + [("goat", 512, False)]
)
def test_the_first_loss_is_that_of_a_uniform_guess_over_the_scored_tokens(name, embed_dim, tie_embeddings):
    net = make(name, embed_dim=embed_dim, num_heads=embed_dim // 32, tie_embeddings=tie_embeddings)
    tokens = draw(65, batch=8)
    with torch.no_grad():
        logits = net(tokens[:, :-1])
    nll = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert float(nll) == pytest.approx(math.log(4), abs=0.05)
    assert 0 < float(logits.softmax(-1)[..., 4].max()) < 1e-4


@pytest.mark.parametrize("name", LINES)
def test_a_token_changes_nothing_before_it(name):
    """Nor with parameters away from their initial values: kernels over queries and keys start as the identity, tables at zero."""
    net = make(name).double()
    move(net)
    tokens = draw(40)
    changed = tokens.clone()
    changed[:, 25] = (tokens[:, 25] + 1) % 4
    with torch.no_grad():
        before, after = net(tokens), net(changed)
    assert torch.equal(before[:, :25], after[:, :25])
    assert ((before - after)[:, 25:].abs().amax(-1) > 0).all()


@pytest.mark.parametrize("name", LINES)
def test_shared_weights_do_not_depend_on_the_mechanism(name):
    reference, net = make("nope", seed=7), make(name, seed=7)
    after = torch.rand(())
    prior = net.position_parameter_names() | {n for n, _ in net.named_parameters() if ".inner." in n or ".gate." in n}
    expected, ours = dict(reference.named_parameters()), dict(net.named_parameters())
    assert ours.keys() - prior == expected.keys()
    differing = {n for n in expected if ours[n].shape != expected[n].shape}
    assert all("q_proj" in n or "k_proj" in n for n in differing)
    assert all(torch.equal(ours[n], expected[n]) for n in expected.keys() - differing)
    make("nope", seed=7, depth=1)
    assert torch.rand(()) == after


def test_initial_values():
    net = make(embed_dim=256, num_heads=8, depth=3)
    for block in net.blocks:
        for layer in (block.attn.q_proj, block.attn.k_proj, block.attn.v_proj, block.mlp.fc1):
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.02) and layer.bias is None
        for layer in (block.attn.proj, block.mlp.fc2):
            assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(6), rel=0.02)
    assert net.token_embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert net.head.bias.tolist() == [0, 0, 0, 0, -10]
    assert not torch.equal(net.blocks[0].mlp.fc1.weight, net.blocks[1].mlp.fc1.weight)


@pytest.mark.parametrize("name", LINES)
def test_every_parameter_gets_a_gradient_and_only_matrices_of_the_backbone_decay(name):
    net = make(name, depth=2)
    with torch.no_grad():  # away from zero: a gain of a silent network has no gradient
        for scheme in net.position_schemes():
            for p in scheme.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
    F.cross_entropy(net(draw(32)).flatten(0, 1), draw(32, seed=5).flatten()).backward()
    constant_of_softmax = {n for n, _ in net.named_parameters() if n.endswith("scheme.fc2.bias")}  # goat_reference
    for n, p in net.named_parameters():
        assert p.grad is not None and torch.isfinite(p.grad).all(), n
        assert n in constant_of_softmax or p.grad.abs().max() > 0, n
    decayed, plain = parameter_groups(net, 0.1)
    names = {id(p): n for n, p in net.named_parameters()}
    of_position = (".scheme.", "inner.table")  # the table of contextual positions
    expected = {n for n, p in net.named_parameters() if p.ndim > 1 and not any(part in n for part in of_position)}
    assert {names[id(p)] for p in decayed["params"]} == expected
    assert plain["weight_decay"] == 0 and decayed["weight_decay"] == 0.1


@pytest.mark.parametrize("name", [name for name in LINES if "sink_token" not in name])
def test_one_block_by_hand(name):
    """x + proj(softmax attention), x + fc2(gelu(fc1)), norm, head: written out for one layer around the dense reference kernel."""
    net = make(name, depth=1).double()
    tokens, positions = draw(20), Positions.line(20)
    block, C = net.blocks[0], SIZES["embed_dim"]
    norm = lambda x, layer: F.layer_norm(x, (C,), layer.weight)
    with torch.no_grad():
        x = block.attn.scheme.embed(net.token_embedding.weight[tokens], positions)
        block.attn.kernel, fast = Reference(), block.attn.kernel
        x = x + block.attn(norm(x, block.norm1), positions, Mask(causal=True))
        block.attn.kernel = fast
        x = x + F.gelu(norm(x, block.norm2) @ block.mlp.fc1.weight.T) @ block.mlp.fc2.weight.T
        expected = norm(x, net.norm) @ net.head.weight.T + net.head.bias
        torch.testing.assert_close(net(tokens), expected, rtol=1e-9, atol=1e-10)


def test_hidden_and_head_are_the_two_halves_of_forward():
    net, tokens = make("goat"), draw(30)
    with torch.no_grad():
        assert torch.equal(net.head(net.hidden(tokens)), net(tokens))
        torch.testing.assert_close(net.head(net.hidden(tokens)[:, -3:]), net(tokens)[:, -3:])


@pytest.mark.parametrize("name", [n for n in LINES if n != "learned_absolute"])
def test_longer_sequences_run_and_agree_on_the_common_prefix(name):
    net = make(name).double()
    tokens = draw(160)
    with torch.no_grad():
        torch.testing.assert_close(net(tokens)[:, :64], net(tokens[:, :64]), rtol=1e-9, atol=1e-10)
    assert net.max_positions == (32_768 if name == "rope_xpos" else None)  # its factors leave float32 there


def test_a_learned_table_ends_at_its_training_length():
    net = make("learned_absolute")
    assert net.max_positions == 64
    net(draw(64))
    with pytest.raises(ValueError, match="64 positions, got position 64"):
        net(draw(65))


def test_positions_are_kept_between_steps_and_serve_training_after_inference():
    net = make("goat")
    with torch.inference_mode():
        net(draw(64))
    kept = net._line
    loss = net(draw(64)).square().mean()
    loss.backward()
    assert net._line is kept and kept.known  # phases too
    net(draw(32))
    assert net._line.num_tokens == 32
    assert copy.deepcopy(net)(draw(32)).shape == (2, 32, 5)
    assert not any("_line" in name for name in net.state_dict())


def test_checkpointed_activations_change_no_gradient():
    plain, checked = make("goat").double(), make("goat").double()
    checked.set_grad_checkpointing()
    entered = []
    for net in (plain, checked):
        net.blocks[1].register_forward_pre_hook(lambda block, inputs, net=net: entered.append(net is checked))
        net.train()(draw(48)).square().mean().backward()
    assert entered == [False, True, True]
    for (name, p), q in zip(plain.named_parameters(), checked.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-12, msg=name)


def test_tied_embeddings_are_one_parameter():
    net = make(tie_embeddings=True)
    assert net.head.weight is net.token_embedding.weight
    assert sum(p.numel() for p in make().parameters()) - sum(p.numel() for p in net.parameters()) == 5 * 64


# From a specification -------------------------------------------------------------------------------------------------

SPEC = dict(kind="decoder", name="probe", vocab_size=5, num_scored=4, seq_len=32, embed_dim=48, depth=3, num_heads=4, mlp_ratio=2.0)


def test_model_info_counts_by_hand():
    """No bias but proj's and the head's; head_dim 12; two key heads of four."""
    block = 48 * 48 + 2 * (48 * 24) + (48 * 48 + 48) + 2 * (48 * 96) + 2 * 48
    backbone = 5 * 48 + 3 * block + 48 + (5 * 48 + 5)
    net = build_decoder(DecoderSpec(**SPEC, num_kv_heads=2), AttentionSpec(name="nope"))
    params = dict(params_total=backbone, params_trainable=backbone, params_prior=0)
    assert model_info(net) == dict(**params, head_dim=12, content_dim=12, num_lanes=0, lanes="none", notes=[])
    learned = build_decoder(DecoderSpec(**SPEC, num_kv_heads=2), AttentionSpec(name="learned_absolute"))
    assert model_info(learned)["params_prior"] == 32 * 48 == model_info(learned)["params_total"] - backbone


def test_build_decoder_uses_the_options_of_one_axis():
    options = {"num_frequencies": 1, "min_period": 3.0}
    attention = AttentionSpec(name="goat", lanes="append", options=options, options_1d={"num_frequencies": 3}, options_2d={"slope": False})
    kernel = Reference()
    net = build_decoder(DecoderSpec(**SPEC), attention, kernel)
    assert net.position.num_lanes == 2 * 3 + 2 + 1 + 1  # waves, recency, sink, bump
    assert all(layer.kernel is kernel for layer in net.attention_layers) and net.lanes == "append"
    assert kernels_used(net, draw(16)) == "reference" and all(layer.kernel is kernel for layer in net.attention_layers)
    with pytest.raises(ValueError, match="Goat has no option 'frequences'"):
        build_decoder(DecoderSpec(**SPEC), AttentionSpec(name="goat", options={"frequences": 3}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 5}, "embed_dim 48 is not a multiple of num_heads 5"),
        ({"num_kv_heads": 3}, "num_kv_heads 3 does not divide num_heads 4"),
        ({"num_scored": 6}, "num_scored 6 is more than vocab_size 5"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        DecoderSpec(**{**SPEC, **change})
    with pytest.raises(ValueError, match="num_scored 6 is not in 1"):
        make(num_scored=6)
    with pytest.raises(ValueError, match="lanes 'merge' is unknown; one of carve, append"):
        make(lanes="merge")
