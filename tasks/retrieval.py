"""Is something found again at a distance that training never had? Sequences with an answer at their end, at 1x to 16x the length.

Exact match means that each symbol of the answer has the highest logit when the symbols before it are given: where all are right
that is what greedy generation writes, in one forward pass. The accuracy of single symbols is shown beside it, and is always higher.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.errors import UsageError
from goatbench.records.canonical import canonical_json
from goatbench.records.record import Cost, Curve, Examples, Learned, Measurement, Metric, Outcome, TaskCard
from goatbench.records.statistics import wilson_interval
from goatbench.spec import ToyRunSpec

from .causal import (
    ROPE_SCALING,
    SCALINGS,
    CausalTask,
    absent,
    by_conditions,
    contexts_of,
    evaluate,
    evaluation_costs,
    length_variants,
    machine_of,
    out_of_range,
    rate,
)

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.text.problems import Problem
    from goatbench.data.text.synthetic import SyntheticData
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

OWN_DATA = "synthetic"  # data.name for the task's own problem
LEARNED = 0.95  # exact match at the training length
TRAINING = (
    "A causal decoder is trained on made-up sequences, every second step shorter than the training length; the loss is on the answer's "
    "symbols only. "
)
SCORING = (
    "Evaluated on sequences of 1, 2, 4, 8 and 16 training lengths, equally many at each of the depths, where depth is the place in the "
    "filler, 0 its start and 1 its end. exact_match: every symbol of the answer has the highest logit, under teacher forcing, which is "
    "what greedy generation writes. A mechanism below 95 % at 1x has not learned the task: its other columns say nothing of length, and "
    "it is not ranked. " + SCALINGS + "A table of learned positions has no entries beyond the training length: n/a, never clamped."
)


@dataclass(frozen=True, slots=True)
class Retrieval(CausalTask):
    """problem: "module:attribute" of the Problem, or of a function of the data's specification that gives one."""

    problem: str

    def fingerprint(self, spec: ToyRunSpec) -> str:
        from goatbench.data.text.synthetic import fingerprint_of

        return fingerprint_of(self.problem_of(spec), spec.data)

    def data(self, spec: ToyRunSpec) -> SyntheticData:
        from goatbench.data.text.synthetic import SyntheticData

        return SyntheticData(self.problem_of(spec), spec.data, spec.model, spec.evaluation, **machine_of(spec))

    def problem_of(self, spec: ToyRunSpec) -> Problem:
        """The task's own, or the one that the data name."""
        from goatbench.registry import broken_plugins, toy_sources, unknown

        name = spec.data.name
        if name not in (OWN_DATA, *toy_sources.names()):
            raise UsageError(unknown("toy source", name, [OWN_DATA, *toy_sources.names()]) + broken_plugins())
        module, _, attribute = (self.problem if name == OWN_DATA else toy_sources.target(name)).partition(":")
        found = getattr(import_module(module), attribute)
        return found(spec.data) if callable(found) else found

    def answer_tokens(self, spec: ToyRunSpec) -> int:
        return self.problem_of(spec).answer

    def protocol(self, spec: ToyRunSpec) -> dict[str, Any]:
        depths = " ".join(f"{depth:g}" for depth in spec.evaluation.depths)
        return CausalTask.protocol(self, spec) | {"depths": depths, "problem": self.problem_of(spec).name}

    def contradictions(self, measurements: list[Measurement]) -> Iterator[str]:
        """An answer that is right as a whole is right in its first symbol and in each; every share has a standard error."""
        yield from CausalTask.contradictions(self, measurements)
        for conditions, found in by_conditions(measurements):
            if "exact_match" not in found or "reference" in conditions:
                continue
            whole = found["exact_match"]
            for share in (found[name] for name in ("exact_match", "first_token_accuracy", "token_accuracy") if name in found):
                if share.stderr_method is None:
                    yield f"{share.metric} = {share.value:g} has no standard error ({canonical_json(conditions)})"
                # another method than the whole's: answers of different lengths, where the shares have no order
                elif share.stderr_method == whole.stderr_method and whole.value > share.value + 1e-9:
                    yield f"exact_match = {whole.value:g} is above {share.metric} = {share.value:g} ({canonical_json(conditions)})"

    def measure(self, spec: ToyRunSpec, net: Decoder, data: SyntheticData, folder: Path | None) -> Outcome:
        base, problem = spec.model.seq_len, data.problem
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        curves: list[Curve] = []
        examples: list[Examples] = []
        for length in contexts_of(spec):
            conditions = {"multiple": length // base, "length": length, "split": spec.task.split}
            if net.max_positions is not None and length > net.max_positions:
                measurements += [absent(metric, conditions, out_of_range(net)) for metric in self.card.metrics]
                continue
            windows = data.windows(spec.task.split, length)
            for variant, applied in length_variants(net, length, base):
                with applied:
                    label = " ".join((f"{problem.name}: {length} tokens", *variant.values()))
                    result = evaluate(spec, net, data, windows, label, last=problem.answer)
                measurements += _measurements(result, problem, conditions | variant)
                examples.append(Examples("exact_match", conditions | variant, result.window_correct == problem.scored))
                if spec.task.split == "test" and problem.has_depth:
                    curves += _by_depth(result, problem.scored, spec.evaluation.depths, conditions | variant)
                costs += evaluation_costs(result, "tokens", {"length": length} | variant)
        learned = next(m.value for m in measurements if m.metric == "exact_match" and m.value is not None)
        notes = [] if learned >= LEARNED else [f"not learned at the training length: exact match {100 * learned:.1f} %, below 95 %"]
        chance = problem.alphabet**-problem.scored
        if not math.isclose(chance, self.card.metric("exact_match").chance):
            notes.append(f"chance of this data: exact match {chance:.1e}, one symbol {1 / problem.alphabet:.3f}")
        return Outcome(measurements=measurements, costs=costs, curves=curves, notes=notes, examples=examples)


def _measurements(result: LikelihoodResult, problem: Problem, conditions: dict[str, Any]) -> list[Measurement]:
    n = len(result.window_ids)
    exact = int((result.window_correct == problem.scored).sum())
    return [
        rate("exact_match", exact, n, conditions),
        rate("token_accuracy", int(result.window_correct.sum()), n * problem.scored, conditions),
        rate("first_token_accuracy", int(result.position_correct[0]), n, conditions),
        Measurement(
            metric="nll_nats", value=result.nll_nats, unit="nats", n=result.count, stderr=result.nll_stderr,
            stderr_method="ratio estimator over sequences", conditions=conditions,
        ),
    ]  # fmt: skip


def _by_depth(result: LikelihoodResult, scored: int, depths: list[float], conditions: dict[str, Any]) -> list[Curve]:
    """Exact match at each depth, and the ends of its Wilson interval: one column of the depth x length grid."""
    counts = exact_by_depth(result.window_correct, scored, len(depths))
    n = len(result.window_correct) // len(depths)
    ends = [wilson_interval(count, n) for count in counts]
    rows = {"estimate": [count / n for count in counts], "wilson_low": [low for low, _ in ends], "wilson_high": [high for _, high in ends]}
    return [
        Curve(name="exact_match", unit="fraction", x_name="depth", x=depths, y=y, n=n, conditions={**conditions, "bound": bound})
        for bound, y in rows.items()
    ]


def exact_by_depth(window_correct: np.ndarray, scored: int, num_depths: int) -> list[int]:
    """Sequences with the whole answer right at each depth; window_correct: [n] right symbols, by id, the depths one after the other."""
    return [int(count) for count in (window_correct == scored).reshape(num_depths, -1).sum(1)]


def metrics(alphabet: int, scored: int) -> tuple[Metric, ...]:
    """Of an answer of `scored` symbols, drawn from an alphabet."""
    return (
        Metric(name="exact_match", unit="fraction", direction="higher", chance=alphabet**-scored, bounds=(0, 1), percent=True),
        Metric(
            name="token_accuracy", unit="fraction", direction="higher", chance=1 / alphabet, bounds=(0, 1), percent=True,
            counted="symbols",
        ),
        Metric(name="first_token_accuracy", unit="fraction", direction="higher", chance=1 / alphabet, bounds=(0, 1), percent=True),
        Metric(name="nll_nats", unit="nats", direction="lower", chance=math.log(alphabet), bounds=(0, None), digits=4, counted="symbols"),
    )  # fmt: skip


def card(
    name: str, summary: str, protocol: str, alphabet: int, scored: int, source: str, split: str = "test", version: int = 1
) -> TaskCard:
    """alphabet, scored: different symbols of an answer, and how many it has: what a blind guess gets."""
    is_test = split == "test"
    return TaskCard(
        name=name,
        version=version,
        domain="toy",
        summary=summary,
        protocol=protocol,
        metrics=metrics(alphabet, scored),
        primary_metric="exact_match" if is_test else "nll_nats",
        primary_conditions={"multiple": 16 if is_test else 1, "split": split},
        column_condition="multiple",
        column_label="length",
        row_conditions=(ROPE_SCALING,),
        learned=Learned(metric="exact_match", value=1, at_least=LEARNED) if is_test else None,
        expected_time={"smoke": "under 20 s", "embedded": "half a minute to 1.5 minutes on one CPU core", "paper": "an hour on a GPU"},
        source=source,
    )


PROBLEMS = "goatbench.data.text.problems"
OWN = "own task, after the passkey of arXiv 2305.16300 (Landmark attention); arXiv 2601.15380 (GOAT)"
_ALONE = "; nothing competes with it at data.num_distractors=0, the default"
_NEEDLE = "Random symbols of 24, one mark followed by two of the same symbols at some place, a query mark at the end. "

NEEDLE = Retrieval(
    card("needle", "finds two symbols behind a mark at 1x to 16x the training length" + _ALONE, TRAINING + _NEEDLE + SCORING, 24, 2, OWN),
    f"{PROBLEMS}:needle_of",
)
NEEDLE_TUNING = Retrieval(
    card(
        "needle_tuning", "NLL of the needle on validation: chooses learning rates", TRAINING + _NEEDLE + "Validation, at 1x.", 24, 2, OWN,
        split="validation",
    ),
    f"{PROBLEMS}:needle_of",
)  # fmt: skip
_PASSKEY = (
    "Random symbols of 24, one mark followed by the five symbols of the key at some place, a query mark at the end: the filler is of the "
    "key's alphabet, so that no symbol gives the key away. "
)
_PAPER = (
    " data=passkey_paper and data=niah_paper are the settings of the GOAT paper's scripts, kept with their flaws: filler without digits, "
    "so that content alone finds the key; one header and no distractor; a needle over four letters, of which teacher forcing gives away "
    "what was missed."
)
_MULTI = (
    "Random symbols of 24 with four needles (mark, label, two symbols; data.num_needles) at random places, of which two (data.num_asked) "
    "are asked for by label at the end; the first asked lies at the depth of its cell. Only the values are scored. "
)
PASSKEY = Retrieval(
    card(
        "passkey", "finds a key of five symbols at 1x to 16x the training length" + _ALONE,
        TRAINING + _PASSKEY + SCORING + _PAPER, 24, 5,
        "own form of the passkey of arXiv 2305.16300 (Landmark attention); arXiv 2601.15380 (GOAT)",
    ),
    f"{PROBLEMS}:passkey_of",
)  # fmt: skip
MULTI_NEEDLE = Retrieval(
    card(
        "multi_needle", "finds the values of two of four labels at 1x to 16x the training length", TRAINING + _MULTI + SCORING, 24, 4,
        "own form of the multi-needle test of arXiv 2410.05258 (DIFF Transformer) and arXiv 2504.00927 (Multi-Token Attention)",
    ),
    f"{PROBLEMS}:multi_needle_of",
)  # fmt: skip
