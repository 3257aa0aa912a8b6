"""What all causal tasks share is written once."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import goatbench.tasks
from goatbench.tasks.causal import absent, contexts_of
from goatbench.tasks.genome_nll import METRICS

FOLDER = Path(goatbench.tasks.__file__).parent


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_no_task_has_its_own_copy_of_a_shared_function():
    shared = functions(FOLDER / "causal.py")
    assert {"absent", "contexts_of"} <= shared
    copies = {path.name: found for path in FOLDER.glob("*.py") if path.name != "causal.py" and (found := functions(path) & shared)}
    assert not copies


def test_the_training_length_is_measured_first_asked_for_or_not():
    spec = SimpleNamespace(model=SimpleNamespace(seq_len=32), task=SimpleNamespace(multiples=[16, 2, 2]))
    assert contexts_of(spec) == [32, 64, 512]


def test_an_absent_cell_says_why():
    m = absent(METRICS[2], {"multiple": 2}, "not applicable: because")
    assert (m.metric, m.unit, m.value, m.n, m.reason) == ("perplexity", "bases", None, 0, "not applicable: because")
