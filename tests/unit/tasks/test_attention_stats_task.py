"""The attention_stats tasks on untrained models: the yardstick is what a model that looks everywhere alike measures, refusals, files."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.execute import execute
from goatbench.registry import tasks
from goatbench.tasks.attention_stats import FIELDS, METRICS, latest_keys, measure
from goatbench.tasks.attention_stats_vision import METRICS as OF_IMAGES

TASKS = ["attention_stats", "attention_stats_needle", "attention_stats_genome", "attention_stats_stories"]


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


def test_a_vit_that_looks_everywhere_alike_measures_the_yardstick(tmp_path):
    """At the training resolution and beyond; images have no latest keys, and their distances are those of patches."""
    task, spec, net = untrained("attention_stats_vision", "nope")
    with torch.no_grad():
        for layer in net.attention_layers:
            layer.q_proj.weight.zero_()
            layer.q_proj.bias.zero_()
    found = task.measure(spec, net, task.data(spec), tmp_path)
    cells = {(m.metric, m.conditions["nominal"], m.conditions.get("reference")): m for m in found.measurements}
    assert set(FIELDS) - {metric.name for metric in OF_IMAGES} == {"recent_mass"}
    for nominal, side in ((224, 6), (512, 14)):
        for metric in OF_IMAGES:
            mine = cells[metric.name, nominal, None]
            assert mine.n == 64 and mine.conditions["coords"] == "none"
            if metric.name != "largest_norm":
                assert mine.value == pytest.approx(cells[metric.name, nominal, "uniform"].value, rel=1e-4, abs=1e-6)
        assert cells["first_token_mass", nominal, "uniform"].value == 1 / (side**2 + 1)
        assert 0.5 * side < cells["distance", nominal, "uniform"].value < 0.55 * side and cells["distance", nominal, None].unit == "patches"
    assert found.artifacts == ["attention_by_head.png", "attention_by_head.svg"]
    assert list(task.contradictions(found.measurements)) == []


def test_what_a_vit_expects_of_the_patches_is_drawn(tmp_path):
    task, spec, net = untrained("attention_stats_vision", "alibi_2d", "task.resolutions=[224]")
    found = task.measure(spec, net, task.data(spec), tmp_path)
    assert found.artifacts[2:] == ["prior_by_patch.png", "prior_by_patch.svg"]
    drawn = (tmp_path / "prior_by_patch.svg").read_text()
    assert all(f'id="prior-{layer}-{head}"' in drawn for layer in range(spec.model.depth) for head in range(spec.model.num_heads))


def test_the_latest_keys_are_128_where_training_has_four_times_as_many():
    assert [latest_keys(length) for length in (2, 32, 508, 512, 16_384)] == [1, 8, 127, 128, 128]


def test_stories_that_are_filled_up_are_refused():
    with pytest.raises(UsageError, match="attention_stats_stories takes data=stories"):
        untrained("attention_stats_stories", "rope", "data=babilong", "data.path=somewhere")


def test_a_vits_statistics_are_of_the_weights_of_vit_resolution(tmp_path):
    common = ["scale=smoke", "attention=rope_axial", f"runs_dir={tmp_path}"]
    trained = execute(compose(["task=vit_res512", *common]))
    record = execute(compose(["task=attention_stats_vision", *common]))
    assert record.status == "ok", record.error
    assert record.training.reused and record.training.training_hash == trained.training.training_hash
    assert {m.conditions["coords"] for m in record.measurements} == {"raw"}
    with pytest.raises(ValueError, match="DifferentialV1 has no rows"):
        untrained("attention_stats_vision", "goat_diff")


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
