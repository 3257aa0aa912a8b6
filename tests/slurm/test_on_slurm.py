"""launch=slurm on a real Slurm of one node: an array, a failing job, a requeue, two ranks, a refusal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_slurm import said, until

pytestmark = [pytest.mark.slurm, pytest.mark.slow]  # slow: not part of the default run

RUN = ["scale=smoke", "task=lm_length", "attention=rope", "task.multiples=[1]", "training.epochs=20", "trainer.checkpoint_steps=1"]
RATE = "training.learning_rate=0.002"


def goatbench(*arguments: str, code: int = 0) -> str:
    """What the command prints."""
    done = subprocess.run([sys.executable, "-m", "goatbench", "run", *arguments], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def submitted(*arguments: str) -> dict[str, str]:
    """The run id of every job, by job id."""
    return dict(re.findall(r"^(\d+\S*)  (\S+)  ", goatbench("launch=slurm", *arguments), re.MULTILINE))


def state(job: str) -> str:
    return "".join(re.findall(r"JobState=(\w+)", said("scontrol", "show", "job", job)))


def hurry(job: str) -> None:
    """Slurm lets two minutes pass before it starts a requeued job. Asked too often it never starts it: its time is always now."""
    if "Reason=BeginTime" in said("scontrol", "show", "job", job):
        said("scontrol", "update", f"JobId={job}", "StartTime=now")
        time.sleep(3)


def record(folder: Path) -> dict:
    return json.loads((folder / "record.json").read_text())


def scores(record: dict) -> list[tuple]:
    return [
        (one["metric"], sorted(one["conditions"].items()), one["n"], one["value"])
        for one in record["measurements"]
        if one["value"] is not None
    ]


@pytest.fixture(scope="module")
def alone(slurm, tmp_path_factory) -> dict:
    """The record of the run without Slurm."""
    runs = tmp_path_factory.mktemp("alone")
    goatbench(*RUN, RATE, f"runs_dir={runs}")
    (path,) = runs.glob("2*")
    return record(path)


def test_an_array_one_of_whose_jobs_is_requeued_while_the_other_fails(slurm, alone, tmp_path):
    jobs = submitted("-m", *RUN, f"{RATE},1e30", f"runs_dir={tmp_path}")
    (good, run_id), (bad, bad_id) = jobs.items()
    assert good.endswith("_0") and bad.endswith("_1")
    until((tmp_path / "checkpoints" / alone["training"]["training_hash"] / "resume.ckpt").exists)
    said("scancel", "--signal=USR1", good)
    until(lambda: state(good) == "PENDING", 60)  # launch.grace_seconds is 120: the rank does not wait for it
    until(lambda: hurry(good) or (state(good), state(bad)) == ("COMPLETED", "FAILED"), 240)
    resumed = record(tmp_path / run_id)
    assert "went on from a checkpoint after" in resumed["notes"][0]
    assert scores(resumed) == scores(alone) and len(scores(alone)) > 1, "not the same bits"
    assert "Restarts=1" in said("scontrol", "show", "job", good)
    assert record(tmp_path / bad_id)["status"] == "failed"
    log = (tmp_path / "slurm" / f"{bad}_0_log.err").read_text()
    assert "goatbench: failed: the training loss became nan" in log and "Traceback" not in log


def test_two_ranks_are_one_run(slurm, alone, tmp_path):
    ((job, run_id),) = submitted(*RUN, RATE, "trainer.devices=2", f"runs_dir={tmp_path}").items()
    until(lambda: state(job) in ("COMPLETED", "FAILED"))
    logs = [(tmp_path / "slurm" / f"{job}_{rank}_log.err").read_text() for rank in range(2)]
    assert state(job) == "COMPLETED", logs
    assert "64 of context: 2/2 windows" in logs[0] and logs[1] == "", "each rank has half of the four windows, and one speaks"
    both, one = scores(record(tmp_path / run_id)), scores(alone)
    assert [score[:3] for score in both] == [score[:3] for score in one]
    assert [score[3] for score in both] == pytest.approx([score[3] for score in one], rel=1e-4), "160 steps of rounding"
    assert len(list(tmp_path.glob("2*"))) == 1


def test_what_sbatch_refuses_is_one_line(slurm, tmp_path):
    said_once = goatbench(*RUN, "launch=slurm", "launch.partition=nowhere", f"runs_dir={tmp_path}", code=2)
    assert "launch=slurm: sbatch refuses: invalid partition specified: nowhere; " in said_once and "Traceback" not in said_once
