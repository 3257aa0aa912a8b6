"""Values at which one row is another: each pair differs before they are set, and is one function afterwards."""

import pytest
import torch
from attention_cases import assert_close, make_layer, make_scheme, run, tokens

from goatbench.attention.layer import SelfAttention
from goatbench.attention.positions import Positions

N = 37
SILENT = {"even": 0.0, "odd": 0.0, "gain": 0.0, "bump": 0.0, "slope_raw": -800.0}  # of goat: no wave, no key term, no slope
CASES = [  # row, parameters of its scheme, the row that it then is
    ("sink_scalar", {"sink": -1e4}, "nope"),
    ("sink_scalar", {"sink": 0.0}, "softmax1"),
    ("alibi+sink_scalar", {"parts.1.sink": -1e4}, "alibi"),
    ("rope+sink_scalar", {"parts.1.sink": -1e4}, "rope"),
    ("t5", {"table": 0.0}, "nope"),
    ("fire", {"out.weight": 0.0}, "nope"),
    ("goat", SILENT, "nope"),
    ("goat+rope", {f"parts.0.{name}": value for name, value in SILENT.items()}, "rope"),
    ("goat+sink_scalar", {f"parts.0.{name}": value for name, value in SILENT.items()} | {"parts.1.sink": 0.0}, "softmax1"),
]


def twin_of(layer: SelfAttention, other: str) -> SelfAttention:
    """The same projections around another scheme, softmax and no gate."""
    twin = SelfAttention(layer.shape, make_scheme(other, layer.shape, "append"), lanes="append").double()
    twin.load_state_dict({name: t for name, t in layer.state_dict().items() if not name.startswith(("scheme.", "gate."))})
    return twin


def check(layer: SelfAttention, other: str, set_values) -> None:
    x, positions = tokens(N), Positions.line(N)
    with torch.no_grad():
        expected = run(twin_of(layer, other), x, positions)
        assert float((run(layer, x, positions) - expected).abs().max()) > 1e-3
        set_values()
        assert_close(run(layer, x, positions), expected, atol=1e-12)


@pytest.mark.parametrize(("name", "values", "other"), CASES)
def test_a_row_becomes_another(name, values, other):
    layer = make_layer(name, "line", lanes="append")

    def set_values():
        for parameter, value in values.items():
            layer.scheme.get_parameter(parameter).fill_(value)

    check(layer, other, set_values)


@pytest.mark.parametrize("name", ["gated_headwise", "gated_elementwise"])
def test_open_gates_are_no_gates(name):
    """They have no bias: their logits are set, not their weights."""
    layer = make_layer(name, "line")
    check(layer, "rope", lambda: layer.gate.register_forward_hook(lambda module, inputs, out: torch.full_like(out, 50.0)))
