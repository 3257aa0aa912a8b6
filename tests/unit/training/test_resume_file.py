"""The checkpoint of a training that is under way: a file of a stranger runs nothing, and when one is written by the clock."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from test_checkpoint import flip, truncate

from goatbench.errors import UsageError
from goatbench.spec import TrainerSpec
from goatbench.training import resume
from goatbench.training.classifier import Classifier
from goatbench.training.fit import fit
from goatbench.training.resume import ResumeFile


class Payload:
    def __init__(self, harm) -> None:
        self.harm = harm

    def __reduce__(self):
        return (os.mkdir, (str(self.harm),))


@pytest.fixture
def train(net, tmp_path, recipe, augmentation, made_up_data):
    """train(**trainer) with made-up images, 8 steps in 2 epochs; its checkpoint is tmp_path/resume.ckpt."""

    def run(**trainer):
        return fit(Classifier(net, recipe, augmentation, 1e-2, 8, 4), made_up_data(), TrainerSpec(**trainer), 2, tmp_path / "w.pt", False)

    return run


@pytest.fixture
def half_way(train, tmp_path, monkeypatch):
    """The checkpoint of a training that was stopped after its second step."""
    check = Classifier.check_finite

    def stopped(self, loss):
        if self.global_step == 2:
            raise KeyboardInterrupt
        check(self, loss)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Classifier, "check_finite", stopped)
        train(checkpoint_steps=1)
    return tmp_path / "resume.ckpt"


@pytest.mark.parametrize("damage", [truncate, flip, lambda _: b""])
def test_a_damaged_file_is_one_line_and_without_it_training_starts_anew(half_way, train, damage):
    half_way.write_bytes(damage(half_way.read_bytes()))
    with pytest.raises(UsageError, match=r"resume\.ckpt is damaged .*remove it, and the training starts anew") as error:
        train()
    assert "\n" not in str(error.value) and half_way.exists()
    half_way.unlink()
    assert train().steps == 8


def test_a_file_with_code_in_it_is_not_run(half_way, train, tmp_path):
    content = torch.load(half_way, weights_only=True)
    torch.save({**content, "state_dict": Payload(tmp_path / "harm")}, half_way)
    with pytest.raises(UsageError, match="is damaged"):
        train()
    with pytest.raises(UsageError, match="is damaged"):
        ResumeFile().load_checkpoint(half_way, weights_only=False)  # whatever Lightning asks for
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("content", [{}, [1, 2], torch.zeros(3), {"state_dict": {}, "pytorch-lightning_version": "2.0"}])
def test_a_file_of_another_kind_is_one_line(train, tmp_path, content):
    torch.save(content, tmp_path / "resume.ckpt")
    with pytest.raises(UsageError, match=r"resume\.ckpt is damaged .*remove it") as error:
        train()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("trainer", "saved"),
    [
        ({"checkpoint_minutes": 6}, [3, 6]),
        ({}, [5]),  # every 10 minutes
        ({"checkpoint_minutes": None}, []),
        ({"checkpoint_minutes": 6, "checkpoint_steps": 2}, [2, 4, 6]),  # the clock starts again with every one that is written
    ],
)
def test_a_checkpoint_is_written_every_so_many_minutes(train, monkeypatch, trainer, saved):
    """On a clock by which each of the 8 steps takes two minutes; nothing is left to be trained after the last."""
    now, found = [1000.0], []

    def two_minutes_later(self, loss):
        now[0] += 120

    monkeypatch.setattr(Classifier, "check_finite", two_minutes_later)
    monkeypatch.setattr(resume, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(ResumeFile, "save_checkpoint", lambda self, checkpoint, *_, **__: found.append(checkpoint["global_step"]))
    train(**trainer)
    assert found == saved
