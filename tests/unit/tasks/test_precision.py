"""What the precision task makes of a layer: its cells, what is not applicable and why, its board's rows."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.registry import tasks


def outcome(attention: str, *overrides: str):
    composed = compose(["task=precision", "scale=smoke", "task.multiples=[4,8]", f"attention={attention}", *overrides])
    task = tasks.get("precision")
    torch.manual_seed(0)
    return task.measure(composed.spec, task.model(composed.spec), task.data(composed.spec), None)


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
    assert {m.reason for m in cells(nope, "gradient_error").values()} == {"not applicable: the mechanism has no parameters"}
    assert {how for _, _, how in cells(nope, "output_error")} == {None}  # no coordinate to round
    table = outcome("learned_absolute")
    assert all(m.value is None and "positions beyond 32" in m.reason for m in table.measurements)
    convolved = outcome("mta_conv")
    assert {m.reason for m in cells(convolved, "prior_error").values()} == {"not applicable: rows of attention that no softmax makes"}
    assert all(m.value > 0 for m in cells(convolved, "output_error").values())
    with pytest.raises(UsageError, match="last 64 queries"):
        outcome("rope", "task.multiples=[2]")


def test_the_protocol_names_the_lengths():
    spec = compose(["task=precision", "scale=embedded"]).spec
    assert tasks.get("precision").protocol(spec)["lengths"] == "1024 4096 16384 65536"
