"""Initial weights do not depend on the mechanism, schemes initialise themselves, and optimiser groups know them."""

import math

import pytest
import torch
from timm.optim import create_optimizer_v2, param_groups_layer_decay
from torch import nn


def shared_tensors(net):
    skip = net.position_parameter_names()
    return {name: p.detach() for name, p in net.named_parameters() if name not in skip}


def test_backbone_weights_do_not_depend_on_the_mechanism(tiny, options_of, planar):
    wide = dict(embed_dim=128)
    reference = shared_tensors(tiny("nope", seed=7, num_reg_tokens=1, **wide))
    net = tiny(**options_of(planar), seed=7, num_reg_tokens=1, **wide)
    after = torch.rand(())
    ours = shared_tensors(net)
    assert ours.keys() == reference.keys()
    differing = {name for name, p in ours.items() if p.shape != reference[name].shape}
    assert all(".q_proj." in name or ".k_proj." in name for name in differing)
    assert all(torch.equal(p, reference[name]) for name, p in ours.items() if name not in differing)
    tiny("nope", seed=7, depth=1)
    assert torch.rand(()) == after  # whatever is drawn next (data order, drop path) is the same too


def test_seed_decides_and_models_in_a_row_differ(tiny):
    first, again, other = (tiny(seed=seed).head.weight for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.manual_seed(0)
    net = tiny()
    before = net.blocks[0].mlp.fc1.weight.clone()
    net.init_weights()
    assert not torch.equal(net.blocks[0].mlp.fc1.weight, before)
    assert not torch.equal(net.blocks[0].mlp.fc1.weight, net.blocks[1].mlp.fc1.weight)


def test_initial_values_are_timms(tiny):
    """trunc_normal .02; residual outputs of block i divided by sqrt(2 (i + 1)); head by its factor; biases zero, norms one."""
    net = tiny(embed_dim=256, num_heads=4, init_values=0.1, num_classes=256, head_init_scale=0.001)
    for i, block in enumerate(net.blocks):
        for layer in (block.attn.q_proj, block.attn.k_proj, block.attn.v_proj, block.mlp.fc1):
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.02)
        for layer in (block.attn.proj, block.mlp.fc2):
            assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * (i + 1)), rel=0.02)
        assert (block.gamma_1 == 0.1).all() and (block.gamma_2 == 0.1).all()
    assert net.head.weight.std().item() == pytest.approx(2e-5, rel=0.02)
    assert net.cls_token.std().item() == pytest.approx(0.02, rel=0.2)
    for name, p in net.named_parameters():
        if name.endswith(".bias") and "patch_embed" not in name:
            assert (p == 0).all(), name
    assert all((m.weight == 1).all() for m in net.modules() if isinstance(m, nn.LayerNorm))


def test_schemes_initialise_their_own_linears(tiny, constant):
    net = tiny(constant)
    for _ in range(2):
        for block in net.blocks:
            assert (block.attn.scheme.linear.weight == 7).all() and (block.attn.scheme.linear.bias == 7).all()
        net.init_weights()


# Optimiser groups -----------------------------------------------------------------------------------------------------


def group_of(groups, net):
    names = {id(p): name for name, p in net.named_parameters()}
    return {names[id(p)]: group for group in groups for p in group["params"]}


def test_no_position_parameter_is_decayed(tiny, options_of, planar):
    net = tiny(**options_of(planar), num_reg_tokens=1)
    for options in ({}, {"layer_decay": 0.5}):
        groups = group_of(create_optimizer_v2(net, "adamw", lr=1e-3, weight_decay=0.05, **options).param_groups, net)
        assert groups.keys() == dict(net.named_parameters()).keys()
        undecayed = {name for name, group in groups.items() if group["weight_decay"] == 0}
        in_schemes = {name for name in groups if ".scheme." in name}
        assert {"cls_token", "reg_token"} | in_schemes <= undecayed
        matrices = {name for name, p in net.named_parameters() if p.ndim > 1}
        assert matrices - in_schemes - {"cls_token", "reg_token"} == groups.keys() - undecayed


def test_layer_decay_puts_scheme_parameters_into_their_block(tiny, gaussian):
    """depth 2: stem, block 0, block 1 (with the final norm, as timm has it), head."""
    net = tiny(gaussian, init_values=0.1)
    groups = group_of(param_groups_layer_decay(net, 0.05, net.no_weight_decay(), layer_decay=0.5), net)
    scale = {name: group["lr_scale"] for name, group in groups.items()}
    assert scale["cls_token"] == scale["patch_embed.proj.weight"] == 0.125
    for i, expected in enumerate((0.25, 0.5)):
        of_block = {scale[name] for name in scale if name.startswith(f"blocks.{i}.")}
        assert of_block == {expected} and scale[f"blocks.{i}.attn.scheme.weight"] == expected
    assert (scale["norm.weight"], scale["head.weight"]) == (0.5, 1.0)


def test_what_all_blocks_share_is_stem(tiny):
    net = tiny("learned_absolute")
    groups = group_of(param_groups_layer_decay(net, 0.05, net.no_weight_decay(), layer_decay=0.5), net)
    table = [name for name in groups if name.endswith("scheme.table")]
    assert len(table) == 1 and groups[table[0]]["lr_scale"] == 0.125 and groups[table[0]]["weight_decay"] == 0
    assert groups["blocks.0.norm1.weight"]["lr_scale"] == 0.25
