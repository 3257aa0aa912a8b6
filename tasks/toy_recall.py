"""Toys whose answers lie anywhere in a sequence: each is scored at its own place. Multi-query associative recall is one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.records.record import Cost, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import ToyRunSpec

from .causal import CausalTask, absent, contexts_of, evaluate, evaluation_costs, out_of_range, rate
from .retrieval import Retrieval

if TYPE_CHECKING:
    from goatbench.data.text.synthetic import SyntheticData, SyntheticTest
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

PROBLEMS = "goatbench.data.text.recall_problems"
PAIRS = "pairs"  # row condition of toy_mqar
HEADLINE_PAIRS = 8
TRAINING = "A causal decoder is trained on made-up sequences, drawn anew in every epoch; the loss is on the answers only. "
SCORING = (
    "token_accuracy: answers with the highest logit of all tokens, over all answers; its error is one over sequences. exact_match: "
    "sequences with every answer right. "
)
TABLE = "A table of learned positions has no entries beyond the training length: n/a, never clamped. "


@dataclass(frozen=True, slots=True)
class Recall(Retrieval):
    """One task of this kind: `goatbench run task=mad_recall`."""

    def protocol(self, spec: ToyRunSpec) -> dict[str, Any]:
        return CausalTask.protocol(self, spec) | {"problem": self.problem_of(spec).name}

    def windows(self, spec: ToyRunSpec, data: SyntheticData, length: int) -> Iterator[tuple[dict[str, Any], SyntheticTest]]:
        """Further conditions of a cell, and its sequences."""
        yield {}, data.windows(spec.task.split, length)

    def measure(self, spec: ToyRunSpec, net: Decoder, data: SyntheticData, folder: Path | None) -> Outcome:
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        for length in contexts_of(spec):
            where = {"multiple": length // spec.model.seq_len, "length": length, "split": spec.task.split}
            for further, windows in self.windows(spec, data, length):
                conditions = where | further
                if net.max_positions is not None and length > net.max_positions:
                    measurements += [absent(metric, conditions, out_of_range(net)) for metric in self.card.metrics]
                    continue
                label = " ".join((f"{self.card.name}: {length} tokens", *(f"{value} {name}" for name, value in further.items())))
                result = evaluate(spec, net, data, windows, label)
                measurements += answer_measurements(result, conditions)
                costs += evaluation_costs(result, "tokens", {"length": length} | further)
        return Outcome(measurements=measurements, costs=costs)


@dataclass(frozen=True, slots=True)
class Mqar(Recall):
    """`goatbench run task=toy_mqar`: trained on sequences with any number of pairs, measured for each number by itself."""

    def windows(self, spec: ToyRunSpec, data: SyntheticData, length: int) -> Iterator[tuple[dict[str, Any], SyntheticTest]]:
        from goatbench.data.text.recall_problems import PAIRS as NUMBERS
        from goatbench.data.text.recall_problems import fitting, mqar

        for count in fitting(NUMBERS, length):
            yield {PAIRS: count}, data.windows(spec.task.split, length, mqar((count,)))


def answer_measurements(result: LikelihoodResult, conditions: dict[str, Any]) -> list[Measurement]:
    from goatbench.metrics.likelihood import ratio_stderr

    correct, count, n = result.window_correct, result.window_count, len(result.window_ids)
    exact = int((correct == count).sum())
    return [
        Measurement(
            metric="token_accuracy", value=int(correct.sum()) / int(count.sum()), unit="fraction", n=int(count.sum()),
            stderr=ratio_stderr(correct, count), stderr_method="ratio estimator over sequences", conditions=conditions,
        ),
        rate("exact_match", exact, n, conditions),
        Measurement(
            metric="nll_nats", value=result.nll_nats, unit="nats", n=result.count, stderr=result.nll_stderr,
            stderr_method="ratio estimator over sequences", conditions=conditions,
        ),
    ]  # fmt: skip


def card(name: str, summary: str, protocol: str, alphabet: int, source: str, **more: Any) -> TaskCard:
    """alphabet: different answers, of which a blind guess takes one."""
    metrics = (
        Metric(
            name="token_accuracy", unit="fraction", direction="higher", chance=1 / alphabet, bounds=(0, 1), percent=True,
            counted="answers",
        ),
        Metric(name="exact_match", unit="fraction", direction="higher", bounds=(0, 1), percent=True),
        Metric(name="nll_nats", unit="nats", direction="lower", chance=math.log(alphabet), bounds=(0, None), digits=4, counted="answers"),
    )  # fmt: skip
    fields = {
        "name": name,
        "version": 1,
        "domain": "toy",
        "summary": summary,
        "protocol": protocol,
        "metrics": metrics,
        "primary_metric": "token_accuracy",
        "primary_conditions": {"multiple": 1, "split": "test"},
        "column_condition": "multiple",
        "column_label": "length",
        "expected_time": {"smoke": "under 20 s", "embedded": "under 1 minute on one CPU core", "paper": "an hour on a GPU"},
        "source": source,
    }
    return TaskCard(**{**fields, **more})


_MQAR = (
    "Keys of 64, each followed by its value of 64, stand at the start; behind them, among blanks, every key is asked for once, and its "
    "value is to be predicted there. The slots' distances follow the published power law (weights g^-0.99, drawn without repetition). "
    "Trained at one length with as many of 4, 8, 16, 32 and 64 pairs as fit, each as likely; measured at 1, 2 and 4 training lengths for "
    "each number of pairs by itself. An answer is not read: no answer gives another away. Naming any value of "
    "the context is right in 1 of as many as there are pairs. Width: model.embed_dim=N. "
)
_MQAR_DIFFERS = (
    "Differs from the published set-up: a vocabulary of 64 + 64 instead of 8,192, sequences drawn anew instead of 100,000 kept ones, one "
    "training over several numbers of pairs instead of one for each, a decoder with MLPs and several heads instead of attention alone "
    "with one, and no dropout."
)
TOY_MQAR = Mqar(
    card(
        "toy_mqar", "recalls the value of every key, by length and number of pairs", TRAINING + _MQAR + SCORING + TABLE + _MQAR_DIFFERS, 64,
        "multi-query associative recall of arXiv 2312.04927 (Zoology), generated anew",
        primary_conditions={"multiple": 1, PAIRS: HEADLINE_PAIRS, "split": "test"},
        row_conditions=(PAIRS,), headline_rows={PAIRS: (HEADLINE_PAIRS,)},
    ),
    f"{PROBLEMS}:MQAR",
)  # fmt: skip
