"""What does a model do with more text than it was trained on? The same target bytes under 1x to 16x the training length.

Two protocols, as readers of length-extrapolation numbers cannot tell them apart: `same_target` scores the same bytes under every
context, so that only the context differs; `non_overlapping` cuts the same text into windows of each length and scores all of it, so
that a longer window also means fewer bytes with little context (ALiBi's "early token curse", arXiv 2108.12409, appendix B).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.records.record import Cost, Curve, Examples, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import TextRunSpec

from .causal import (
    ROPE_SCALING,
    SCALINGS,
    absent,
    contexts_of,
    evaluate,
    evaluation_costs,
    length_variants,
    out_of_range,
    position_curve,
)
from .text import OF_BYTES, SOURCE, TRAINING, TextTask

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.text.module import TextData
    from goatbench.data.text.windows import TextWindows
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

LN2 = math.log(2)
SAME_TARGET, NON_OVERLAPPING, STREAMING = "same_target", "non_overlapping", "streaming"
WINDOW, IN_TEXT = "window", "_text_positions"  # of streaming_grid: no first tokens; a suffix: tokens keep their places in the text
METRICS = (
    Metric(
        name="bits_per_byte", unit="bits", direction="lower", chance=8.0, chance_where=OF_BYTES, bounds=(0, None), digits=4,
        counted="bytes",
    ),
    Metric(
        name="nll_nats", unit="nats", direction="lower", chance=math.log(256), chance_where=OF_BYTES, bounds=(0, None), digits=4,
        counted="tokens",
    ),
    Metric(
        name="perplexity", unit="bytes", direction="lower", chance=256.0, chance_where=OF_BYTES, bounds=(1, None), digits=3,
        counted="tokens",
    ),
    Metric(name="bits_change", unit="bits", direction="lower", digits=4, counted="bytes"),
)  # fmt: skip
PROTOCOL = (
    TRAINING + "Test documents with at least 16 training lengths are scored under windows of 1, 2, 4, 8 and 16 training lengths, each a "
    "BOS and the bytes before the target; sums over bytes, BOS is never a target. same_target (headline): the last bytes of every "
    "window, the same bytes at every length; bits_change is the paired difference to the training length. non_overlapping: the same "
    "stretches cut into windows of each length, every byte scored. streaming (on request): the bytes of same_target, each window read as "
    "a stream from its BOS with a cache of the first tokens and the latest training length of others, numbered by their place in the "
    "cache (StreamingLLM), so that memory is that of one length. A token is a byte, unless data.tokenizer says otherwise: "
    "lengths, nll_nats and perplexity are then of that tokenizer's tokens, without a chance level, and only bits a byte compare. "
    + SCALINGS
    + "A table of learned positions has no entries beyond the training length: n/a, never clamped. Memory is linear in the length, but "
    "quadratic for rows that hold a map of length x length: t5, kerple_log, kerple_power, fire, bam, mta, mta_conv, talking_heads, cope."
)


@dataclass(frozen=True, slots=True)
class LmLength(TextTask):
    """`goatbench run task=lm_length`."""

    def check(self, spec: TextRunSpec, data: TextData) -> None:
        self._tilings(spec, data)

    def _tilings(self, spec: TextRunSpec, data: TextData) -> tuple[TextWindows, TextWindows]:
        """(blocks whose last bytes are scored, spans that are cut into windows), both at the longest context."""
        e, longest = spec.evaluation, spec.model.seq_len * max([1, *spec.task.multiples])
        blocks = data.tiling(spec.task.split, longest, e.num_targets, e.num_blocks)
        return blocks, data.tiling(spec.task.split, longest, longest, e.num_spans)

    def measure(self, spec: TextRunSpec, net: Decoder, data: TextData, folder: Path | None) -> Outcome:
        base, num_targets, unit = spec.model.seq_len, spec.evaluation.num_targets, data.tokenizer.unit
        contexts, metrics = contexts_of(spec), self.metrics_of(self.protocol(spec))
        blocks, spans = self._tilings(spec, data)
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        curves: list[Curve] = []
        examples: list[Examples] = []
        at_base: LikelihoodResult | None = None
        for context in contexts:
            same, cut = (_conditions(spec, protocol, context) for protocol in (SAME_TARGET, NON_OVERLAPPING))
            if net.max_positions is not None and context > net.max_positions:
                measurements += [absent(m, where, out_of_range(net)) for where in (same, cut) for m in metrics]
                continue
            windows = blocks.with_context(context)
            for variant, applied in length_variants(net, context, base):
                label = " ".join((f"same {unit}, {context} of context", *variant.values()))
                with applied:
                    result = evaluate(spec, net, data, windows, label, last=num_targets)
                at_base = result if context == base else at_base
                num_bytes = data.scored_bytes(windows, num_targets)
                measurements += _measurements(result, num_bytes, same | variant, at_base, unit)
                examples.append(_examples(result, num_bytes, same | variant))
                costs += evaluation_costs(result, unit, {"context": context} | variant)
            windows = _cut(spans, context)
            result = evaluate(spec, net, data, windows, f"windows of {context} without overlap")
            measurements += _measurements(result, data.scored_bytes(windows), cut, None, unit)
            curves.append(position_curve(f"bits_per_{unit[:-1]}", "position", result, cut))
        if spec.evaluation.streaming:
            read, spent = _streamed(spec, net, data, blocks, contexts, metrics)
            measurements, costs = measurements + read, costs + spent
        return Outcome(measurements=measurements, costs=costs, curves=curves, examples=examples)


def _ways_to_stream(spec: TextRunSpec) -> list[tuple[str, int, int, bool]]:
    """(protocol, first tokens kept, window, whether tokens are renumbered); equally many tokens in the cache in all."""
    e, base = spec.evaluation, spec.model.seq_len
    ways = [(STREAMING, e.num_sinks, base, True)]
    if e.streaming_grid:
        ways += [(STREAMING + IN_TEXT, e.num_sinks, base, False)]
        ways += [(WINDOW, 0, base + e.num_sinks, True), (WINDOW + IN_TEXT, 0, base + e.num_sinks, False)]
    return ways


def _streamed(
    spec: TextRunSpec, net: Decoder, data: TextData, blocks: TextWindows, contexts: list[int], metrics: tuple[Metric, ...]
) -> tuple[list[Measurement], list[Cost]]:
    """The bytes of same_target, every window read as a stream; the first context is the training length, where nothing is evicted."""
    from goatbench.models.streaming import Streamed, streaming

    measurements: list[Measurement] = []
    costs: list[Cost] = []
    num_targets, unit = spec.evaluation.num_targets, data.tokenizer.unit
    for protocol, num_sinks, window, renumber in _ways_to_stream(spec):
        how, why = streaming(net, num_sinks, renumber)
        chunk = 1 if how == "tokens" else None  # exact either way
        stream = None if how == "no" else Streamed(net, num_sinks, window, num_targets, chunk, renumber)
        at_base: LikelihoodResult | None = None
        for context in contexts:
            where = _conditions(spec, protocol, context) | {"window": window, "num_sinks": num_sinks}
            too_long = not renumber and net.max_positions is not None and context > net.max_positions
            if stream is None or too_long:
                reason = out_of_range(net) if too_long else f"not applicable: {why}"
                measurements += [absent(m, where, reason) for m in metrics]
                continue
            windows = blocks.with_context(context)
            result = evaluate(spec, stream, data, windows, f"same {unit}, {protocol} of {context}", last=num_targets)
            at_base = at_base or result
            measurements += _measurements(result, data.scored_bytes(windows, num_targets), where, at_base, unit)
            costs += evaluation_costs(result, unit, {"context": context, "protocol": protocol})
    return measurements, costs


def _cut(spans: TextWindows, context: int) -> TextWindows:
    """Whole windows only: a multiple that does not divide the longest one scores the last bytes of each span."""
    return spans.with_context(spans.context // context * context).cut_into(context)


def _conditions(spec: TextRunSpec, protocol: str, context: int) -> dict[str, Any]:
    stride = context if protocol == NON_OVERLAPPING else spec.evaluation.num_targets
    return {
        "multiple": context // spec.model.seq_len, "context": context, "protocol": protocol, "window": context, "stride": stride,
        "split": spec.task.split,
    }  # fmt: skip


def _measurements(
    result: LikelihoodResult, num_bytes: np.ndarray, conditions: dict[str, Any], at_base: LikelihoodResult | None, unit: str
) -> list[Measurement]:
    """Nats and perplexity are of tokens, bits of bytes; each says how many it counts.

    num_bytes: [windows], of the scored targets. at_base: the same targets under the training length, for the paired difference; None:
    other windows, nothing to pair. unit: what a token is, 'bytes' or 'tokens'.
    """
    from goatbench.metrics.likelihood import paired_difference, ratio_stderr

    nats, stderr = result.nll_nats, result.nll_stderr
    total_bytes = int(num_bytes.sum())
    bits_stderr = ratio_stderr(result.window_nll, num_bytes)
    change, change_stderr = None, None
    if at_base is not None:
        change, change_stderr = paired_difference(result.window_nll, at_base.window_nll, num_bytes)

    def one(metric: str, value: float | None, unit: str, error: float | None, method: str = "ratio estimator over windows") -> Measurement:
        reason = None if value is not None else "not applicable: the windows differ from length to length"
        kind = None if error is None else method
        n = total_bytes if metric.startswith("bits_") else result.count
        return Measurement(
            metric=metric, value=value, unit=unit, n=n, stderr=error, stderr_method=kind, reason=reason, conditions=conditions
        )

    def times(error: float | None, factor: float) -> float | None:
        return None if error is None else error * factor

    return [
        one("bits_per_byte", nats / LN2 * (result.count / total_bytes), "bits", times(bits_stderr, 1 / LN2)),
        one("nll_nats", nats, "nats", stderr),
        one("perplexity", math.exp(nats), unit, times(stderr, math.exp(nats)), "ratio estimator over windows, delta method"),
        one("bits_change", times(change, 1 / LN2), "bits", times(change_stderr, 1 / LN2), "paired, ratio estimator over windows"),
    ]


def _examples(result: LikelihoodResult, num_bytes: np.ndarray, conditions: dict[str, Any]) -> Examples:
    """Bits a byte of each window, weighted by its bytes: the blocks of same_target are the same at every length."""
    import numpy as np

    scores = result.window_nll / LN2 / num_bytes
    return Examples("bits_per_byte", conditions, scores.astype(np.float32), num_bytes)


@dataclass(frozen=True, slots=True)
class LmTuning(TextTask):
    """`goatbench run task=lm_tuning`."""

    def measure(self, spec: TextRunSpec, net: Decoder, data: TextData, folder: Path | None) -> Outcome:
        windows = data.validation_windows
        result = evaluate(spec, net, data, windows, "validation")
        conditions = {**_conditions(spec, NON_OVERLAPPING, windows.context), "split": "validation"}
        measurements = _measurements(result, data.scored_bytes(windows), conditions, None, data.tokenizer.unit)
        return Outcome(measurements=measurements, costs=evaluation_costs(result, data.tokenizer.unit, {}))


LM_TUNING = LmTuning(
    TaskCard(
        name="lm_tuning",
        version=1,
        domain="text",
        summary="next-token NLL on validation: chooses learning rates",
        protocol=TRAINING + "Scored on the validation windows, each of the training length.",
        metrics=METRICS,
        primary_metric="bits_per_byte",
        primary_conditions={"multiple": 1, "split": "validation"},
        column_condition="multiple",
        column_label="context",
        column_details=("window", "stride"),
        row_conditions=("protocol",),
        headline_rows={"protocol": (NON_OVERLAPPING,)},
        expected_time={"smoke": "under 20 s", "embedded": "about half a minute on one CPU core", "paper": "hours on 8 GPUs"},
        source=SOURCE,
    )
)
LM_LENGTH = LmLength(
    TaskCard(
        name="lm_length",
        version=1,
        domain="text",
        summary="next-byte NLL of the same bytes under 1x to 16x the training length",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="bits_per_byte",
        primary_conditions={"multiple": 16, "split": "test"},
        column_condition="multiple",
        column_label="context",
        column_details=("window", "stride", "num_sinks"),
        row_conditions=("protocol", ROPE_SCALING),
        headline_rows={"protocol": (SAME_TARGET,)},
        expected_time={"smoke": "under 20 s", "embedded": "half a minute to a minute on one CPU core", "paper": "days on 8 GPUs"},
        source=SOURCE,
    )
)
