"""Checkpoints: all or nothing, weights only, and one clear line for what is wrong."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from goatbench.errors import UsageError
from goatbench.training.checkpoint import load_checkpoint, save_checkpoint

META = {"run": "a", "fit": {"selected_epoch": 2, "validation_top1": [0.25, 0.5]}}


@pytest.fixture
def saved(tmp_path, net):
    path = tmp_path / "deep" / "weights.ckpt"
    save_checkpoint(path, net.state_dict(), META)
    return path


def test_round_trip(saved, net, new_net):
    other = new_net()
    for p in other.parameters():
        nn.init.zeros_(p)
    assert load_checkpoint(saved, other) == META
    for name, tensor in net.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    assert set(torch.load(saved, weights_only=True)) == {"state_dict", "meta"}
    assert os.listdir(saved.parent) == ["weights.ckpt"]


def test_a_failed_write_leaves_the_old_file_alone(saved, net):
    before = saved.read_bytes()
    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(saved, net.state_dict(), {"not plain": lambda: None})
    assert saved.read_bytes() == before and os.listdir(saved.parent) == ["weights.ckpt"]


def test_a_full_disk_is_one_line_and_leaves_the_old_file_alone(saved, net):
    """A limit on file sizes stands in for the disk: torch's writer meets it half-way."""
    before, (soft, hard) = saved.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(UsageError, match=r"cannot write .*weights\.ckpt: File too large; what was saved before is kept") as caught:
            save_checkpoint(saved, {"large": torch.zeros(100_000)}, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == before and os.listdir(saved.parent) == ["weights.ckpt"]


def test_a_folder_that_cannot_be_written_is_one_line(net):
    with pytest.raises(UsageError, match=r"cannot write /proc/nothing/weights\.ckpt: No such file"):
        save_checkpoint(Path("/proc/nothing/weights.ckpt"), net.state_dict(), META)


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    return b"not a checkpoint" + content[16:]


@pytest.mark.parametrize("damage", [truncate, flip, lambda _: b""])
def test_a_damaged_file_is_one_line(saved, net, damage):
    saved.write_bytes(damage(saved.read_bytes()))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(UsageError, match=r"weights\.ckpt is damaged .*retrain=true") as error:
        load_checkpoint(saved, net)
    assert "\n" not in str(error.value)
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_file_with_code_in_it_is_not_run(tmp_path, net):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    torch.save({"state_dict": {}, "meta": Payload()}, tmp_path / "evil.ckpt")
    with pytest.raises(UsageError, match="damaged or not a goatbench checkpoint"):
        load_checkpoint(tmp_path / "evil.ckpt", net)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 16)), "unknown 4.bias, 4.weight"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.GELU(), nn.Identity(), nn.Linear(8, 4)),
            "shape of 1.bias, 1.weight, 4.weight",
        ),
    ],
)
def test_another_model_is_one_line(saved, other, message):
    with pytest.raises(UsageError, match=message):
        load_checkpoint(saved, other)


def test_a_missing_file(tmp_path, net):
    with pytest.raises(UsageError, match="does not exist"):
        load_checkpoint(tmp_path / "none.ckpt", net)
