"""Interleaving, round-by-round ratios and quartiles, with a clock and workloads that are made up."""

import gc

import pytest
import torch

from goatbench.bench.timing import Quartiles, interleaved, one_thread, ratio


def test_steps_run_in_reversed_order_every_second_round_after_one_unmeasured_call_each():
    calls: list[str] = []
    rounds_seen: list[int] = []
    interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3, lambda: rounds_seen.append(len(calls)))
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert rounds_seen == [2, 4, 6, 8]


def test_each_step_is_charged_its_own_time_and_not_the_unmeasured_call():
    now = 0.0

    def work(seconds):
        def step():
            nonlocal now
            now += seconds.pop(0)

        return step

    steps = {"a": work([100.0, 1.0, 2.0]), "b": work([100.0, 10.0, 40.0])}
    seconds = interleaved(steps, 2, clock=lambda: now)
    assert seconds == {"a": [1.0, 2.0], "b": [10.0, 40.0]}
    assert ratio(seconds, "b", "a").median == 15.0  # of 10 and 20, not 50 / 3


def test_quartiles_of_a_worked_example():
    q = Quartiles.of([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (q.q1, q.median, q.q3, q.least, q.rounds) == (2.0, 3.0, 4.0, 1.0, 5)
    with pytest.raises(ValueError, match="at least 2"):
        Quartiles.of([1.0])


def test_one_thread_restores_threads_and_collection():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1 and not gc.isenabled()
        assert torch.get_num_threads() == 2 and gc.isenabled()
    finally:
        torch.set_num_threads(before)
