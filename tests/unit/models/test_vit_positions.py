"""Positions reach every layer as they should: any grid, prefix explicit, axes in order, patch dropout gathered, coordinates scaled."""

import pytest
import torch

from goatbench.attention.positions import Grid, Scattered

# Sizes ----------------------------------------------------------------------------------------------------------------


def test_set_input_size_and_dynamic_sizes_in_any_order(tiny, images, options_of, planar):
    net = tiny(**options_of(planar))
    small, wide = images(12, 12), images(8, 20)
    with torch.no_grad():
        expected = net(small), net(wide)
        for size in [(16, 20), (12, 12), (100, 126), 24]:
            net.set_input_size(size)
            assert torch.equal(net(wide), expected[1]) and torch.equal(net(small), expected[0])
    assert net.patch_embed.grid_size == net.rope.feat_shape == (12, 12)
    assert net.rope.train_grid == (6, 6)


def test_training_grid_may_be_oblong(tiny, images, options_of, planar):
    net = tiny(**options_of(planar), img_size=(12, 20))
    assert net.rope.train_grid == (6, 10)
    with torch.no_grad():
        for size in [(12, 20), (20, 12), (12, 12), (24, 8)]:
            assert net(images(*size)).isfinite().all()
        plain = net(images(12, 20))
        with net.coordinates("scaled"):  # at the training grid nothing is scaled
            assert torch.equal(net(images(12, 20)), plain)


def test_patch_size_can_be_changed(tiny, gaussian, images):
    net = tiny(gaussian)
    net.set_input_size(patch_size=4, img_size=(24, 24))
    with torch.no_grad():
        assert net.forward_features(images(24, 16)).shape == (2, 1 + 6 * 4, 32)
        with pytest.raises(ValueError, match="multiple of the patch size 4 x 4"):
            net(images(24, 18))


@pytest.mark.parametrize("call", ["forward", "forward_features", "forward_intermediates", "patch_embed"])
def test_other_sizes_are_refused_with_the_nearest_allowed(tiny, images, call):
    net = tiny(patch_size=4)
    with pytest.raises(ValueError, match=r"image size 14 x 21 is not a multiple of the patch size 4 x 4; nearest: 12 or 16 x 20 or 24"):
        getattr(net, call)(images(14, 21))


def test_construction_and_resize_refuse_bad_sizes(tiny):
    with pytest.raises(ValueError, match=r"image size 15 x 15 .* nearest: 14 or 16"):
        tiny(img_size=15)
    with pytest.raises(ValueError, match=r"image size 12 x 3 .* nearest: 12 x 2 or 4"):
        tiny().set_input_size((12, 3))
    with pytest.raises(ValueError, match="nearest: 2 x 12"):
        tiny(img_size=(0, 12))


# Prefix ---------------------------------------------------------------------------------------------------------------


def test_equal_token_counts_with_and_without_prefix_are_told_apart(tiny, recorder, images):
    """16 tokens: 3 x 5 patches behind a class token, or 4 x 4 patches and no prefix. Never guessed from the count."""
    with_class, without = tiny(recorder, class_token=True), tiny(recorder, class_token=False)
    assert without.global_pool == "avg"
    with torch.no_grad():
        with_class(images(6, 10))
        without(images(8, 8))
    for net, layout, prefix in [(with_class, Grid(3, 5, 1), [True] + [False] * 15), (without, Grid(4, 4, 0), [False] * 16)]:
        for block in net.blocks:
            seen = block.attn.scheme.seen[-1]
            assert seen.layout == layout and seen.is_prefix[0].tolist() == prefix


def test_pooling_without_class_token_is_checked(tiny, images):
    with pytest.raises(ValueError, match="global_pool='token' reads the class token"):
        tiny(class_token=False, global_pool="token")
    net = tiny(class_token=False, num_reg_tokens=2)
    with torch.no_grad():
        tokens = net.forward_features(images(12, 12))  # [2, 2 + 36, 32]: registers are left out of the mean
        expected = net.head(net.fc_norm(tokens[:, 2:].mean(1)))
        torch.testing.assert_close(net(images(12, 12)), expected)


# Axes -----------------------------------------------------------------------------------------------------------------


