"""FSDP2: the losses of plain training, and a checkpoint that a whole net loads. On GPUs as many ranks as the machine gives one process;
on the CPU, where a run refuses it (spec.training), the same code shards over two gloo processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import forked
import pytest
import torch
from domain_runs import spec_of, train

from goatbench.errors import PreemptedError
from goatbench.spec import RunSpec
from goatbench.training.module import TrainingModule

NO_DRAWS = {"vision": ("model.drop_path=0", "data.augmentation.mixup=0"), "text": ()}


def sharded(spec: RunSpec) -> RunSpec:
    """Past the check that refuses it on a CPU."""
    return spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"strategy": "fsdp2"})})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("domain", NO_DRAWS)
def test_sharded_training_is_plain_training(domain, tmp_path):
    plain = spec_of(domain, "trainer.accelerator=gpu", *NO_DRAWS[domain])
    weights, fit = train(sharded(plain), tmp_path / "sharded.pt")
    whole, other = train(plain, tmp_path / "plain.pt")
    check(weights, fit, whole, other)


def check(weights: dict, fit: dict, whole: dict, plain: dict) -> None:
    assert weights.keys() == whole.keys() and fit["steps"] == plain["steps"] and fit["samples"] == plain["samples"]
    assert all(weights[name].shape == whole[name].shape and not hasattr(weights[name], "placements") for name in whole)
    assert fit["validation_values"] == pytest.approx(plain["validation_values"], rel=1e-4, abs=1e-4)


def one_rank(rank: int, world_size: int, domain: str, folder: Path) -> None:
    """Its losses and how much of the net it holds; then a training that a signal to the last rank stops, and that goes on."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    meet = f"file://{folder}/rendezvous{world_size}"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=world_size, timeout=timedelta(seconds=300))
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")
    spec = spec_of(domain, f"trainer.devices={world_size}", *NO_DRAWS[domain])
    spec = sharded(spec) if world_size > 1 else spec
    losses, held, stop_at = [], [], [None]

    def noted(self, loss):
        losses.append(float(loss.detach()))
        held.append(sum(getattr(p, "_local_tensor", p).numel() for p in self.net.parameters()))
        if self.global_step == stop_at[0] and rank == world_size - 1:
            os.kill(os.getpid(), signal.SIGUSR1)

    TrainingModule.on_before_backward = noted
    weights, fit = train(spec, folder / f"{world_size}.pt")
    found = {"losses": losses[:], "held": held[0], "fit": fit}
    if world_size > 1:
        stop_at[0] = 2
        with pytest.raises(PreemptedError, match="after 3 steps"):
            train(spec, folder / "stopped.pt")
        stop_at[0] = None
        again, fit = train(spec, folder / "stopped.pt")
        found["resumed"] = [fit["resumed_at_steps"], all(torch.equal(weights[name], again[name]) for name in weights)]
    torch.save(weights, folder / f"weights{world_size}-{rank}")
    (folder / f"{world_size}-{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("domain", NO_DRAWS)
def test_two_processes_share_a_net(domain, tmp_path):
    for world_size in (1, 2):
        codes = forked.wait([forked.start(one_rank, rank, world_size, domain, tmp_path) for rank in range(world_size)])
        assert codes == [0] * world_size
    alone, *ranks = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("1-0", "2-0", "2-1"))
    whole, weights = (torch.load(tmp_path / name, weights_only=True) for name in ("weights1-0", "weights2-0"))
    assert len(alone["losses"]) == 8
    means = [sum(pair) / 2 for pair in zip(*(rank["losses"][:8] for rank in ranks), strict=True)]
    assert means == pytest.approx(alone["losses"], rel=1e-5)
    assert all(0.45 < rank["held"] / alone["held"] < 0.55 for rank in ranks)
    check(weights, ranks[0]["fit"], whole, alone["fit"])
    assert [rank["resumed"] for rank in ranks] == [[[3], True]] * 2
