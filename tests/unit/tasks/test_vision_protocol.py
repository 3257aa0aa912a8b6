"""What two rows of a board must share stands in each record: the whole of it, for every preset of evaluation."""

from __future__ import annotations

import pytest

from goatbench.compose import compose
from goatbench.registry import tasks

COMMON = {"antialias": True, "resize": "short side, PIL", "tuned_at_test": False, "base": 224}
PAPER = ["scale=paper", "attention=goat"]


@pytest.mark.parametrize(
    ("overrides", "own"),
    [
        (["task=vit_res512", "scale=embedded", "attention=goat", "evaluation=embedded"],
         {"preset": "embedded", "crop_pct": 1.0, "interpolation": "bicubic", "dtype": "32-true", "split": "test"}),
        (["task=vit_res224", *PAPER, "evaluation=deit3"],
         {"preset": "deit3", "crop_pct": 1.0, "interpolation": "bicubic", "dtype": "bf16-mixed", "split": "test"}),
        (["task=vit_resolution", *PAPER, "evaluation=lookhere", "evaluation.classes=present"],
         {"preset": "lookhere", "crop_pct": 1.0, "base_crop_pct": 0.875, "interpolation": "bilinear", "dtype": "bf16-mixed",
          "split": "test", "classes": "present"}),
        (["task=vit_tuning", *PAPER, "evaluation=timm", "trainer=cpu"],
         {"preset": "timm", "crop_pct": 0.9, "interpolation": "bicubic", "dtype": "32-true", "split": "validation"}),
    ],
    ids=["embedded", "deit3", "lookhere", "timm"],
)  # fmt: skip
def test_the_protocol_of_each_preset(overrides, own):
    spec = compose(overrides).spec
    assert tasks.get(spec.task.name).protocol(spec) == COMMON | own
