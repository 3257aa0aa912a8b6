"""Models by name: timm's registry, a run's specification, and what a record says about a model."""

import pytest
import timm
import torch
from timm.data import resolve_model_data_config

from goatbench.attention.kernels import Reference
from goatbench.errors import UsageError
from goatbench.models import GoatViT, build_vit, kernels_used, model_info
from goatbench.spec import AttentionSpec, VitSpec

SPEC = VitSpec(
    kind="vit", name="probe", image_size=12, patch_size=2, in_chans=1, num_classes=10, embed_dim=48, depth=3, num_heads=2, mlp_ratio=2.0,
    drop_path=0.0, num_reg_tokens=2, init_values=0.1,
)  # fmt: skip


def test_small_is_a_vit_small():
    """22,050,664 (timm's vit_small_patch16_224) less its 197 x 384 table and 12 key biases, plus 24 LayerScales of 384."""
    net = timm.create_model("goatvit_small_patch16_224", position="nope")
    assert sum(p.numel() for p in net.parameters()) == 22_050_664 - 197 * 384 - 12 * 384 + 24 * 384


def test_timm_names_default_to_goat_and_to_a_test_size_of_512():
    net = timm.create_model("goatvit_tiny_patch16_224", depth=1, num_classes=7).eval()
    assert type(net.position).__name__ == "Goat" and net.rope.train_grid == (14, 14)
    config = resolve_model_data_config(net, use_test_size=True)
    assert config["input_size"] == (3, 512, 512) and config["crop_pct"] == 1.0
    assert resolve_model_data_config(net)["input_size"] == (3, 224, 224)
    with torch.no_grad():
        assert net(torch.randn(1, 3, 320, 448)).shape == (1, 7)
    assert {"goatvit_tiny_patch16_224", "goatvit_small_patch16_224", "goatvit_base_patch16_224"} <= set(timm.list_models("goatvit*"))


def test_timm_names_take_the_mechanism_and_its_options_from_the_suite():
    net = timm.create_model("goatvit_tiny_patch16_224", depth=1, position="rope_mixed")
    assert type(net.position).__name__ == "RopeMixed"
    own = timm.create_model("goatvit_tiny_patch16_224", depth=1, lanes="carve", options={"num_frequencies": 3, "min_period": 3.0})
    assert own.position.num_lanes == 4 * 3 + 2 and own.lanes == "carve"


def test_timm_create_model_takes_an_oblong_input_size():
    net = timm.create_model("goatvit_tiny_patch16_224", depth=1, img_size=(288, 320), in_chans=1)
    assert net.rope.train_grid == (18, 20) and net.patch_embed.proj.in_channels == 1


def test_features_only_and_a_new_classifier():
    features = timm.create_model("goatvit_tiny_patch16_224", depth=2, features_only=True, out_indices=(0, 1))
    with torch.no_grad():
        assert [tuple(f.shape) for f in features(torch.randn(1, 3, 96, 64))] == [(1, 192, 6, 4)] * 2
    net = timm.create_model("goatvit_tiny_patch16_224", depth=1)
    net.reset_classifier(3, "avg")
    assert net(torch.randn(1, 3, 32, 32)).shape == (1, 3)


def test_unknown_mechanism_options_and_lanes_are_errors(tiny):
    with pytest.raises(UsageError, match="unknown attention 'rope_mixd'; did you mean 'rope_mixed'"):
        timm.create_model("goatvit_tiny_patch16_224", position="rope_mixd")
    with pytest.raises(TypeError, match="use_naflex"):
        timm.create_model("goatvit_tiny_patch16_224", use_naflex=True)
    with pytest.raises(TypeError, match="thetta"):
        tiny("rope_axial", options={"thetta": 3})
    with pytest.raises(ValueError, match="lanes 'merge' is unknown; one of carve, append"):
        tiny(lanes="merge")
    with pytest.raises(ValueError, match="embed_dim 32 is not a multiple of num_heads 3"):
        tiny(num_heads=3)
    with pytest.raises(ValueError, match="one-dimensional"):
        tiny("rope")


