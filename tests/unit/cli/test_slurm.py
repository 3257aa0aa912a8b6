"""launch=slurm: the sbatch script, which needs no Slurm; what a rank does with its signals."""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from goatbench import launch, slurm
from goatbench.compose import compose
from goatbench.errors import PREEMPTED, UsageError

SWEEP = [
    "launch=slurm", "launch.partition=gpu", "launch.time_minutes=90", "launch.memory_gb=1.5", "launch.setup=[module load cuda]",
    "task=lm_length", "scale=smoke", "attention=rope,alibi", "trainer=ddp", "trainer.devices=4", "trainer.num_nodes=2",
]  # fmt: skip


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """printed(overrides) -> lines of a dry run."""
    monkeypatch.setattr(launch, "_job_key", lambda spec: (spec.config_hash, 1, "", ""))

    def of(overrides):
        assert launch.launch([*overrides, f"runs_dir={tmp_path}/my runs"], dry_run=True) == 0
        return capsys.readouterr().out.splitlines()

    return of


def test_the_script_of_a_sweep(printed, tmp_path):
    lines = printed(SWEEP)
    wanted = {
        "#!/bin/bash", "#SBATCH --array=0-1%2", "#SBATCH --partition=gpu", "#SBATCH --time=90", "#SBATCH --nodes=2", "#SBATCH --mem=1536MB",
        "#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=4", "#SBATCH --cpus-per-task=16", "#SBATCH --signal=USR1@120",
        "#SBATCH --requeue", "export SUBMITIT_PREEMPT_SIGNAL=USR1", "export OMP_NUM_THREADS=8", "module load cuda",
    }  # fmt: skip
    assert wanted <= set(lines), wanted - set(lines)
    (srun,) = [line for line in lines if line.startswith("srun ")]
    assert "--kill-on-bad-exit=1" in srun and srun.endswith(f"-u -m submitit.core._submit '{tmp_path}/my runs/slurm'")
    tasks = [line for line in lines if line.startswith("# array task ")]
    assert ["attention=rope" in tasks[0], "attention=alibi" in tasks[1], len(tasks)] == [True, True, 2]
    assert all("--run-id 2" in line and "launch" not in line.partition(" -m goatbench ")[2] for line in tasks)
    assert not (tmp_path / "my runs").exists(), "a dry run leaves nothing"


def test_one_run_is_no_array_and_other_resources_are_another_script(printed):
    one = printed(["launch=slurm", "task=lm_length", "scale=smoke"])
    assert not [line for line in one if "--array" in line or "gpus" in line] and "#SBATCH --cpus-per-task=1" in one
    two = printed(["launch=slurm", "task=lm_length", "scale=smoke", "trainer=cpu,gpu"])
    assert two.count("#!/bin/bash") == 2 and two.count("#SBATCH --gpus-per-node=1") == 1 and "#SBATCH --cpus-per-task=16" in two


def test_without_slurm_nothing_is_submitted(printed, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="sbatch is not found"):
        launch.launch(["launch=slurm", "task=lm_length", "scale=smoke"])
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match=r"pip install 'goatbench\[slurm\]'"):
        printed(["launch=slurm", "task=lm_length", "scale=smoke"])


def test_the_default_is_local(printed):
    (line,) = printed(["task=lm_length", "scale=smoke"])
    assert line.startswith(sys.executable) and " -m goatbench run --run-id 2" in line
    assert compose(["task=lm_length", "launch=slurm"]).spec.identity == compose(["task=lm_length"]).spec.identity


def test_a_checkpoint_waits_for_the_run_and_comes_back_with_the_same_command(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(slurm, "time", SimpleNamespace(sleep=slept.append))
    marker = tmp_path / "ready"
    script = (
        f"import os, signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit({PREEMPTED})); "
        f"assert os.environ['GOATBENCH_REQUEUES']; open({str(marker)!r}, 'w'); time.sleep(60)"
    )
    rank = slurm.Rank([sys.executable, "-c", script], grace_seconds=40)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(rank)
        deadline = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        again = rank.checkpoint()
        assert rank._child.returncode == PREEMPTED
        assert again.function.command == rank.command and not hasattr(again.function, "_child")
        assert "exit code 75" in str(running.exception()) and slept == [40], "it stays until Slurm has requeued the job"


def test_a_run_that_fails_fails_its_job():
    with pytest.raises(RuntimeError, match="exit code 3"):
        slurm.Rank([sys.executable, "-c", "import sys; sys.exit(3)"], grace_seconds=30)()
    with pytest.raises(RuntimeError, match=f"exit code -{signal.SIGKILL.value}"):
        slurm.Rank([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], grace_seconds=30)()
