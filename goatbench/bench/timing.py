"""CPU time of one thread, variants interleaved, so that what else the machine does hits all variants alike.

Wall time on a shared machine differs by 15 % between runs of the same work; CPU time by about 5 % per round. Ratios are formed
round by round, between neighbours in time, and then summarised by their median.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Median and quartiles (inclusive method) of a sample, and its least value."""

    median: float
    q1: float
    q3: float
    least: float
    rounds: int

    @staticmethod
    def of(sample: list[float]) -> Quartiles:
        if len(sample) < 2:
            raise ValueError(f"quartiles need at least 2 rounds, got {len(sample)}")
        q1, median, q3 = statistics.quantiles(sample, n=4, method="inclusive")
        return Quartiles(median, q1, q3, min(sample), len(sample))


@contextmanager
def one_thread() -> Iterator[None]:
    """One compute thread and no garbage collection inside a measured call; both are restored."""
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()


def interleaved(
    steps: Mapping[str, Callable[[], None]],
    rounds: int,
    after_round: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Seconds of each step in each round: A B C, C B A, A B C, ...; one unmeasured call of each before.

    after_round is called once per round, the unmeasured one included.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    after_round()
    order = list(steps)
    for _ in range(rounds):
        for name in order:
            begin = clock()
            steps[name]()
            seconds[name].append(clock() - begin)
        order.reverse()
        after_round()
    return seconds


def ratio(seconds: Mapping[str, list[float]], numerator: str, denominator: str) -> Quartiles:
    """Quartiles of the round-by-round ratio of two variants."""
    return Quartiles.of([a / b for a, b in zip(seconds[numerator], seconds[denominator], strict=True)])