def test_build_vit_follows_the_specification():
    options = {"num_frequencies": 1, "min_period": 3.0}
    attention = AttentionSpec(name="goat", lanes="append", options=options, options_1d={"slope": False}, options_2d={"num_frequencies": 2})
    kernel = Reference()
    net = build_vit(SPEC, attention, kernel)
    assert isinstance(net, GoatViT) and len(net.blocks) == 3 and net.rope.train_grid == (6, 6)
    assert net.num_prefix_tokens == 3 and net.position.num_lanes == 4 * 2 + 2  # cls and registers: the bump has a lane
    assert all(block.attn.kernel is kernel for block in net.blocks)
    assert net.blocks[0].mlp.fc1.out_features == 96 and (net.blocks[2].gamma_2 == 0.1).all()


def test_model_info_counts_by_hand():
    """Patch 2 x 2 x 1 -> 48; three blocks of attention (no key bias), MLP 48-96-48, two norms, two LayerScales; norm, head;
    3 prefix tokens."""
    block = 4 * 48 * 48 + 3 * 48 + (48 * 96 + 96) + (96 * 48 + 48) + 4 * 48 + 2 * 48
    backbone = (4 * 48 + 48) + 3 * block + 2 * 48 + (48 * 10 + 10) + 3 * 48
    net = build_vit(SPEC, AttentionSpec(name="nope"))
    params = dict(params_total=backbone, params_trainable=backbone, params_prior=0)
    expected = dict(**params, head_dim=24, content_dim=24, num_lanes=0, lanes="none", notes=[])
    assert model_info(net) == expected

    table = 6 * 6 * 48
    learned = model_info(build_vit(SPEC, AttentionSpec(name="learned_absolute")))
    assert learned == {**expected, "params_total": backbone + table, "params_trainable": backbone + table, "params_prior": table}

    goat = build_vit(SPEC, AttentionSpec(name="goat", lanes="carve", options={"num_frequencies": 2, "min_period": 3.0}))
    goat.head.requires_grad_(False)
    info = model_info(goat)
    assert (info["head_dim"], info["content_dim"], info["num_lanes"], info["lanes"]) == (24, 14, 10, "carve")
    narrower = 3 * (2 * 48 * 20 + 20)  # q and k lose 10 dims in each of 2 heads; only q has a bias
    assert info["params_total"] == backbone - narrower + info["params_prior"] and info["params_prior"] > 0
    assert info["params_total"] - info["params_trainable"] == 48 * 10 + 10


def test_kernels_used_names_what_ran_and_puts_the_kernels_back():
    kernel = Reference()
    net = build_vit(SPEC, AttentionSpec(name="nope"), kernel).eval()
    assert kernels_used(net, torch.randn(1, 1, 12, 16)) == "reference"
    assert all(block.attn.kernel is kernel for block in net.blocks)
    with pytest.raises(ValueError, match="not a multiple"):
        kernels_used(net, torch.randn(1, 1, 13, 12))
    assert all(block.attn.kernel is kernel for block in net.blocks)
    assert kernels_used(build_vit(SPEC, AttentionSpec(name="nope")), torch.randn(1, 1, 12, 12)).startswith("sdpa")


def test_a_table_made_for_an_earlier_size_is_stretched_over_the_training_grid():
    """Of a training in two stages: positions are those of the first one's grid, 'scaled' means the last one's."""
    absolute = AttentionSpec(name="learned_absolute")
    net = build_vit(SPEC.model_copy(update={"position_size": 8}), absolute).eval()
    assert net.position.table.shape[:2] == (4, 4) and net.rope.train_grid == (6, 6)
    images = torch.randn(2, 1, 12, 12)
    with torch.no_grad():
        before = net(images)
        net.position.table.normal_()
        assert not torch.allclose(net(images), before)
    plain = build_vit(SPEC, absolute)
    assert plain.position.table.shape[:2] == (6, 6)
