"""The attention_stats tasks on untrained models: the yardstick is what a model that looks everywhere alike measures, refusals, files."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.execute import execute
from goatbench.registry import tasks
from goatbench.tasks.attention_stats import FIELDS, METRICS, measure

TASKS = ["attention_stats", "attention_stats_needle", "attention_stats_genome"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))


def untrained(name: str, attention: str, *overrides: str):
    spec = compose([f"task={name}", "scale=smoke", f"attention={attention}", *overrides]).spec
    task = tasks.get(name)
    torch.manual_seed(0)
    return task, spec, task.model(spec)


@pytest.mark.parametrize("name", TASKS)
def test_a_model_that_looks_everywhere_alike_measures_the_yardstick(name, tmp_path):
    task, spec, net = untrained(name, "nope")
    with torch.no_grad():
        for layer in net.attention_layers:
            layer.q_proj.weight.zero_()
    found = task.measure(spec, net, task.data(spec), tmp_path)
    cells = {(m.metric, m.conditions["multiple"], m.conditions.get("reference")): m for m in found.measurements}
    for multiple in (1, 4):
        for metric in FIELDS:
            mine = cells[metric, multiple, None]
            assert mine.conditions["recent"] == spec.model.seq_len // 4 and mine.n >= 4
            if metric != "largest_norm":
                assert mine.value == pytest.approx(cells[metric, multiple, "uniform"].value, rel=1e-4, abs=1e-6)
    assert cells["first_token_mass", 4, None].value < cells["first_token_mass", 1, None].value
    curve = next(c for c in found.curves if c.name == "entropy_share" and c.conditions["layer"] == 0)
    assert curve.y == pytest.approx([1.0] * spec.model.num_heads, abs=1e-5)
    assert found.artifacts == ["attention_by_head.png", "attention_by_head.svg"]
    assert all((tmp_path / file).stat().st_size > 1000 for file in found.artifacts)


def test_the_ends_of_windows_are_the_same_at_both_lengths_and_a_table_has_no_more_positions():
    task, spec, net = untrained("attention_stats", "learned_absolute")
    windows = task._windows(spec, task.data(spec))
    short, long = windows[spec.model.seq_len], windows[4 * spec.model.seq_len]
    assert torch.equal(short[0][0][1:], long[0][0][-spec.model.seq_len :])
    found = measure(spec, net, windows, None)
    beyond = [m for m in found.measurements if m.conditions["multiple"] == 4]
    assert len(beyond) == len(METRICS) and all("positions beyond" in m.reason for m in beyond)


@pytest.mark.parametrize("attention", ["mta", "diff_v2"])
def test_rows_that_do_not_sum_to_one_are_refused_before_training(attention):
    with pytest.raises(ValueError, match="no rows of probabilities that one softmax makes"):
        untrained("attention_stats_needle", attention, "model=decoder_toy")


def test_the_weights_are_those_of_the_needle(tmp_path):
    """One training for both; and goat's learned prior is drawn and recorded by offset, as probabilities."""
    common = ["scale=smoke", "attention=goat", f"runs_dir={tmp_path}", "task.multiples=[1]"]
    trained = execute(compose(["task=needle", *common]))
    record = execute(compose(["task=attention_stats_needle", *common]))
    assert record.status == "ok", record.error
    assert record.training.reused and record.training.training_hash == trained.training.training_hash
    curves = [c for c in record.curves if c.name == "log_prior"]
    assert len(curves) == 2  # one layer of two heads
    for curve in curves:
        assert curve.x == list(range(32)) and sum(torch.tensor(curve.y).exp()) == pytest.approx(1, abs=1e-5)
    assert "prior_by_offset.svg" in record.artifacts
