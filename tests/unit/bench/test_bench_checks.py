"""Graph counts on functions whose number of graphs is known, and the rounding of the prior."""

import pytest
import torch

from goatbench.bench.checks import bf16_error, compile_check, compiled_graphs


def test_a_function_of_any_length_is_one_static_and_one_dynamic_graph():
    assert compiled_graphs(lambda x: x * 2, (8, 12, 16), fullgraph=True) == 2


def test_a_graph_break_is_counted_and_refused_as_a_full_graph():
    def broken(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    assert compiled_graphs(broken, (8,), fullgraph=False) == 2
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled_graphs(broken, (8,), fullgraph=True)


@pytest.mark.parametrize("name", ["rope", "goat"])
def test_the_layer_compiles_as_one_graph_with_two_graphs_for_all_lengths(name):
    found = compile_check(name, (16, 24, 32))
    assert found["fullgraph"], found["reason"]
    assert found["graphs"] <= 2


def test_goat_survives_bf16_where_one_lane_for_the_recency_does_not():
    """At 1,024 tokens and slope .47 a lane holding slope * j moves in steps of 2 nats: tens of per cent in the output."""
    assert bf16_error("goat", 1024) <= 5e-3
    assert bf16_error("goat_reference", 1024) > 0.1
