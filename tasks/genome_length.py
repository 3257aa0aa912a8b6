"""What does a model do with more context than it was trained on? The same target bases under 1x to 16x the training length.

Scoring the same bases is the point: with non-overlapping windows a longer context also means other targets, and regions of the
genome differ by 0.2 bits, which is more than any mechanism gains or loses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goatbench.records.record import Cost, Examples, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import GenomeRunSpec

from .causal import ROPE_SCALING, SCALINGS, absent, contexts_of, evaluation_costs, length_variants, out_of_range
from .genome import SOURCE, TRAINING, GenomeTask, codes_of, evaluate, interpolated, letters_note, markov_models, write_inputs

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.data.genome.windows import EvaluationWindows
    from goatbench.models.decoder import Decoder

LN2 = math.log(2)
METRICS = (
    Metric(name="bits_per_base", unit="bits", direction="lower", chance=2.0, bounds=(0, None), digits=4, counted="bases"),
    Metric(name="nll_nats", unit="nats", direction="lower", chance=math.log(4), bounds=(0, None), digits=4, counted="bases"),
    Metric(name="bits_change", unit="bits", direction="lower", digits=4, counted="bases"),
)
PROTOCOL = (
    TRAINING + "The last bases of windows of every length are scored: the same targets under a context of 1, 2, 4, 8 and 16 training "
    "lengths, evenly spread over the test sequence. bits_change is the paired difference to the training length on the same targets. "
    + SCALINGS
    + "A table of learned positions has no entries beyond the training length: n/a, never clamped. Reference: the interpolated Markov "
    "model, which reads 12 bases however many there are."
)


@dataclass(frozen=True, slots=True)
class GenomeLength(GenomeTask):
    """`goatbench run task=genome_length`."""

    def check(self, spec: GenomeRunSpec, data: GenomeData) -> None:
        self._tilings(spec, data)

    def _tilings(self, spec: GenomeRunSpec, data: GenomeData) -> dict[int, EvaluationWindows]:
        from goatbench.data.genome.windows import same_target_windows

        e, intervals = spec.evaluation, data.intervals(spec.task.split)
        return same_target_windows(data.genome, intervals, e.num_targets, contexts_of(spec), e.num_blocks)

    def measure(self, spec: GenomeRunSpec, net: Decoder, data: GenomeData, folder: Path | None) -> Outcome:
        base, split, num_targets = spec.model.seq_len, spec.task.split, spec.evaluation.num_targets
        tilings = self._tilings(spec, data)
        contexts = list(tilings)
        conditions = {context: {"multiple": context // base, "context": context, "split": split} for context in contexts}
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        examples: list[Examples] = []
        at_base: np.ndarray | None = None  # nats of each window at the training length, which comes first
        for context in contexts:
            if net.max_positions is not None and context > net.max_positions:
                measurements += [absent(m, conditions[context], out_of_range(net)) for m in METRICS]
                continue
            for variant, applied in length_variants(net, context, base):
                label = " ".join((f"scoring {context} bases of context", *variant.values()))
                with applied:
                    result = evaluate(spec, net, data, tilings[context], label, last=num_targets)
                at_base = result.window_nll if context == base else at_base
                measurements += _measurements(result.window_nll, at_base, num_targets, conditions[context] | variant)
                scores = (result.window_nll / LN2 / num_targets).astype("float32")
                examples.append(Examples("bits_per_base", conditions[context] | variant, scores))
                costs += evaluation_costs(result, "bases", {"context": context} | variant)
        measurements += _reference(spec, data, codes_of(tilings[base]), num_targets, list(conditions.values()))
        inputs, notes = write_inputs(folder, data), [letters_note(data)]
        return Outcome(measurements=measurements, costs=costs, artifacts=inputs, notes=notes, examples=examples)


def _reference(spec: GenomeRunSpec, data: GenomeData, codes: np.ndarray, num_targets: int, conditions: list[dict]) -> list[Measurement]:
    from goatbench.metrics.markov import window_nll

    totals = window_nll(markov_models(spec, data, only_interpolated=True)[interpolated(spec)], codes)[:, -num_targets:].sum(1)
    return [m for where in conditions for m in _measurements(totals, totals, num_targets, {**where, "reference": interpolated(spec)})]


def _measurements(totals: np.ndarray, at_base: np.ndarray, num_targets: int, conditions: dict) -> list[Measurement]:
    """totals, at_base: [n] nats summed over the num_targets targets of each window, under this context and at the training length."""
    import numpy as np

    from goatbench.metrics.likelihood import paired_difference, ratio_stderr

    counts = np.full(len(totals), num_targets)
    n = int(counts.sum())
    nats, stderr = float(totals.sum()) / n, ratio_stderr(totals, counts)
    change, change_stderr = paired_difference(totals, at_base, counts)
    by_window, paired = "ratio estimator over windows", "paired, ratio estimator over windows"

    def one(metric: str, value: float, unit: str, error: float | None, method: str) -> Measurement:
        kind = None if error is None else method
        return Measurement(metric=metric, value=value, unit=unit, n=n, stderr=error, stderr_method=kind, conditions=conditions)

    return [
        one("bits_per_base", nats / LN2, "bits", None if stderr is None else stderr / LN2, by_window),
        one("nll_nats", nats, "nats", stderr, by_window),
        one("bits_change", change / LN2, "bits", None if change_stderr is None else change_stderr / LN2, paired),
    ]


GENOME_LENGTH = GenomeLength(
    TaskCard(
        name="genome_length",
        version=1,
        domain="genome",
        summary="next-base NLL of the same bases under 1x to 16x the training context",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="bits_per_base",
        primary_conditions={"multiple": 16, "split": "test"},
        column_condition="multiple",
        column_label="context",
        row_conditions=(ROPE_SCALING,),
        expected_time={"smoke": "under 20 s", "embedded": "about 5 minutes on one CPU core", "paper": "a day on 8 GPUs"},
        source=SOURCE,
    )
)
