"""What the precision task makes of a layer: its cells, what is not applicable and why, its board's rows."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.registry import tasks
from goatbench.tasks.precision import METRICS, by_length


def outcome(attention: str, *overrides: str, folder=None):
    composed = compose(["task=precision", "scale=smoke", "task.multiples=[4,8]", f"attention={attention}", *overrides])
    task = tasks.get("precision")
    torch.manual_seed(0)
    return task.measure(composed.spec, task.model(composed.spec), task.data(composed.spec), folder)


def cells(found, metric: str):
    chosen = [m for m in found.measurements if m.metric == metric]
    return {(m.conditions["tokens"], m.conditions["dtype"], m.conditions.get("positions")): m for m in chosen}


def test_the_cells_of_a_mechanism_with_coordinates_and_parameters():
    found = outcome("goat")
    places = {(tokens, dtype, how) for tokens in (128, 256) for dtype in ("bf16", "fp16") for how in (None, "rounded")}
    assert set(cells(found, "output_error")) == set(cells(found, "prior_error")) == places
    gradient = cells(found, "gradient_error")
    assert set(gradient) == {(128, "bf16", None), (128, "fp16", None)}
    for where, one in cells(found, "output_error").items():
        assert 0 < one.value < 0.02 and one.n == 64, where
    assert cells(found, "output_error")[256, "fp16", None].value < cells(found, "output_error")[256, "bf16", None].value
    by_name = {c.conditions["parameter"]: c.y[0] for c in found.curves if c.name == "gradient_error" and c.conditions["dtype"] == "bf16"}
    assert {"scheme.even", "scheme.odd", "scheme.slope_raw", "scheme.gain", "scheme.bump"} <= set(by_name)
    assert gradient[128, "bf16", None].value == max(by_name.values())


def test_what_does_not_apply_says_why():
    nope = outcome("nope")
    assert {m.reason for m in cells(nope, "gradient_error").values()} == {"not applicable: the mechanism has no trained parameters"}
    frozen = outcome("fope")  # its coefficients are drawn once
    assert {m.reason for m in cells(frozen, "gradient_error").values()} == {"not applicable: the mechanism has no trained parameters"}
    assert all(m.value > 0 for m in cells(frozen, "output_error").values())
    assert {how for _, _, how in cells(nope, "output_error")} == {None}  # no coordinate to round
    table = outcome("learned_absolute")
    assert all(m.value is None and "positions beyond 32" in m.reason for m in table.measurements)
    convolved = outcome("mta_conv")
    assert {m.reason for m in cells(convolved, "prior_error").values()} == {"not applicable: rows of attention that no softmax makes"}
    assert all(m.value > 0 for m in cells(convolved, "output_error").values())
    with pytest.raises(UsageError, match="last 64 queries"):
        outcome("rope", "task.multiples=[2]")


@pytest.mark.parametrize(
    ("attention", "parameter"),
    [("mta_conv", "inner.kernel_before"), ("diff_v2", "inner.lambda_proj.weight"), ("gated_headwise", "gate.weight")],
)
def test_parameters_beside_the_position_scheme_have_gradients_too(attention, parameter):
    found = outcome(attention, "task.multiples=[4]")
    bf16, fp16 = (cells(found, "gradient_error")[128, dtype, None].value for dtype in ("bf16", "fp16"))
    assert parameter in {c.conditions["parameter"] for c in found.curves if c.name == "gradient_error"}
    assert 1e-5 < fp16 < bf16 < 0.02


FAR = "task.multiples=[16,32]"  # 512 and 1,024 tokens: fp16 holds every position, bf16 one in two, then one in four


@pytest.mark.parametrize("attention", ["rope", "t5", "kerple_power", "alibi"])
def test_positions_in_bf16_spoil_phases_and_tables_of_distances(attention):
    """Rotary phases, buckets, powers and slopes of distances that were held in 8 bits; in fp16 nothing is rounded at these lengths."""
    found = outcome(attention, FAR)
    for metric in ("output_error", "prior_error"):
        by_place = {where: one.value for where, one in cells(found, metric).items()}
        for tokens in (512, 1024):
            assert by_place[tokens, "bf16", "rounded"] > 3 * by_place[tokens, "bf16", None], (metric, tokens)
            assert by_place[tokens, "fp16", "rounded"] == by_place[tokens, "fp16", None], (metric, tokens)


def test_one_recency_lane_is_a_staircase_and_the_gradient_of_its_slope_is_rough():
    """The released GOAT code's lane beside the two of ours: rows, and the gradient of the slope."""
    found = {name: outcome(name, FAR) for name in ("goat_reference", "goat")}
    worse = {name: cells(one, "prior_error")[1024, "bf16", None].value for name, one in found.items()}
    assert worse["goat_reference"] > 3 * worse["goat"]
    slopes = {
        name: next(c.y[0] for c in one.curves if "slope" in c.conditions.get("parameter", "") and c.conditions["dtype"] == "bf16")
        for name, one in found.items()
    }
    assert slopes["goat_reference"] > 1.5 * slopes["goat"]


def test_the_plots_show_every_error_at_its_length(tmp_path):
    """In per cent, a line for each dtype and way of holding positions; a mechanism without positions has an error of 0 in no plot."""
    found = outcome("alibi", folder=tmp_path)
    names = [f"{metric}_by_length.{kind}" for metric in ("output_error", "prior_error") for kind in ("png", "svg")]
    assert found.artifacts == names and all((tmp_path / name).stat().st_size > 5000 for name in names)
    for metric in METRICS[:2]:
        (axes,) = by_length(metric, "alibi", found.measurements).axes
        drawn = [line for line in axes.lines if (line.get_gid() or "").startswith("curve-")]
        order = [("bf16", None), ("bf16", "rounded"), ("fp16", None), ("fp16", "rounded")]
        for line, (dtype, how) in zip(drawn, order, strict=True):
            expected = [100 * cells(found, metric.name)[tokens, dtype, how].value for tokens in (128, 256)]
            assert line.get_xdata().tolist() == [128, 256] and line.get_ydata() == pytest.approx(expected)
        assert axes.get_yscale() == "log" and f"{metric.name} (%)" in axes.get_ylabel()
    assert by_length(METRICS[1], "nope", [m.model_copy(update={"value": 0.0}) for m in found.measurements]) is None


def test_the_protocol_names_the_lengths():
    spec = compose(["task=precision", "scale=embedded"]).spec
    assert tasks.get("precision").protocol(spec)["lengths"] == "1024 4096 16384 65536"
