"""Two or three gloo processes over loopback: evaluation equals one process to the last image, and training runs under stock DDP."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import forked
import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from goatbench.data.order import ShardSampler, TrainSampler
from goatbench.models.decoder import Decoder
from goatbench.models.vit import GoatViT
from goatbench.spec import AugmentationSpec, TrainerSpec, TrainingSpec
from goatbench.training.checkpoint import load_checkpoint
from goatbench.training.classifier import Classifier
from goatbench.training.evaluate import EvaluationError, evaluate
from goatbench.training.evaluate_lm import evaluate_lm
from goatbench.training.fit import fit


class MadeUpImages(Dataset):
    """Sample i: noise that depends on i alone, label i mod 10. Indices may be (epoch, index) draws."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if isinstance(index, tuple):
            index = index[1]
        if index >= self.size:
            raise IndexError(index)
        return torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(index)), torch.tensor(index % 10), torch.tensor(index)


class Sharded(lightning.LightningDataModule):
    def __init__(self, rank: int, world_size: int, num_workers: int = 0) -> None:
        super().__init__()
        self.rank, self.world_size, self.num_workers = rank, world_size, num_workers

    def train_dataloader(self) -> DataLoader:
        sampler = TrainSampler(16, 8, 0, self.rank, self.world_size)
        return DataLoader(MadeUpImages(16), sampler.local_batch_size, sampler=sampler, drop_last=True)

    def val_dataloader(self, size: int = 21) -> DataLoader:
        """21 images, batches of 4: 6 batches alone; 3 and 3 batches, the last of 3 and 2 images, on two ranks."""
        images = MadeUpImages(size)
        return DataLoader(images, 4, sampler=ShardSampler(size, self.rank, self.world_size), num_workers=self.num_workers)


def make_net() -> GoatViT:
    torch.manual_seed(0)
    return GoatViT(
        "goat",
        {"num_frequencies": 3, "min_period": 3.0},
        img_size=8,
        patch_size=2,
        in_chans=1,
        num_classes=10,
        embed_dim=32,
        depth=2,
        num_heads=1,
    )


