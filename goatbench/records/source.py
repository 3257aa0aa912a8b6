"""Which code made a number: a hash of the package's own sources, its commit, and whether that commit is what ran."""

from __future__ import annotations

import hashlib
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

from .. import __version__
from .canonical import digest
from .record import CodeInfo, TaskCard

TRAINING_PARTS = (  # what can change trained weights: sub-packages, and modules of others with the loss and the tasks' `train`
    "attention", "models", "data", "training", "metrics/token_nll.py", "tasks/causal.py", "tasks/text.py", "tasks/vit_resolution.py",
)  # fmt: skip
CODE_PATHS = ("goatbench", "tasks", "configs", "pyproject.toml")  # a change elsewhere (README, results) cannot change a number
MAPPED = ("tasks", "configs", "results")  # top-level folders that a wheel puts inside the package
DISPLAY_ONLY = {
    **dict.fromkeys(("summary", "expected_time", "source", "column_label", "column_details", "learned", "per_seed"), True),
    "metrics": {"__all__": {"chance", "chance_where", "digits", "bounds", "counted"}},
}
GIT_SECONDS = 10


def source_hash(parts: tuple[str, ...] | None = None) -> str:
    """sha256 (16 hex digits) over the Python files of these sub-packages and modules; None: the whole package and the tasks.

    The same for an editable install and a wheel, and for either kind of line ending.
    """
    root = Path(__file__).resolve().parent.parent
    return hash_files(source_files(root, _folder("goatbench.tasks"), parts))


def module_hash(module: str) -> str:
    """sha256 (16 hex digits) over the Python files of the top-level package or module that `module` belongs to, whoever wrote it."""
    top = module.partition(".")[0]
    spec = find_spec(top)
    assert spec is not None, top
    if not spec.submodule_search_locations:
        return hash_files({f"{top}.py": Path(str(spec.origin))})
    files = {}
    for number, location in enumerate(spec.submodule_search_locations):
        files |= {f"{number}/{path.relative_to(location).as_posix()}": path for path in Path(location).rglob("*.py")}
    return hash_files(files)


def code_info() -> CodeInfo:
    """Version, commit and dirty flag of the tree this package was imported from; commit and dirty are None outside a checkout."""
    commit, dirty = _git_state(Path(__file__).resolve().parent.parent.parent)
    return CodeInfo(version=__version__, commit=commit, dirty=dirty, source_hash=source_hash())


def card_hash(card: TaskCard) -> str:
    """Changes with whatever can move a score or its reading, not with texts for the reader."""
    return digest(card.model_dump(mode="json", exclude=DISPLAY_ONLY))


def source_files(root: Path, tasks: Path, parts: tuple[str, ...] | None) -> dict[str, Path]:
    """Python files by their name inside the package ('attention/mask.py', 'tasks/vit.py').

    root is the folder of the package, tasks that of `goatbench.tasks`, which lies elsewhere in an editable install.
    """
    places = {"": root, "tasks": tasks}
    if parts is not None:
        places = {part: tasks / part.removeprefix("tasks/") if part.startswith("tasks/") else root / part for part in parts}
    found: dict[str, Path] = {}
    for part, place in places.items():
        if not place.exists():
            raise ValueError(f"the package has no sub-package {part!r} to hash")
        if place.is_file():
            found[part] = place
        for path in place.rglob("*.py"):
            inside = path.relative_to(place)
            if not part and inside.parts[0] in MAPPED:
                continue
            found[(Path(part) / inside).as_posix()] = path
    assert found, f"no sources under {root}"
    return found


def hash_files(files: dict[str, Path]) -> str:
    """sha256 over names and contents in the order of names, 16 hex digits."""
    total = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes().replace(b"\r\n", b"\n")
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations, package
    return Path(next(iter(spec.submodule_search_locations)))


def _git_state(tree: Path) -> tuple[str | None, bool | None]:
    """(commit, dirty) if `tree` itself is a checkout that tracks the package; a checkout around it is somebody else's."""
    if not (tree / ".git").exists() or not _git(tree, "ls-files", "--", "goatbench/__init__.py"):
        return None, None
    commit = _git(tree, "rev-parse", "--verify", "HEAD")
    changes = _git(tree, "status", "--porcelain", "--untracked-files=all", "--", *CODE_PATHS)
    if not commit or changes is None:
        return None, None
    return commit.strip(), bool(changes.strip())


def _git(tree: Path, *arguments: str) -> str | None:
    """Output of a read-only git command, None if git is missing, refuses or hangs."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # GIT_DIR would redirect us
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(tree), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, env=environment, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
