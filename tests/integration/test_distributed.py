"""Several gloo processes make the same run as one, in every task: samples of each step, losses, evaluation; and end together when one
fails."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from kept import Kept

from goatbench.cli import main
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.registry import tasks
from goatbench.spec import RunSpec
from goatbench.training.checkpoint import load_checkpoint
from goatbench.training.module import TrainingModule
from goatbench.verify import gaps

STEPS = 10
COMMON = ["scale=smoke", "training.epochs=1", "training.batch_size=8", f"data.num_train={8 * STEPS}", "data.num_validation=7"]
SEQUENCES = ["task.multiples=[1,2]", *COMMON]
NO_COUNTS = ["evaluation.markov_orders=[]", "evaluation.markov_interpolated=0"]  # n-grams are the same for any model
OF_DOMAIN = {  # no random draws in the model; odd numbers of examples, so that ranks have unequal shares
    "vision": ["attention=goat", "data.num_test=21", *COMMON],
    "genome": ["attention=rope", "data.num_test=11", "evaluation.num_blocks=3", *NO_COUNTS, *SEQUENCES],
    "text": ["attention=alibi", "evaluation.num_blocks=3", "evaluation.num_spans=1", "evaluation.num_passages=7", *SEQUENCES],
    "toy": ["attention=goat", "data.num_test=3", *SEQUENCES],
    "stories": ["attention=nope", "data.num_test=3", *SEQUENCES],
}
OF_TASK = {"lm_length": ["evaluation.streaming=true"], "precision": ["task.multiples=[4]"]}  # in place of those of the same key
NOT_SHARED = {"genome_memory": "each point is one step in a process of its own, in bytes and seconds: no other process takes part"}
TASKS = [name for name in tasks.names() if name not in NOT_SHARED]


def run_of(name: str) -> list[str]:
    lines = [f"task={name}", *OF_DOMAIN[tasks.get(name).card.domain], *OF_TASK.get(name, [])]
    return list({line.partition("=")[0]: line for line in lines}.values())


def on_machine(spec: RunSpec, **settings: int) -> RunSpec:
    return spec.model_copy(update={"trainer": spec.trainer.model_copy(update=settings)})


def train(spec: RunSpec, net: Any, data: Any, path: Path) -> list[list]:
    """Ids and loss of every forward pass of this process."""
    steps, step = [], TrainingModule.on_before_backward

    def noted(self, loss):
        steps.append([self.ids, float(loss.detach()) * spec.trainer.accumulate])  # Lightning divides it

    def take(self, batch, batch_idx, dataloader_idx=0):
        if self.trainer.training:
            self.ids = batch[-1].tolist()
        return batch

    TrainingModule.on_before_backward, TrainingModule.on_after_batch_transfer = noted, take
    try:
        tasks.get(spec.task.name).train(spec, net, data, path, meta={"run_id": "-"})
    finally:
        TrainingModule.on_before_backward = step
        del TrainingModule.on_after_batch_transfer
    return steps


def train_and_measure(specs: dict[str, RunSpec], folder: Path, world_size: int = 1) -> dict:
    """steps: of each training, by its hash (tasks that share it train once). tasks: hash, and what the weights of one process measure."""
    steps, trainers, found = {}, {}, {}
    for name, spec in specs.items():
        task, training = tasks.get(name), None
        torch.manual_seed(spec.seed)
        net, data = task.model(spec), task.data(spec)
        if task.trains:
            training = spec.training_hash(data.training_fingerprint, "-")
            if training not in steps:
                steps[training] = train(on_machine(spec, devices=world_size), net, data, folder / f"{training}-{world_size}.pt")
                trainers[training] = data.trainer
            data.trainer = trainers[training]  # says which share of the data is this process's
            load_checkpoint(folder / f"{training}-1.pt", net)
        outcome = task.measure(on_machine(spec, devices=world_size), net, data, None)
        values = [[m.metric, m.conditions, m.n, [v for v in (m.value, m.stderr) if v is not None]] for m in outcome.measurements]
        values += [[c.name, c.conditions, c.n, c.y] for c in outcome.curves]
        examples = [[e.metric, e.conditions, e.scores.tolist()] for e in outcome.examples]
        found[name] = {"training": training, "values": values, "examples": examples, "gaps": [*gaps(outcome.measurements, task.card)]}
    return json.loads(json.dumps({"steps": steps, "tasks": found}))


def one_rank(rank: int, world_size: int, specs: dict[str, RunSpec], folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous{world_size}", rank=rank, world_size=world_size, timeout=timedelta(seconds=300)
    )
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")  # tells Lightning that the processes are there already
    (folder / f"{world_size}-{rank}.json").write_text(json.dumps(train_and_measure(specs, folder, world_size)))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def specs() -> dict[str, RunSpec]:
    return {name: compose(run_of(name)).spec for name in TASKS}


@pytest.fixture(scope="module")
def alone(specs, folder) -> dict:
    return train_and_measure(specs, folder)


def on_ranks(world_size: int, specs: dict[str, RunSpec], folder: Path) -> list[dict]:
    processes = [forked.start(one_rank, rank, world_size, specs, folder) for rank in range(world_size)]
    assert forked.wait(processes) == [0] * world_size
    return [json.loads((folder / f"{world_size}-{rank}.json").read_text()) for rank in range(world_size)]


@pytest.fixture(scope="module")
def two(alone, specs, folder) -> list[dict]:
    return on_ranks(2, specs, folder)


def check(name: str, alone: dict, ranks: list[dict]) -> dict[str, float]:
    """The largest differences that were found, after none was too large."""
    one, losses, values = alone["tasks"][name], [0.0], []
    if tasks.get(name).trains:
        steps = alone["steps"][one["training"]]
        assert len(steps) == STEPS
        for number, (ids, loss) in enumerate(steps):
            parts = [rank["steps"][one["training"]][number] for rank in ranks]
            assert sorted(chain(*(part for part, _ in parts))) == sorted(ids), number
            mean = sum(value for _, value in parts) / len(ranks)
            assert mean == pytest.approx(loss, rel=1e-5), number
            losses.append(abs(mean / loss - 1))
    for rank in ranks:
        for mine, theirs in zip(rank["tasks"][name]["values"], one["values"], strict=True):
            assert mine[:3] == theirs[:3]
            assert mine[3] == pytest.approx(theirs[3], rel=1e-6, abs=1e-6), theirs[:2]
            values += [abs(a - b) for a, b in zip(mine[3], theirs[3], strict=True)]
        for mine, theirs in zip(rank["tasks"][name]["examples"], one["examples"], strict=True):
            assert mine[:2] == theirs[:2]
            assert mine[2] == pytest.approx(theirs[2], rel=1e-3), theirs[:2]  # in half precision
    assert len(values) > 1 and not one["gaps"]  # else the record could not be submitted
    return {"relative_loss": max(losses), "values": len(values), "absolute_value": max(values)}


@pytest.mark.parametrize("name", TASKS)
def test_two_processes_are_one_run(alone, two, name):
    check(name, alone, two)


def test_no_task_that_trains_is_left_out():
    assert not any(tasks.get(name).trains for name in NOT_SHARED)


@pytest.mark.slow
def test_four_processes_are_one_run(alone, specs, folder):
    kept = Kept("gloo-4", "tests/integration/test_distributed.py::test_four_processes_are_one_run")
    ranks = on_ranks(4, specs, folder)
    kept.write(processes=4, steps=STEPS, largest_differences={name: check(name, alone, ranks) for name in TASKS})


def test_accumulation_keeps_the_global_batch(alone, specs, folder):
    spec = on_machine(specs["lm_length"], accumulate=2)
    task = tasks.get("lm_length")
    torch.manual_seed(spec.seed)
    halves = train(spec, task.model(spec), task.data(spec), folder / "accumulate.pt")
    assert len(halves) == 2 * STEPS
    for number, (ids, loss) in enumerate(alone["steps"][alone["tasks"]["lm_length"]["training"]]):
        (first, one), (second, two) = halves[2 * number : 2 * number + 2]
        assert sorted(first + second) == sorted(ids) and (one + two) / 2 == pytest.approx(loss, rel=1e-5)


RUN_ID = "20260131t120000-0123abcd-45ef67"


def command_line(rank: int, folder: Path, *overrides: str, **environment: object) -> None:
    """A run as it is started on every rank; what it says goes to a file."""
    os.environ.update(MASTER_ADDR="127.0.0.1", **{name: str(value) for name, value in environment.items()})
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    sys.stderr = open(folder / f"stderr{rank}.txt", "w")  # noqa: SIM115
    main(["run", *run_of("lm_length"), *overrides, f"runs_dir={folder / 'runs'}", "--run-id", RUN_ID])


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def in_third_step(act: Callable[[], object]) -> None:
    check = TrainingModule.check_finite

    def hooked(self, loss):
        if self.global_step == 2:
            act()
        check(self, loss)

    TrainingModule.check_finite = hooked


def break_down(*_: object) -> None:
    raise ValueError("out of luck in /some/where/else")


def run_out_of_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")


def wait_for_ever() -> None:
    time.sleep(10 * LIMIT)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def break_in_measure() -> None:
    type(tasks.get("lm_length")).measure = break_down


LIMIT = 30  # seconds, from the failure of a rank to the end of the run
LUCK = "rank 1: out of luck in <path>/else"
FAILURES = {  # what the first rank and the second are prepared for; status, and how the reason begins
    "raises": (None, partial(in_third_step, break_down), "failed", LUCK),
    "raises while the first hangs": (partial(in_third_step, wait_for_ever), partial(in_third_step, break_down), "failed", LUCK),
    "out of memory": (None, partial(in_third_step, run_out_of_memory), "oom", "rank 1: CUDA out of memory"),
    "killed": (None, partial(in_third_step, be_killed), "failed", "another process of this run ended without a word"),
    "in measure": (None, break_in_measure, "failed", LUCK),
}


def failing(rank: int, port: int, folder: Path, name: str) -> None:
    """As Lightning starts it; the second fails. A hang is one in a collective that never notices: NCCL's, or none at all."""
    if (prepare := FAILURES[name][rank]) is not None:
        prepare()
    command_line(rank, folder, "trainer.devices=2", LOCAL_RANK=rank, NODE_RANK=0, WORLD_SIZE=2, MASTER_PORT=port)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_rank_ends_the_run_with_its_reason(name, tmp_path):
    _, _, status, reason = FAILURES[name]
    is_killed, port = name == "killed", free_port()
    processes = [forked.start(failing, rank, port, tmp_path, name) for rank in range(2)]
    processes[1].join(300)
    left = time.monotonic()
    assert forked.wait(processes, LIMIT) == [1, -signal.SIGKILL if is_killed else 1] and time.monotonic() - left < LIMIT
    (path,) = (tmp_path / "runs").glob("2*/record.json")
    record = json.loads(path.read_text())
    assert record["status"] == status and record["measurements"] == []
    assert record["error"]["message"].startswith(reason)
    assert len(list(tmp_path.rglob("weights.pt"))) == (name == "in measure")
    for rank in range(1 if is_killed else 2):
        said = (tmp_path / f"stderr{rank}.txt").read_text()
        assert reason.split(": ")[-1].split(" in ")[0] in said and "Traceback" not in said