def test_transposing_image_and_axes_transposes_the_features(tiny, gaussian, images):
    net = tiny(gaussian, options={"weight": (0.7, 0.02)})
    swapped = tiny(gaussian, options={"weight": (0.02, 0.7)})
    same_axes = tiny(gaussian, options={"weight": (0.7, 0.02)})
    for other in (swapped, same_axes):
        other.patch_embed.proj.weight.data = net.patch_embed.proj.weight.data.transpose(-1, -2).contiguous()
    x = images(8, 20)
    with torch.no_grad():
        _, maps = net.forward_intermediates(x)
        _, transposed = swapped.forward_intermediates(x.transpose(-1, -2))
        _, wrong = same_axes.forward_intermediates(x.transpose(-1, -2))
    torch.testing.assert_close(transposed[-1], maps[-1].transpose(-1, -2), rtol=1e-5, atol=1e-6)
    assert (wrong[-1] - maps[-1].transpose(-1, -2)).abs().max() > 1e-2


# Patch dropout --------------------------------------------------------------------------------------------------------


def coordinate_images(height, width, batch):
    """Channels 0 and 1 hold the (y, x) of each pixel's 2 x 2 patch."""
    y, x = torch.meshgrid(torch.arange(height) // 2, torch.arange(width) // 2, indexing="ij")
    return torch.stack((y, x, torch.zeros_like(x))).float().expand(batch, -1, -1, -1)


@pytest.mark.parametrize("num_reg_tokens", [0, 2])
def test_patch_dropout_gathers_the_positions_of_the_kept_tokens(tiny, recorder, num_reg_tokens):
    net = tiny(recorder, patch_drop_rate=0.5, num_reg_tokens=num_reg_tokens).train()
    with torch.no_grad():  # tokens carry the coordinates of their patch in dims 0 and 1
        net.patch_embed.proj.weight.zero_()
        net.patch_embed.proj.bias.zero_()
        for channel in (0, 1):
            net.patch_embed.proj.weight[channel, channel] = 0.25
    x = coordinate_images(8, 20, batch=3)
    tokens, positions = net._pos_embed(net.patch_embed(x))
    prefix = 1 + num_reg_tokens
    assert positions.layout == Scattered(prefix + 20) and tokens.shape[1] == prefix + 20
    torch.testing.assert_close(positions.coords[:, prefix:], tokens[:, prefix:, :2].double())
    assert positions.is_prefix[:, :prefix].all() and not positions.is_prefix[:, prefix:].any()
    kept = {tuple(sorted(map(tuple, row.tolist()))) for row in positions.coords[:, prefix:]}
    assert len(kept) == 3  # each image drops other patches

    net(x).sum().backward()
    for block in net.blocks:
        assert block.attn.scheme.seen[-1].layout == Scattered(prefix + 20)
    net.eval()(x)
    assert net.blocks[0].attn.scheme.seen[-1].layout == Grid(4, 10, prefix)


def test_patch_dropout_trains_with_any_mechanism(tiny, images, options_of, planar):
    net = tiny(**options_of(planar), patch_drop_rate=0.25).train()
    net(images(12, 12 if planar == "rpb" else 16)).sum().backward()  # a table of offsets cannot be resampled for a grid with holes
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


# Coordinates ----------------------------------------------------------------------------------------------------------


def test_scaled_coordinates_shrink_offsets_by_the_grid_ratio(tiny, gaussian, images):
    """exp(-w d^2) with offsets d * 6/12 in y and d * 6/9 in x is exp(-w' d^2) with w' = w/4 and w * 4/9."""
    net = tiny(gaussian, options={"weight": (0.8, 0.5)})
    equal = tiny(gaussian, options={"weight": (0.2, 0.5 * 4 / 9)})
    x = images(24, 18)
    with torch.no_grad():
        raw = net(x)
        with net.coordinates("scaled"):
            torch.testing.assert_close(net(x), equal(x), rtol=1e-5, atol=1e-6)
            assert not torch.allclose(net(x), raw)


def test_scaled_mode_matters_where_the_scheme_says_so(tiny, images, options_of, planar):
    net = tiny(**options_of(planar))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():  # at initial weights attention has hardly any effect
            p.add_(0.2 * torch.randn(p.shape, generator=generator))
        x = images(24, 16)
        raw = net(x)
        with net.coordinates("scaled"):
            scaled = net(x)
        assert torch.equal(net(x), raw)  # nothing of the scaled pass is left behind
    modes = net.position.coordinate_modes
    assert ((raw - scaled).abs().max() > 1e-3) == ("scaled" in modes)


def test_coordinate_mode_is_checked_and_restored(tiny, images):
    net = tiny()
    with pytest.raises(ValueError, match="coordinate mode 'interpolated' is unknown; one of raw, scaled"):
        net.set_coordinates("interpolated")
    net.set_coordinates("scaled")
    with pytest.raises(RuntimeError, match="stop"), net.coordinates("raw"):
        assert net.rope.mode == "raw"
        raise RuntimeError("stop")
    assert net.rope.mode == "scaled"
