"""Toys at scale embedded, trained as anybody would: what must work succeeds, what cannot stays at its ceiling (`make test-long`)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from goatbench.compose import compose
from goatbench.data.text.toy_problems import OTHERS
from goatbench.execute import execute
from goatbench.registry import tasks

pytestmark = pytest.mark.slow  # 20 to 60 CPU-seconds each


def exact_match(tmp_path, *overrides: str) -> tuple[float, int]:
    """At the training length, and of how many sequences."""
    record = execute(compose([*overrides, "scale=embedded", "task.multiples=[1]", f"runs_dir={tmp_path}"]))
    (found,) = [m for m in record.measurements if m.metric == "exact_match" and m.conditions.get("rope_scaling") is None]
    return found.value, found.n


def induction_ceiling() -> float:
    """Of naming the symbol that occurs most often before the question, on the test's own sequences: every place of the answer is as
    likely, so it is right in (how often that symbol occurs) / (places)."""
    spec = compose(["task=induction", "scale=embedded"]).spec
    tokens = tasks.get("induction").data(spec).windows("test", spec.model.seq_len).tokens.numpy()
    most = [np.bincount(row[row != row[-1]], minlength=OTHERS + 1).max() for row in tokens[:, :-1]]
    return float(np.mean(most)) / (spec.model.seq_len - 2)


@pytest.mark.parametrize("task", ["induction", "selective_copy"])
def test_two_layers_of_rope_learn_it(task, tmp_path):
    found, _ = exact_match(tmp_path, f"task={task}", "attention=rope")
    assert found >= 0.95


@pytest.mark.parametrize("task", ["induction", "selective_copy"])
def test_one_layer_without_positions_stays_at_the_order_blind_ceiling(task, tmp_path):
    """Its past is a set to it: of the words of four symbols of 24 with equal counts, one can be guessed. Five standard errors above."""
    found, n = exact_match(tmp_path, f"task={task}", "attention=nope", "model.depth=1")
    ceiling = induction_ceiling() if task == "induction" else math.comb(24 + 4 - 1, 4) / 24**4
    assert found < ceiling + 5 * (ceiling * (1 - ceiling) / n) ** 0.5 < 0.25
