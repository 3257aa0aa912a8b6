"""Runs as jobs of a Slurm cluster, a sweep as an array, through submitit (the extra `slurm`).

submitit writes the sbatch script, submits it, and requeues a job on SIGUSR1. Ours is what a job runs, one process a rank, which
Lightning finds through Slurm's variables, and which resources it needs. The run id is part of the command: requeues keep it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import PREEMPTED, REQUEUES, UsageError
from .launch import POLL_SECONDS, Job
from .spec import RunSpec

SIGNAL = "SUBMITIT_PREEMPT_SIGNAL"  # submitit reads it where it is imported: here, and in the job


class Rank:
    """What submitit keeps and calls on every rank of a job."""

    def __init__(self, command: list[str], grace_seconds: int) -> None:
        self.command, self.grace_seconds = command, grace_seconds

    def __call__(self) -> None:
        """Runs the command; it has the signals of a job that will come back."""
        self._child = subprocess.Popen(self.command, env={**os.environ, REQUEUES: "1"})
        while (code := self._child.poll()) is None:  # wait() holds a lock, and checkpoint(), called within it, would wait for that in vain
            time.sleep(POLL_SECONDS)
        if code in (PREEMPTED, -signal.SIGUSR1, -signal.SIGTERM):  # negative: before the command had its handlers
            time.sleep(self.grace_seconds)  # Slurm ends the job; a rank that left before would take the requeueing one with it
        if code:
            raise SystemExit(f"exit code {code}: {shlex.join(self.command)}")  # no exception, of which submitit logs a traceback

    def checkpoint(self) -> Any:
        """submitit calls this on SIGUSR1, on the first rank, and requeues what it returns. The other ranks learn of it in training."""
        from submitit.helpers import DelayedSubmission

        self._child.send_signal(signal.SIGUSR1)
        try:
            self._child.wait(timeout=0.75 * self.grace_seconds)
        except subprocess.TimeoutExpired:  # then the last checkpoint stands
            self._child.kill()
        return DelayedSubmission(Rank(self.command, self.grace_seconds))


def submit(jobs: list[Job], command_of: Callable[[Job], list[str]], dry_run: bool) -> int:
    """Submit the jobs, those of equal resources as one array; or print the scripts. Exit code."""
    if not dry_run and shutil.which("sbatch") is None:
        raise UsageError("launch=slurm: sbatch is not found; run this on a machine of the cluster, or see the script with --dry-run")
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(repr(sorted(parameters(job.spec).items(), key=str)), []).append(job)
    for group in groups.values():
        spec = group[0].spec
        executor = make_executor(spec)
        commands = [command_of(job) for job in group]
        if dry_run:
            print(script(executor, commands))
            continue
        submitted = _submit(executor, [Rank(command, spec.launch.grace_seconds) for command in commands])
        for job, one in zip(group, submitted, strict=True):
            print(f"{one.job_id}  {job.run_id}  {job.label}", flush=True)
        print(f"logs: {executor.folder}/JOB_RANK_log.out and .err, as {submitted[0].job_id}_0_log.err", flush=True)
    return 0


def _submit(executor: Any, ranks: list[Rank]) -> list[Any]:
    """submitit's jobs. UsageError with sbatch's own words if it refuses."""
    from submitit.core.utils import FailedJobError

    try:
        with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # submitit prints what sbatch says, then raises it
            return [executor.submit(rank) for rank in ranks]
    except FailedJobError as error:
        said = "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in str(error).splitlines())
        raise UsageError(f"launch=slurm: sbatch refuses: {said}; change launch.* or trainer.*, --dry-run prints the script") from None


def parameters(spec: RunSpec) -> dict[str, Any]:
    """Resources of a job in submitit's words (sbatch's, but for signal_delay_s, setup and array_parallelism)."""
    trainer, launch = spec.trainer, spec.launch
    found = {
        "job_name": "goatbench",
        "time": launch.time_minutes,
        "nodes": trainer.num_nodes,
        "ntasks_per_node": trainer.devices,
        "cpus_per_task": trainer.num_threads + trainer.num_workers,
        "gpus_per_node": trainer.devices if trainer.accelerator != "cpu" else None,
        "mem": None if launch.memory_gb is None else f"{round(1024 * launch.memory_gb)}MB",
        "partition": launch.partition,
        "account": launch.account,
        "qos": launch.qos,
        "constraint": launch.constraint,
        "signal_delay_s": launch.grace_seconds,
        "array_parallelism": launch.parallel,
        "setup": [f"export {SIGNAL}=USR1", f"export OMP_NUM_THREADS={trainer.num_threads}", *launch.setup],
        "srun_args": ["--kill-on-bad-exit=1"],  # a rank that fails ends the others
        "additional_parameters": {"requeue": True},
    }
    return {name: value for name, value in found.items() if value is not None}


def make_executor(spec: RunSpec) -> Any:
    """A submitit.SlurmExecutor that can be made where there is no Slurm. Logs and job files go to runs_dir/slurm."""
    os.environ[SIGNAL] = "USR1"
    try:
        import submitit
    except ImportError:
        raise UsageError("launch=slurm needs submitit: pip install 'goatbench[slurm]'") from None

    class Executor(submitit.SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 1

    executor = Executor(Path(spec.runs_dir).absolute() / "slurm", max_num_timeout=spec.launch.max_requeues)
    executor.update_parameters(**parameters(spec))
    return executor


def script(executor: Any, commands: list[list[str]]) -> str:
    """The sbatch script that submitit would submit, and what each task of the array runs."""
    if len(commands) > 1:
        executor.parameters["map_count"] = len(commands)  # what submitit itself adds for an array
    text = executor._make_submission_file_text(executor._submitit_command_str, uid="")
    lines = [f"# array task {index}: {shlex.join(command)}" for index, command in enumerate(commands)]
    return "\n".join([text.rstrip("\n"), "", "# what submitit's command runs on every rank", *lines])
