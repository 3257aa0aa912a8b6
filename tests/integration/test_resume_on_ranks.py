"""Two gloo processes that are stopped and started again end with the same bits, each with its own random numbers."""

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
from domain_runs import RUNS, spec_of, train

from goatbench.cli import main
from goatbench.errors import PREEMPTED, REQUEUES, PreemptedError
from goatbench.training.module import TrainingModule


def signal_at(step: int, number: int):
    """A check_finite that sends this process the signal in the step after so many whole ones."""
    check = TrainingModule.check_finite

    def hooked(self, loss):
        if self.global_step == step:
            os.kill(os.getpid(), number)
        check(self, loss)

    return hooked


def one_rank(rank: int, folder: Path) -> None:
    """Unbroken, then stopped after 3 steps by a signal to the second rank alone, and gone on. Vision: drop path and mixup draw."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=timedelta(seconds=300)
    )
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")
    spec, check = spec_of("vision", "trainer.devices=2"), TrainingModule.check_finite
    whole, _ = train(spec, folder / "whole.pt")
    if rank == 1:
        TrainingModule.check_finite = signal_at(2, signal.SIGUSR1)
    with pytest.raises(PreemptedError, match="after 3 steps"):
        train(spec, folder / "weights.pt")
    TrainingModule.check_finite = check
    torch.randn(7 + rank)
    weights, fit = train(spec, folder / "weights.pt")
    same = all(torch.equal(whole[name], weights[name]) for name in whole)
    (folder / f"{rank}.json").write_text(json.dumps([same, fit["resumed_at_steps"], fit["steps"], fit["samples"]]))
    torch.distributed.destroy_process_group()


def test_two_ranks_stopped_and_resumed_are_bitwise_unbroken(tmp_path):
    assert forked.wait([forked.start(one_rank, rank, tmp_path) for rank in range(2)]) == [0, 0]
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)] == [[True, [3], 8, 32]] * 2


def test_sigterm_of_a_cluster_that_requeues_ends_without_a_record(tmp_path, monkeypatch):
    monkeypatch.setenv(REQUEUES, "1")
    monkeypatch.setattr(TrainingModule, "check_finite", signal_at(2, signal.SIGTERM))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        with pytest.raises(SystemExit) as stop:
            main(["run", *RUNS["toy"], f"runs_dir={tmp_path}"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stop.value.code == PREEMPTED == 75
    assert len(list(tmp_path.rglob("resume.ckpt"))) == 1 and not list(tmp_path.rglob("record.json"))
