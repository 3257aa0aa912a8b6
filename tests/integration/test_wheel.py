"""The wheel holds everything: built from a copy of the tree, unpacked elsewhere, run from /, it knows the same names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from goatbench.listing import SECTIONS, list_lines

TREE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Built in a copy, so that no build folder appears in the tree; installed without dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "tree"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "runs", ".*")
    for part in ("goatbench", "tasks", "configs", "results"):
        shutil.copytree(TREE / part, copy / part, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        if (TREE / name).exists():
            shutil.copy(TREE / name, copy / name)
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = [sys.executable, "-m", "pip", "-q"]
    build = [*pip, "wheel", str(copy), "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run(build, check=True, env=environment, timeout=300)
    (wheel,) = folder.glob("goatbench-*.whl")
    target = folder / "target"
    subprocess.run([*pip, "install", str(wheel), "--no-deps", "--target", str(target)], check=True, env=environment, timeout=300)
    return target


NO_NETWORK = (
    "import socket\n"
    "def refused(*arguments): raise AssertionError('the network was asked')\n"
    "socket.socket.connect = socket.getaddrinfo = refused\n"
)


def run_from_root(installed, *arguments, before="", **environment):
    """Python's isolated search path plus the wheel's folder in front, so that the tree cannot help. before: code that runs first."""
    code = before + (
        f"import sys; sys.path.insert(0, {str(installed)!r}); "
        "sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not in repr(finder).lower()]; "
        f"import goatbench; assert goatbench.__file__.startswith({str(installed)!r}), goatbench.__file__; "
        f"from goatbench.cli import main; main({list(arguments)!r})"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=120,
        env={**os.environ, "GOATBENCH_NO_PLUGINS": "1", **environment},
    )  # fmt: skip


def test_the_same_names_as_the_tree(installed):
    done = run_from_root(installed, "list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list_lines(SECTIONS)


def test_it_composes(installed):
    done = run_from_root(installed, "run", "--cfg", "job", "attention=rope_mixed", "scale=paper")
    assert done.returncode == 0 and "name: rope_mixed" in done.stdout, done.stderr


def test_a_text_task_runs_from_the_wheel_without_a_network(installed, tmp_path):
    """Reads the embedded documents, trains and scores."""
    overrides = ["task=lm_length", "scale=smoke", "task.multiples=[1]", "data.num_train=8", f"runs_dir={tmp_path / 'runs'}"]
    done = run_from_root(installed, "run", *overrides, before=NO_NETWORK, GOATBENCH_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert "bits_per_byte" in done.stdout and "State of the Union" in (next((tmp_path / "runs").rglob("record.json"))).read_text()


def test_no_package_called_tasks_or_configs(installed):
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} <= {"goatbench", "bin", "__pycache__"}


def test_every_package_and_data_file_is_there(installed):
    """What setuptools packs follows from lists in pyproject.toml; this compares them with the tree."""
    for part, inside in (("goatbench", "."), ("tasks", "tasks"), ("configs", "configs")):
        for path in sorted((TREE / part).rglob("*")):
            if path.suffix in (".py", ".yaml", ".xz", ".json", ".packed", ".tsv", ".j2", ".css", ".js") and "__pycache__" not in path.parts:
                assert (installed / "goatbench" / inside / path.relative_to(TREE / part)).is_file(), f"{path} is not in the wheel"
