"""launch=slurm: the sbatch script, which needs no Slurm; what a rank does with its signals."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from goatbench import launch, slurm
from goatbench.cli import main
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


RUN_ID = "20260131t120000-0123abcd-45ef67"


@pytest.mark.parametrize(("kind", "more"), [("local", ["--dry-run"]), ("slurm", ["--dry-run"]), ("slurm", [])])
def test_a_run_that_goes_on_keeps_its_id(kind, more, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launch, "_job_key", lambda spec: (spec.config_hash, 1, "", ""))
    monkeypatch.setattr(slurm, "_submit", lambda executor, ranks: print(ranks[0].command) or [SimpleNamespace(job_id=7)])
    monkeypatch.setattr("shutil.which", lambda name: name)
    words = [f"launch={kind}", "task=lm_length", "scale=smoke", f"runs_dir={tmp_path}"]
    with pytest.raises(SystemExit) as ended:
        main(["run", *more, "--run-id", RUN_ID, *words])
    assert ended.value.code == 0 and RUN_ID in capsys.readouterr().out
    for run_id, extra, said in ((RUN_ID, ["seed=0,1"], "is one run, these are 2 jobs"), ("mine", [], "run id 'mine' does not look like")):
        with pytest.raises(UsageError, match=said):
            launch.launch([*words, *extra], dry_run=True, run_id=run_id)


def test_a_checkpoint_waits_for_the_run_and_comes_back_with_the_same_command(tmp_path):
    marker = tmp_path / "ready"
    script = (
        f"import os, signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit({PREEMPTED})); "
        f"assert os.environ['GOATBENCH_REQUEUES']; open({str(marker)!r}, 'w'); time.sleep(60)"
    )
    rank, seconds = slurm.Rank([sys.executable, "-c", script], grace_seconds=40), []

    def handler(number, frame):  # as submitit's: in the thread that runs the rank
        begin = time.monotonic()
        again = rank.checkpoint()
        seconds.append(time.monotonic() - begin)
        assert rank._child.returncode == PREEMPTED
        assert again.function.command == rank.command and not hasattr(again.function, "_child")
        raise SystemExit(-1)

    def send():
        deadline = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with ThreadPoolExecutor(1) as pool, pytest.raises(SystemExit, match="-1"):
            pool.submit(send)
            rank()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seconds[0] < 25, "0.75 of grace_seconds: it has not seen the end of the run"


@pytest.mark.parametrize("code", [f"sys.exit({PREEMPTED})", "os.kill(os.getpid(), signal.SIGUSR1)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_rank_that_a_signal_ended_stays_until_slurm_has_requeued_the_job(code, monkeypatch):
    slept = []
    monkeypatch.setattr(slurm, "time", SimpleNamespace(sleep=lambda seconds: slept.append(seconds) or time.sleep(min(seconds, 0.1))))
    with pytest.raises(SystemExit, match="exit code"):
        slurm.Rank([sys.executable, "-c", f"import os, signal, sys; {code}"], grace_seconds=40)()
    assert slept[-1] == 40


def test_a_run_that_fails_fails_its_job():
    with pytest.raises(SystemExit, match="exit code 3: "):
        slurm.Rank([sys.executable, "-c", "import sys; sys.exit(3)"], grace_seconds=30)()
    with pytest.raises(SystemExit, match=f"exit code -{signal.SIGKILL.value}: "):
        slurm.Rank([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], grace_seconds=30)()


def test_what_sbatch_refuses_is_a_usage_error_and_said_once(tmp_path, monkeypatch, capsys):
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: x' >&2; echo 'sbatch: error: Failed' >&2; exit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(launch, "_job_key", lambda spec: (spec.config_hash, 1, "", ""))
    with pytest.raises(UsageError, match=r"sbatch refuses: invalid partition specified: x; Failed; change launch\.\*"):
        launch.launch(["launch=slurm", "task=lm_length", "scale=smoke", f"runs_dir={tmp_path}/runs"])
    assert "invalid partition" not in capsys.readouterr().err