class Poisoned(nn.Module):
    """NaN for one sample only: one rank fails, the other must not wait for it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        marker = MadeUpImages(21)[6][0]
        return torch.where((images == marker).flatten(1).all(1)[:, None], torch.nan, images.flatten(1)[:, :10])


def measure(rank: int, world_size: int, num_workers: int = 0, size: int = 21) -> dict:
    loader = Sharded(rank, world_size, num_workers).val_dataloader(size)
    result = asdict(evaluate(make_net(), loader, num_examples=size, num_classes=10, device="cpu"))
    result["image_nll_nats"] = result["image_nll_nats"].tolist()
    return {name: value for name, value in result.items() if not name.startswith(("images_per_second", "peak"))}


def measure_lm(shard: slice, poisoned: bool = False) -> dict:
    """The windows of `shard`, of 11 with 12 bases each: batches of 3, some N, a mask."""
    torch.manual_seed(0)
    net = Decoder("rope", vocab_size=5, num_scored=4, seq_len=12, embed_dim=16, depth=1, num_heads=1)
    tokens, ids, mask = torch.randint(5, (11, 13)), torch.arange(11), torch.rand(11, 12) < 0.4
    if poisoned:
        net.head.bias.data.fill_(torch.nan)
    batches = list(zip(*(part[shard].split(3) for part in (tokens, ids, mask)), strict=True))
    result = asdict(evaluate_lm(net, batches, num_scored=4, num_windows=11, device="cpu", last=9))
    skip = ("tokens_per_second", "peak", "batch")
    return {name: torch.as_tensor(value).double().tolist() for name, value in result.items() if not name.startswith(skip)}


def join(rank: int, world_size: int, folder: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    meet = f"file://{folder}/rendezvous{world_size}"
    limit = timedelta(seconds=forked.LIMIT_SECONDS)
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=world_size, timeout=limit)


def one_of_two(rank: int, folder: Path) -> None:
    """What each of the two processes does: train, then evaluate three times."""
    torch.set_num_threads(1)
    join(rank, 2, folder)
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")  # tells Lightning that the processes are there already
    found = {"fit": train(rank, 2, folder)}
    found |= {"21": measure(rank, 2), "workers": measure(rank, 2, num_workers=1), "1": measure(rank, 2, size=1)}
    try:
        evaluate(Poisoned(), Sharded(rank, 2).val_dataloader(), num_examples=21, num_classes=10, device="cpu")
    except EvaluationError as error:
        found["poisoned"] = str(error)
    first, second = slice(0, 7), slice(7, None)
    found["windows"] = measure_lm(first if rank == 0 else second)
    found["idle"] = measure_lm(slice(None) if rank == 0 else slice(0, 0))
    try:
        measure_lm(first if rank == 0 else second, poisoned=rank == 1)
    except EvaluationError as error:
        found["poisoned_lm"] = str(error)
    torch.save(found, folder / f"found{rank}")
    torch.distributed.destroy_process_group()


def one_of_three(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    join(rank, 3, folder)
    torch.save(measure(rank, 3, size=22), folder / f"three{rank}")
    torch.distributed.destroy_process_group()


def train(rank: int, world_size: int, folder: Path) -> dict:
    """2 steps of 8 images."""
    recipe = TrainingSpec(epochs=1, batch_size=8, default_learning_rate=1e-3)
    module = Classifier(make_net(), recipe, AugmentationSpec(crop_min_scale=1.0), 1e-3, 2, 10)
    return asdict(fit(module, Sharded(rank, world_size), TrainerSpec(devices=world_size), 1, folder / f"{world_size}.ckpt", False))


def outputs_of(checkpoint: Path | None) -> torch.Tensor:
    """Logits, not weights: Adam turns the rounding errors of parameters with hardly any gradient into whole steps."""
    net = make_net().eval()
    if checkpoint is not None:
        load_checkpoint(checkpoint, net)
    with torch.no_grad():
        return net(torch.stack([image for image, _, _ in MadeUpImages(21)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("two_ranks")


@pytest.fixture(scope="module")
def two_ranks(folder) -> list[dict]:
    assert forked.wait([forked.start(one_of_two, rank, folder) for rank in (0, 1)]) == [0, 0]
    return [torch.load(folder / f"found{rank}", weights_only=True) for rank in (0, 1)]


def assert_equal(found: dict, alone: dict) -> None:
    assert found.keys() == alone.keys()
    for name, value in alone.items():
        assert found[name] == (pytest.approx(value, rel=1e-5) if isinstance(value, float | list) else value), name


@pytest.mark.parametrize("case", ["21", "workers"])
def test_two_processes_equal_one(two_ranks, case):
    alone = measure(0, 1)
    assert alone["n"] == 21 and alone["nll_stderr"] > 0
    for found in two_ranks:
        assert_equal(found[case], alone)


def test_three_processes_equal_one(tmp_path):
    """22 images: 8, 7 and 7."""
    assert forked.wait([forked.start(one_of_three, rank, tmp_path) for rank in range(3)]) == [0, 0, 0]
    alone = measure(0, 1, size=22)
    assert alone["n"] == 22 and alone["ece"] > 0
    for rank in range(3):
        assert_equal(torch.load(tmp_path / f"three{rank}", weights_only=True), alone)


def test_a_rank_without_images(two_ranks):
    """One image on two ranks: the second has nothing to do, and counts nothing."""
    alone = measure(0, 1, size=1)
    for found in two_ranks:
        assert found["1"]["n"] == 1 and found["1"]["top1"] == alone["top1"]
        assert found["1"]["nll_nats"] == pytest.approx(alone["nll_nats"], rel=1e-5)


def test_a_failure_on_one_rank_reaches_the_other(two_ranks):
    assert two_ranks[0]["poisoned"] == "logits are not finite at 8x8 px: first for sample 6, 1 in its batch"
    assert two_ranks[1]["poisoned"] == "the evaluation failed on rank 0: see its message"


@pytest.mark.parametrize("case", ["windows", "idle"])
def test_two_processes_equal_one_in_likelihood(two_ranks, case):
    """Uneven shards of 7 and 4 windows, and a rank that has none."""
    alone = measure_lm(slice(None))
    assert sum(alone["window_count"]) > 50 and alone["masked_count"] > 10
    for found in two_ranks:
        for name, value in alone.items():
            assert found[case][name] == pytest.approx(value, rel=1e-6), name


def test_a_failed_likelihood_on_one_rank_reaches_the_other(two_ranks):
    assert two_ranks[0]["poisoned_lm"] == "the evaluation failed on rank 1: see its message"
    assert two_ranks[1]["poisoned_lm"] == "the likelihood is not finite at context 12: first in window 7"


def test_training_under_ddp(two_ranks, folder):
    """No parameter is unused (stock DDP would stop in the second step), and two ranks learn what one does: the same global batches
    give the same net but for the order of sums."""
    one = train(0, 1, folder)
    for found in two_ranks:
        assert (found["fit"]["steps"], found["fit"]["samples"]) == (one["steps"], one["samples"]) == (2, 16)
        assert found["fit"]["selected_value"] == pytest.approx(one["selected_value"], abs=1e-6)
    before, alone, together = (outputs_of(path) for path in (None, folder / "1.ckpt", folder / "2.ckpt"))
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-3)
    assert (alone - before).abs().max() > 0.02  # both have moved much further than they differ
