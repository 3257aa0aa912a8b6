"""Several gloo processes make the same run as one: samples of each step, losses, evaluation; and end together when one fails."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import forked
import pytest
import torch
from kept import Kept

from goatbench.cli import main
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.registry import tasks
from goatbench.training.checkpoint import load_checkpoint
from goatbench.training.module import TrainingModule

STEPS = 10
# no random draws in the model
COMMON = ["scale=smoke", "training.epochs=1", "training.batch_size=8", f"data.num_train={8 * STEPS}", "data.num_validation=8"]
NO_COUNTS = ["evaluation.markov_orders=[]", "evaluation.markov_interpolated=0"]  # n-grams are the same for any model
RUNS = {
    "vision": ["task=vit_res288", "attention=goat", "data.num_test=21", *COMMON],
    "genome": ["task=genome_length", "attention=rope", "task.multiples=[1]", "data.num_test=11", *NO_COUNTS, *COMMON],
    "text": ["task=lm_length", "attention=alibi", "task.multiples=[1]", *COMMON],
}
EXACT = {"top1", "top5", "accuracy"}


def train_and_measure(name: str, folder: Path, world_size: int = 1, accumulate: int = 1, weights: Path | None = None) -> dict:
    """ids and loss of every forward pass in training, and what one checkpoint measures (`weights`, or what was trained)."""
    machine = [f"trainer.devices={world_size}", f"trainer.accumulate={accumulate}"]
    spec = compose([*RUNS[name], *machine]).spec
    task = tasks.get(spec.task.name)
    torch.manual_seed(spec.seed)
    net, data = task.model(spec), task.data(spec)
    steps, step = [], TrainingModule.on_before_backward

    def noted(self, loss):
        steps.append([self.ids, float(loss.detach()) * accumulate])  # Lightning divides it

    def take(self, batch, batch_idx, dataloader_idx=0):
        if self.trainer.training:
            self.ids = batch[-1].tolist()
        return batch

    TrainingModule.on_before_backward, TrainingModule.on_after_batch_transfer = noted, take
    try:
        task.train(spec, net, data, folder / f"{name}-{world_size}-{accumulate}.pt", meta={"run_id": "-"})
    finally:
        TrainingModule.on_before_backward = step
        del TrainingModule.on_after_batch_transfer
    load_checkpoint(weights or folder / f"{name}-{world_size}-{accumulate}.pt", net)
    outcome = task.measure(spec, net, data, None)
    measured = [[m.metric, m.conditions, m.n, m.value, m.stderr] for m in outcome.measurements]
    return {"steps": steps, "measured": json.loads(json.dumps(measured))}


def one_rank(rank: int, world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous{world_size}", rank=rank, world_size=world_size, timeout=timedelta(seconds=300)
    )
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")  # tells Lightning that the processes are there already
    found = {name: train_and_measure(name, folder, world_size, weights=folder / f"{name}-1-1.pt") for name in RUNS}
    (folder / f"{world_size}-{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def alone(folder) -> dict:
    return {name: train_and_measure(name, folder) for name in RUNS}


def on_ranks(world_size: int, folder: Path) -> list[dict]:
    processes = [forked.start(one_rank, rank, world_size, folder) for rank in range(world_size)]
    assert forked.wait(processes) == [0] * world_size
    return [json.loads((folder / f"{world_size}-{rank}.json").read_text()) for rank in range(world_size)]


def check(alone: dict, ranks: list[dict]) -> dict[str, dict[str, float]]:
    """The largest differences that were found, by domain, after none was too large."""
    found = {}
    for name in RUNS:
        assert len(alone[name]["steps"]) == STEPS
        losses, values = [], []
        for number, (ids, loss) in enumerate(alone[name]["steps"]):
            parts = [rank[name]["steps"][number] for rank in ranks]
            assert sorted(i for part, _ in parts for i in part) == sorted(ids), (name, number)
            mean = sum(value for _, value in parts) / len(ranks)
            assert mean == pytest.approx(loss, rel=1e-5), (name, number)
            losses.append(abs(mean / loss - 1))
        for rank in ranks:
            assert len(rank[name]["measured"]) == len(alone[name]["measured"]) > 0
            assert sum(value is not None for *_, value, _ in alone[name]["measured"]) > 1
            for mine, theirs in zip(rank[name]["measured"], alone[name]["measured"], strict=True):
                assert mine[:3] == theirs[:3]
                if theirs[3] is None:  # not applicable: says so on any number of processes
                    assert mine[3] is None
                    continue
                assert mine[3] == pytest.approx(theirs[3], rel=1e-6, abs=0 if mine[0] in EXACT else 1e-6), (name, mine[:2])
                values.append(abs(mine[3] - theirs[3]))
        found[name] = {"steps": STEPS, "relative_loss": max(losses), "values": len(values), "absolute_value": max(values)}
    return found


def test_two_processes_are_one_run(alone, folder):
    check(alone, on_ranks(2, folder))


@pytest.mark.slow
def test_four_processes_are_one_run(alone, folder):
    kept = Kept("gloo-4", "tests/integration/test_distributed.py::test_four_processes_are_one_run")
    kept.write(processes=4, largest_differences=check(alone, on_ranks(4, folder)))


def test_accumulation_keeps_the_global_batch(alone, folder):
    halves = train_and_measure("text", folder, accumulate=2)["steps"]
    assert len(halves) == 2 * STEPS
    for number, (ids, loss) in enumerate(alone["text"]["steps"]):
        (first, one), (second, two) = halves[2 * number : 2 * number + 2]
        assert sorted(first + second) == sorted(ids) and (one + two) / 2 == pytest.approx(loss, rel=1e-5)


def failing(rank: int, port: int, folder: Path) -> None:
    """A run through the command line, as Lightning starts it on every rank; the second breaks in its third step."""
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    sys.stderr = open(folder / f"stderr{rank}.txt", "w")  # noqa: SIM115
    check = TrainingModule.check_finite

    def hooked(self, loss):
        if rank == 1 and self.global_step == 2:
            raise ValueError("out of luck in /some/where/else")
        check(self, loss)

    TrainingModule.check_finite = hooked
    main(["run", *RUNS["text"], "trainer.devices=2", f"runs_dir={folder / 'runs'}", "--run-id", "20260131t120000-0123abcd-45ef67"])


def test_a_failing_rank_ends_the_run_with_its_reason(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [forked.start(failing, rank, port, tmp_path) for rank in range(2)]
    processes[1].join(300)
    left = time.monotonic()
    assert forked.wait(processes, 30) == [1, 1] and time.monotonic() - left < 30
    (path,) = (tmp_path / "runs").glob("2*/record.json")
    record = json.loads(path.read_text())
    assert record["status"] == "failed" and record["measurements"] == []
    assert record["error"] == {"kind": "ValueError", "message": "rank 1: out of luck in <path>/else"}
    assert not list(tmp_path.rglob("weights.pt"))
    for rank in range(2):
        said = (tmp_path / f"stderr{rank}.txt").read_text()
        assert "out of luck" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["trainer.strategy=fsdp2"], "strategy=fsdp2 shards over GPUs, but accelerator=cpu"),
        (["trainer=fsdp2", "training.optimizer=lamb"], "optimizer=lamb"),
        (["trainer.devices=3"], "no multiple of devices"),
    ],
)
def test_what_cannot_be_distributed_is_refused_in_one_line(overrides, says):
    with pytest.raises(UsageError, match=says) as caught:
        compose([*RUNS["text"], *overrides])
    assert "\n" not in str(caught.value)


def test_machine_settings_are_no_part_of_the_identity():
    """The hash of a published run, as it was before these settings were there; another order of sums is another training."""
    run = ["task=lm_length", "attention=alibi", "seed=1"]
    plain = compose(run).spec
    others = [compose([*run, f"trainer.{key}"]).spec for key in ("checkpoint_steps=5", "devices=2", "strategy=ddp", "accumulate=2")]
    assert {spec.config_hash for spec in (plain, *others)} == {"13e1084fe0207c3e"}
    assert others[0].training_hash("d", "s") == plain.training_hash("d", "s") != others[3].training_hash("d", "s")
