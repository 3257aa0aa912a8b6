"""How long a training waited for its batches, by a clock that only the test moves, and when a run says so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from goatbench.compose import compose
from goatbench.execute import execute
from goatbench.spec import TrainerSpec
from goatbench.training import waiting
from goatbench.training.classifier import Classifier
from goatbench.training.fit import fit
from goatbench.training.waiting import loader_notice

BATCHES, EPOCHS = 4, 2


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


@pytest.fixture
def train(tmp_path, net, recipe, augmentation, made_up_data, clock):
    """train(stop_in=None) -> its FitResult, with checkpoints every second step. By the clock a training batch takes its loader 1 second, a
    batch of validation 1,000, a step and a checkpoint each 100. stop_in: an interrupt in this step (from 0)."""

    class Slow(DataLoader):
        seconds = 1.0

        def __iter__(self):
            for batch in super().__iter__():
                clock.seconds += self.seconds
                yield batch

    class SlowValidation(Slow):
        seconds = 1000.0

    class Data(made_up_data):
        def train_dataloader(self):
            return Slow(self.loader(64, 16).dataset, 16, generator=torch.Generator())

        def val_dataloader(self):
            return SlowValidation(self.loader(21, 8).dataset, 8, generator=torch.Generator())

    class SlowSteps(Classifier):
        stop_in = None

        def training_step(self, batch, batch_idx):
            if self.global_step == self.stop_in:
                raise KeyboardInterrupt
            clock.seconds += 100
            return super().training_step(batch, batch_idx)

        def on_save_checkpoint(self, checkpoint):
            clock.seconds += 100

    def run(stop_in=None):
        module = SlowSteps(net, recipe, augmentation, 1e-2, BATCHES * EPOCHS, 4)
        module.stop_in = stop_in
        return fit(module, Data(), TrainerSpec(checkpoint_steps=2), EPOCHS, tmp_path / "best.ckpt", False)

    return run


def test_only_the_loader_counts_and_not_the_first_batch(train):
    assert train().train_wait_seconds == BATCHES * EPOCHS - 1


def test_a_resumed_training_adds_to_what_it_waited_before(train):
    with pytest.raises(KeyboardInterrupt):
        train(stop_in=5)  # the checkpoint is that after step 4: three batches were waited for
    assert train().train_wait_seconds == 3 + 3  # of the four that remain, the first is the process's first


def test_a_checkpoint_without_the_waiting_is_read(train, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(stop_in=5)
    checkpoint = torch.load(tmp_path / "resume.ckpt", weights_only=True)
    assert checkpoint["callbacks"]["_Watch"].pop("wait_seconds") == 3
    torch.save(checkpoint, tmp_path / "resume.ckpt")
    assert train().train_wait_seconds == 3


def test_the_notice_names_what_it_waited_for_and_what_helps():
    images = compose(["task=vit_res512", "attention=goat", "scale=smoke", "trainer.num_workers=3"]).spec
    said = "training waited 63% of its time for images: raise trainer.num_workers (now 3); goatbench bench image_loader says what a core"
    assert loader_notice(images, 63.0, 100.0) == f"{said} can do"
    shards = images.model_copy(update={"data": images.data.model_copy(update={"name": "image_parquet"})})
    assert ", or keep the images as files or in tar shards: " in loader_notice(shards, 63.0, 100.0)
    tokens = compose(["task=needle", "attention=goat", "scale=smoke"]).spec
    assert loader_notice(tokens, 9.0, 10.0) == "training waited 90% of its time for data: raise trainer.num_workers (now 0)"
    assert loader_notice(tokens, 9.0, 9.9) is None  # too short to say
    assert loader_notice(tokens, 50.0, 100.0) is None


def test_a_run_records_it_and_says_so_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(waiting, "SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "BOUND_BY_LOADER", 0.0)
    command = ["task=needle", "attention=nope", "scale=smoke", f"runs_dir={tmp_path}"]
    costs = {cost.name: cost for cost in execute(compose(command)).costs}
    assert 0 < costs["train_wait_seconds"].value < costs["train_wall_seconds"].value
    assert (costs["train_wait_seconds"].unit, costs["train_wait_seconds"].method) == ("s", "wall clock between batches, rank 0")
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("goatbench: note: training waited ")]
    assert len(said) == 1
    execute(compose(command))  # the weights are there
    assert "training waited" not in capsys.readouterr().err