def parent_and_child(port: int, folder: Path) -> None:
    """The second rank is a child of the first, as where Lightning starts it, and waits in its step; the first is then killed."""
    rank = int(os.fork() == 0)
    if rank:
        held = open(folder / "held", "w")  # noqa: SIM115
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(str(os.getpid()))
        held.flush()

    def meet() -> None:
        if rank:
            (folder / "waits").touch()
            wait_for_ever()
        while not (folder / "waits").exists():
            time.sleep(0.01)
        be_killed()

    in_third_step(meet)
    command_line(rank, folder, "trainer.devices=2", LOCAL_RANK=rank, NODE_RANK=0, WORLD_SIZE=2, MASTER_PORT=port)


def test_no_rank_outlives_the_first(tmp_path):
    """Whoever holds the lock lives."""
    assert forked.wait([forked.start(parent_and_child, free_port(), tmp_path)]) == [-signal.SIGKILL]
    deadline, is_held = time.monotonic() + LIMIT, True
    with open(tmp_path / "held") as held:
        while is_held and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = False
            time.sleep(0.1)
        if is_held:
            os.kill(int(held.read()), signal.SIGKILL)
    assert not is_held


def on_machine_of_its_own(rank: int, port: int, folder: Path) -> None:
    command_line(rank, folder, "trainer.num_nodes=2", NODE_RANK=rank, MASTER_PORT=port)


