"""No file is read by running what it says: torch.load is called with weights_only=True only, and nothing is unpickled."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import goatbench
import goatbench.tasks as own_tasks

FOLDERS = (Path(goatbench.__file__).parent, Path(next(iter(own_tasks.__path__))))
UNSAFE_MODULES = {"pickle", "dill", "joblib", "marshal", "shelve"}
ALLOWED = {"weights_only": True, "allow_pickle": False}
WORDS = {*UNSAFE_MODULES, *ALLOWED, "torch.load", "from torch import"}  # a source without any of them need not be parsed


def unsafe(source: str) -> list[int]:
    """Lines that could run what a file says."""
    if not any(word in source for word in WORDS):
        return []
    return [node.lineno for node in ast.walk(ast.parse(source)) if is_unsafe(node)]


def is_unsafe(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in UNSAFE_MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in UNSAFE_MODULES or (node.module == "torch" and any(a.name == "load" for a in node.names))
    if isinstance(node, ast.keyword) and node.arg in ALLOWED:
        return not (isinstance(node.value, ast.Constant) and node.value.value is ALLOWED[node.arg])
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load" and "weights_only" not in [k.arg for k in node.keywords]


def test_no_source_file_loads_what_could_run():
    found, calls = [], 0
    for path in (path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))):
        source = path.read_text(encoding="utf-8")
        calls += source.count("torch.load(")
        found += [f"{path.name}:{line}" for line in unsafe(source)]
    assert found == [] and calls >= 2


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path)", "torch.load(path, weights_only=False)", "torch.load(path, weights_only=asked)", "from torch import load",
        "trainer.fit(module, weights_only=False)", "import pickle", "from pickle import loads", "np.load(path, allow_pickle=True)",
    ],
)  # fmt: skip
def test_what_could_run_is_seen(line):
    assert unsafe(line) and not unsafe("torch.load(path, weights_only=True); np.load(path, allow_pickle=False)")
