"""A Slurm of one node: munged, slurmctld and slurmd of whoever runs the tests, on free ports, all of its files in a temporary folder."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONFIGURATION = """
ClusterName=goatbench
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
KillWait=5
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2
PartitionName=debug Nodes=localhost Default=YES
"""


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing after {seconds} s"
        time.sleep(0.1)


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory) -> Iterator[Path]:
    """The folder of the running Slurm, whose configuration is in the environment. What it started ends with it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if lacking := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"{', '.join(lacking)} not installed (Debian: apt-get install slurm-wlm munge)")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, ports=free_ports(2), user=getpass.getuser()))
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
    munge += [f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed", f"--log-file={folder}/munged.log"]
    with pytest.MonkeyPatch.context() as environment, ExitStack() as stack:
        environment.setenv("PATH", path)
        environment.setenv("SLURM_CONF", f"{folder}/slurm.conf")
        stack.enter_context(daemon(munge, folder))
        until((folder / "munge.socket").exists)
        stack.enter_context(daemon(["slurmctld", "-D"], folder))
        stack.enter_context(daemon(["slurmd", "-D", "-N", "localhost"], folder))
        until(lambda: said("sinfo", "--noheader", "--format=%T") == "idle")
        yield folder
        said("scancel", f"--user={getpass.getuser()}")
        until(lambda: not said("squeue", "--noheader"))


@contextmanager
def daemon(command: list[str], folder: Path) -> Iterator[None]:
    """A program that runs for the length of a block; what it says is in a file of its name."""
    with open(folder / f"{command[0]}.txt", "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
