"""Who may import whom (the sources' own import statements, those inside functions too): arrows point one way only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import goatbench
import goatbench.tasks as own_tasks

PACKAGE = Path(goatbench.__file__).parent
TASKS = Path(next(iter(own_tasks.__path__)))
PLAIN = {"errors", "progress", "__version__"}  # imported by everyone, importing nothing of ours

# layer -> what else of goatbench its modules import, and packages that never appear in it
LAYERS = {
    "errors": (set(), {"torch", "numpy"}),
    "attention": (PLAIN, {"lightning", "hydra", "omegaconf", "pydantic", "timm"}),
    "models": (PLAIN | {"attention", "spec", "registry"}, {"lightning", "hydra", "omegaconf"}),
    "metrics": (PLAIN | {"attention", "models"}, {"lightning", "hydra", "omegaconf"}),
    "records": (PLAIN | {"registry"}, {"torch", "torchvision", "torchmetrics", "timm", "lightning", "hydra", "omegaconf"}),
    "spec": (PLAIN | {"records"}, {"torch", "torchvision", "timm", "lightning", "hydra", "omegaconf"}),
    "data": (PLAIN | {"records", "spec", "registry"}, {"hydra", "omegaconf"}),
    "plots": (PLAIN | {"records", "metrics", "data"}, {"lightning", "hydra", "omegaconf"}),
    "training": (PLAIN | {"attention", "metrics", "models", "records", "spec", "registry"}, {"hydra", "omegaconf"}),
    "tasks": (
        PLAIN | {"attention", "data", "metrics", "models", "plots", "records", "spec", "training", "registry"},
        {"lightning", "hydra", "omegaconf"},
    ),
}


def modules(layer):
    if layer == "errors":
        return [PACKAGE / "errors.py"]
    return sorted((TASKS if layer == "tasks" else PACKAGE / layer).rglob("*.py"))


def imported(path, layer):
    """(parts of goatbench, other top-level packages) that a source file imports anywhere."""
    ours, others = set(), set()
    root = TASKS if layer == "tasks" else PACKAGE
    here = ["tasks" if layer == "tasks" else None, *path.relative_to(root).with_suffix("").parts]
    package = [part for part in here if part][:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            absolute = (node.module or "").split(".") if node.module else []
            base = ["goatbench", *package[: len(package) - node.level + 1]] if node.level else []
            names = [[*base, *absolute]] if absolute else [[*base, alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "goatbench":
                ours |= {name[1]} if len(name) > 1 else set()
            else:
                others.add(name[0])
    return ours - {layer}, others


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_what_lies_below_it_only(layer):
    allowed, never = LAYERS[layer]
    assert modules(layer)
    for path in modules(layer):
        ours, others = imported(path, layer)
        assert ours <= allowed, f"{path.name} imports {sorted(ours - allowed)}"
        assert not others & never, f"{path.name} imports {sorted(others & never)}"


def test_the_layers_have_an_order():
    """No circle, so each can be understood from those below it. The registry knows names, and imports what they stand for late."""
    left = {layer: allowed & LAYERS.keys() for layer, (allowed, _) in LAYERS.items()}
    while left:
        free = {layer for layer, needs in left.items() if not needs & left.keys()}
        assert free, f"a circle among {sorted(left)}"
        left = {layer: needs for layer, needs in left.items() if layer not in free}


def test_relative_imports_are_read_as_the_interpreter_reads_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "data" / "text" / "module.py"
    path.parent.mkdir(parents=True)
    inside = "def f():\n    from goatbench.cli import main"
    path.write_text(f"import os.path\nfrom ...models import build\nfrom ..order import x\nfrom . import y\n{inside}")
    assert imported(path, "data") == ({"models", "cli"}, {"os"})
