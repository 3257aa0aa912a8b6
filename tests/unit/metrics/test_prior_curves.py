"""Priors by offset against closed forms: ALiBi's is geometric, a scheme without a prior and one of content have none."""

from __future__ import annotations

import pytest
import torch

from goatbench.attention.priors.recency import alibi_slopes
from goatbench.compose import compose
from goatbench.metrics.prior_curves import prior_curves, prior_maps
from goatbench.models import Decoder, GoatViT
from goatbench.registry import tasks

SIZES = dict(vocab_size=5, num_scored=5, seq_len=48, embed_dim=64, depth=2, num_heads=2, mlp_ratio=1.0)


def test_alibi_is_geometric_in_the_offset():
    found = prior_curves(Decoder("alibi", **SIZES), 20)
    ratio = torch.exp(-alibi_slopes(2).double())[:, None]
    expected = ((1 - ratio) / (1 - ratio**20) * ratio ** torch.arange(20)).log()
    torch.testing.assert_close(found, expected.expand(2, 2, 20), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["nope", "rope", "fox", "sink_scalar"])
def test_no_prior_over_keys_no_curve(name):
    assert prior_curves(Decoder(name, **SIZES), 20) is None


def test_of_a_patch_the_map_is_that_of_its_distances():
    """2D ALiBi: a slope a head times the Euclidean distance to the patch in the middle of 5 x 7, row 2, column 3."""
    net = GoatViT("alibi_2d", img_size=(20, 28), patch_size=4, embed_dim=64, depth=2, num_heads=2, num_classes=3)
    found = prior_maps(net, 5, 7)
    y, x = torch.meshgrid(torch.arange(5.0), torch.arange(7.0), indexing="ij")
    distance = ((y - 2) ** 2 + (x - 3) ** 2).sqrt().double()
    for layer in found:
        assert torch.equal(layer.flatten(1).argmax(1), torch.tensor([17, 17]))
        slopes = (layer[:, 2, 3] - layer[:, 2, 4])[:, None, None]
        torch.testing.assert_close(layer[:, 2, 3, None, None] - layer, slopes * distance, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(layer.exp().sum((1, 2)), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("name", ["nope", "rope_axial", "learned_absolute"])
def test_no_prior_over_patches_no_map(name):
    assert prior_maps(GoatViT(name, img_size=16, patch_size=4, embed_dim=64, depth=1, num_heads=2, num_classes=3), 4, 4) is None


@pytest.mark.parametrize("name", ["goat", "goat_mixed", "lookhere", "fire_2d", "rpb"])
def test_every_kind_of_prior_over_patches_has_a_map(name):
    spec = compose(["task=vit_res224", "scale=smoke", f"attention={name}"]).spec
    found = prior_maps(tasks.get("vit_res224").model(spec), 4, 5)
    assert found.shape == (spec.model.depth, spec.model.num_heads, 4, 5)
    torch.testing.assert_close(found.exp().sum((2, 3)), torch.ones(found.shape[:2], dtype=torch.float64))