def test_two_machines_make_one_run_and_one_record(tmp_path):
    """One process each, started by hand with its machine's number, as Lightning has it where there is no Slurm."""
    port = free_port()
    assert forked.wait([forked.start(on_machine_of_its_own, rank, port, tmp_path) for rank in range(2)]) == [0, 0]
    (path,) = (tmp_path / "runs").glob("2*/record.json")
    record = json.loads(path.read_text())
    assert record["status"] == "ok" and record["budget"]["steps"] == STEPS and record["budget"]["samples"] == 8 * STEPS
    assert record["measurements"] and f"{STEPS}/{STEPS} steps" in (tmp_path / "stderr0.txt").read_text()
    assert (tmp_path / "stderr1.txt").read_text() == ""


def test_what_every_rank_finds_wrong_is_said_once(tmp_path):
    """Seen: the first rank removes the run's folder while the second one writes its own word of the same into it."""
    command = [sys.executable, "-P", "-m", "goatbench", "run", "task=needle", "scale=smoke", "trainer.devices=2", "data.num_validation=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("goatbench:")]
    assert (done.returncode, lines) == (
        2, ["goatbench: 1 validation examples for 2 processes: give data.num_validation of as many, or fewer devices"],
    )  # fmt: skip
    assert not list(tmp_path.glob("runs/2*"))


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
        compose([*run_of("lm_length"), *overrides])
    assert "\n" not in str(caught.value)


def test_machine_settings_are_no_part_of_the_identity():
    """The hash of a published run, as it was before these settings were there; another order of sums is another training."""
    run = ["task=lm_length", "attention=alibi", "seed=1"]
    plain = compose(run).spec
    others = [compose([*run, f"trainer.{key}"]).spec for key in ("checkpoint_steps=5", "devices=2", "strategy=ddp", "accumulate=2")]
    assert {spec.config_hash for spec in (plain, *others)} == {"13e1084fe0207c3e"}
    assert others[0].training_hash("d", "s") == plain.training_hash("d", "s") != others[3].training_hash("d", "s")
