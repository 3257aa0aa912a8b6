"""FSDP2 on the device that is there, one rank or more: the same losses as plain training, and a checkpoint that a whole net loads."""

from __future__ import annotations

import pytest
import torch
from domain_runs import spec_of, train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("domain", ["vision", "text"])
def test_sharded_training_is_plain_training(domain, tmp_path):
    gpu = ("trainer.accelerator=gpu", *(("model.drop_path=0", "data.augmentation.mixup=0") if domain == "vision" else ()))
    weights, fit = train(spec_of(domain, *gpu, "trainer.strategy=fsdp2"), tmp_path / "sharded.pt")
    whole, plain = train(spec_of(domain, *gpu), tmp_path / "plain.pt")
    assert weights.keys() == whole.keys() and fit["steps"] == plain["steps"]
    assert all(weights[name].shape == whole[name].shape for name in whole)
    assert fit["validation_values"] == pytest.approx(plain["validation_values"], rel=1e-4, abs=1e-4)
