"""Is a needle found at a distance that training never had? Two symbols behind a mark, asked for at the end, at 1x to 16x the length.

Exact match means that each symbol of the answer has the highest logit when the symbols before it are given: where both are right
that is what greedy generation writes, in one forward pass. The accuracy of single symbols is shown beside it, and is always higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from goatbench.records.record import Cost, Curve, Measurement, Metric, Outcome, TaskCard
from goatbench.records.statistics import wilson_interval
from goatbench.spec import ToyRunSpec

from .causal import CausalTask, evaluate, evaluation_costs, machine_of

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.text.synthetic import Problem, SyntheticData
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

NUM_SYMBOLS, ANSWER = 24, 2
METRICS = (
    Metric(name="exact_match", unit="fraction", direction="higher", chance=NUM_SYMBOLS**-ANSWER, bounds=(0, 1), percent=True),
    Metric(name="token_accuracy", unit="fraction", direction="higher", chance=1 / NUM_SYMBOLS, bounds=(0, 1), percent=True),
    Metric(name="first_token_accuracy", unit="fraction", direction="higher", chance=1 / NUM_SYMBOLS, bounds=(0, 1), percent=True),
    Metric(name="nll_nats", unit="nats", direction="lower", chance=math.log(NUM_SYMBOLS), bounds=(0, None), digits=4),
)
PROTOCOL = (
    "A causal decoder is trained on made-up sequences of 32 tokens, every second step shorter (10 to 32): random symbols of 24, one mark "
    "followed by two of the same symbols at a random place, a query mark at the end; the loss is on the two answer symbols only. "
    "Evaluated on sequences of 1, 2, 4, 8 and 16 training lengths, equally many at each depth. exact_match: both symbols have the highest "
    "logit, under teacher forcing. A mechanism below 95 % at 1x has not learned the task: its other columns say nothing of length. "
    "A table of learned positions has no entries beyond the training length: n/a, never clamped."
)


@dataclass(frozen=True, slots=True)
class Needle(CausalTask):
    """`goatbench run task=needle`."""

    answer_tokens: ClassVar[int] = ANSWER

    def fingerprint(self, spec: ToyRunSpec) -> str:
        from goatbench.data.text.synthetic import fingerprint_of

        return fingerprint_of(self._problem(), spec.data)

    def data(self, spec: ToyRunSpec) -> SyntheticData:
        from goatbench.data.text.synthetic import SyntheticData

        return SyntheticData(self._problem(), spec.data, spec.model, spec.evaluation, **machine_of(spec))

    def _problem(self) -> Problem:
        from goatbench.data.text.synthetic import NEEDLE

        return NEEDLE

    def protocol(self, spec: ToyRunSpec) -> dict[str, Any]:
        return CausalTask.protocol(self, spec) | {"depths": " ".join(f"{depth:g}" for depth in spec.evaluation.depths)}

    def measure(self, spec: ToyRunSpec, net: Decoder, data: SyntheticData, folder: Path | None) -> Outcome:
        base = spec.model.seq_len
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        curves: list[Curve] = []
        for length in (base * multiple for multiple in sorted({1, *spec.task.multiples})):
            conditions = {"multiple": length // base, "length": length, "split": spec.task.split}
            if net.max_positions is not None and length > net.max_positions:
                reason = f"not applicable: positions beyond {net.max_positions} have no learned entry"
                measurements += [
                    Measurement(metric=m.name, value=None, unit=m.unit, n=0, reason=reason, conditions=conditions) for m in METRICS
                ]
                continue
            result = evaluate(spec, net, data, data.test_windows(length), f"needles in {length} tokens", last=ANSWER)
            measurements += _measurements(result, conditions)
            curves += _by_depth(result, spec.evaluation.depths, conditions)
            costs += evaluation_costs(result, "tokens", {"length": length})
        learned = next(m.value for m in measurements if m.metric == "exact_match" and m.value is not None)
        notes = [] if learned >= 0.95 else [f"not learned at the training length: exact match {100 * learned:.1f} %, below 95 %"]
        return Outcome(measurements=measurements, costs=costs, curves=curves, notes=notes)


def _measurements(result: LikelihoodResult, conditions: dict[str, Any]) -> list[Measurement]:
    n = len(result.window_ids)
    exact = int((result.window_correct == ANSWER).sum())

    def rate(metric: str, successes: int, n: int) -> Measurement:
        low, high = wilson_interval(successes, n)
        return Measurement(
            metric=metric, value=successes / n, unit="fraction", n=n, stderr=(high - low) / (2 * 1.959964),
            stderr_method="width of Wilson's 95 % interval / 3.92", conditions=conditions,
        )  # fmt: skip

    return [
        rate("exact_match", exact, n),
        rate("token_accuracy", int(result.window_correct.sum()), n * ANSWER),
        rate("first_token_accuracy", int(result.position_correct[0]), n),
        Measurement(
            metric="nll_nats", value=result.nll_nats, unit="nats", n=result.count, stderr=result.nll_stderr,
            stderr_method="ratio estimator over sequences", conditions=conditions,
        ),
    ]  # fmt: skip


def _by_depth(result: LikelihoodResult, depths: list[float], conditions: dict[str, Any]) -> list[Curve]:
    """Exact match at each depth, and the ends of its Wilson interval: one column of the depth x length grid."""
    counts = exact_by_depth(result.window_correct, len(depths))
    n = len(result.window_correct) // len(depths)
    ends = [wilson_interval(count, n) for count in counts]
    rows = {"estimate": [count / n for count in counts], "wilson_low": [low for low, _ in ends], "wilson_high": [high for _, high in ends]}
    return [
        Curve(name="exact_match", unit="fraction", x_name="depth", x=depths, y=y, n=n, conditions={**conditions, "bound": bound})
        for bound, y in rows.items()
    ]


def exact_by_depth(window_correct: np.ndarray, num_depths: int) -> list[int]:
    """Sequences with the whole answer right at each depth; window_correct: [n] right symbols, by id, the depths one after the other."""
    return [int(count) for count in (window_correct == ANSWER).reshape(num_depths, -1).sum(1)]


NEEDLE = Needle(
    TaskCard(
        name="needle",
        version=1,
        domain="toy",
        summary="finds two symbols behind a mark at 1x to 16x the training length",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="exact_match",
        primary_conditions={"multiple": 16, "split": "test"},
        column_condition="multiple",
        column_label="length",
        expected_time={"smoke": "under 20 s", "embedded": "about 2 minutes on one CPU core", "paper": "an hour on a GPU"},
        source="own task, after the passkey of arXiv 2305.16300 (Landmark attention); arXiv 2601.15380 (GOAT)",
    )
)
