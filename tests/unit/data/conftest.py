"""Specifications of small runs on the embedded images and on a made-up ImageNet tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_images import WNIDS, write_tree

from goatbench.spec import AugmentationSpec, ImageDataSpec, ImageEvaluationSpec, VitSpec


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "imagenet", WNIDS, {"train": 20, "val": 7})


@pytest.fixture
def vit() -> VitSpec:
    return VitSpec(
        kind="vit", name="tiny", image_size=12, patch_size=2, in_chans=1, num_classes=10,
        embed_dim=32, depth=1, num_heads=1, mlp_ratio=2.0, drop_path=0.0,
    )  # fmt: skip


@pytest.fixture
def evaluation() -> ImageEvaluationSpec:
    return ImageEvaluationSpec(
        kind="images", preset="deit3", base=224, pixels={224: 12, 512: 28}, crop_pct=1.0, interpolation="bicubic", batch_tokens=1000
    )


@pytest.fixture
def embedded() -> ImageDataSpec:
    return ImageDataSpec(
        kind="images", name="fashion_mnist", num_train=230, num_validation=40, num_test=50,
        augmentation=AugmentationSpec(crop_min_scale=0.3),
    )  # fmt: skip


@pytest.fixture
def folder_spec(tree: Path) -> ImageDataSpec:
    return ImageDataSpec(
        kind="images", name="image_folder", root=str(tree),
        augmentation=AugmentationSpec(crop_min_scale=0.3, three_augment=True, color_jitter=0.3),
    )  # fmt: skip


@pytest.fixture
def color_vit(vit: VitSpec) -> VitSpec:
    return vit.model_copy(update={"in_chans": 3, "num_classes": 3, "image_size": 16, "patch_size": 4})
