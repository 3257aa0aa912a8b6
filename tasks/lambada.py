"""Does a model finish a passage whose last word it has read before? All tokens of the word count, not the last one alone.

Published LAMBADA figures differ by what they count: `accuracy` wants the whole word, as lm-evaluation-harness does;
`last_token_accuracy` gives the word's other tokens away, as a score of the last token alone does, and is always higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.records.record import Cost, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import TextRunSpec

from .causal import ROPE_SCALING, SCALINGS, absent, evaluate, evaluation_costs, length_variants, machine_of, out_of_range, rate
from .text import OF_BYTES, SOURCE, TRAINING, TextTask

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.text.passages import PassageData
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

METRICS = (
    Metric(name="accuracy", unit="fraction", direction="higher", chance=0.0, bounds=(0, 1), percent=True),
    Metric(
        name="last_token_accuracy", unit="fraction", direction="higher", chance=1 / 256, chance_where=OF_BYTES, bounds=(0, 1), percent=True
    ),
    Metric(name="nll_nats", unit="nats", direction="lower", bounds=(0, None), digits=3),
    Metric(name="perplexity", unit="words", direction="lower", bounds=(1, None), digits=1),
)  # fmt: skip
PROTOCOL = (
    TRAINING + "Scored on passages of test documents, evenly spread and as long as the training length, that end with a word of at least "
    "4 letters before a punctuation mark; the word occurs earlier in the passage, so that reading it suffices (in LAMBADA it mostly does). "
    "The context ends right before the blank; blank and word are what is asked for. accuracy: every token of them has the highest logit "
    "under teacher forcing, which is what greedy generation writes. last_token_accuracy: the last token alone, given the others. nll_nats: "
    "summed over the word, a word's mean; perplexity is its exponential. The real LAMBADA, from a local file: data.lambada=PATH; passages "
    "are never cut: those longer than the context are left out and counted. task.multiples=[1,4] adds the same words under more text. "
    + SCALINGS.strip()
)


@dataclass(frozen=True, slots=True)
class Lambada(TextTask):
    """`goatbench run task=lambada`."""

    def fingerprint(self, spec: TextRunSpec) -> str:
        from goatbench.data.text.passage_files import fingerprint_with

        return fingerprint_with(TextTask.fingerprint(self, spec), spec.data.lambada)

    def data(self, spec: TextRunSpec) -> PassageData:
        from goatbench.data.text.passages import PassageData

        return PassageData(spec.data, spec.model, spec.evaluation, **machine_of(spec))

    def protocol(self, spec: TextRunSpec) -> dict[str, Any]:
        return TextTask.protocol(self, spec) | {"passages": "held-out documents" if spec.data.lambada is None else "file"}

    def check(self, spec: TextRunSpec, data: PassageData) -> None:
        self._passages(spec, data)

    def _passages(self, spec: TextRunSpec, data: PassageData) -> dict:
        return data.passages(spec.task.split, sorted({1, *spec.task.multiples}), spec.evaluation.num_passages)

    def measure(self, spec: TextRunSpec, net: Decoder, data: PassageData, folder: Path | None) -> Outcome:
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        notes: list[str] = []
        for multiple, windows in self._passages(spec, data).items():
            limit = multiple * spec.model.seq_len
            conditions = {"multiple": multiple, "context": limit, "split": spec.task.split}
            if net.max_positions is not None and windows.context > net.max_positions:
                measurements += [absent(metric, conditions, out_of_range(net)) for metric in METRICS]
                continue
            for variant, applied in length_variants(net, windows.context, spec.model.seq_len):
                label = " ".join((f"last words of {len(windows)} passages, {limit} tokens", *variant.values()))
                with applied:
                    result = evaluate(spec, net, data, windows, label)
                measurements += measurements_of(result, windows.last_tokens, conditions | variant)
                costs += evaluation_costs(result, "tokens", {"context": limit} | variant)
            if data.file is not None:
                longer = len(data.file.passages) - len(windows)
                notes.append(f"{longer} of {len(data.file.passages)} passages are longer than {limit} tokens and left out, none is cut")
        if data.file is not None and data.file.without_word:
            notes.append(f"{data.file.without_word} texts of the file have no last word and are left out")
        return Outcome(measurements=measurements, costs=costs, notes=notes)


def measurements_of(result: LikelihoodResult, last_tokens: np.ndarray, conditions: dict[str, Any]) -> list[Measurement]:
    """Rates with Wilson's interval and the mean NLL a word, from a result whose mask marks the words. last_tokens: [n], by id."""
    import numpy as np

    from goatbench.metrics.likelihood import ratio_stderr

    n = len(result.window_ids)
    whole = int((result.window_masked_correct == result.window_masked_count).sum())
    last = int((result.window_last_prediction == last_tokens).sum())
    nats = float(result.window_masked_nll.mean())
    error = ratio_stderr(result.window_masked_nll, np.ones(n))
    ppl_error = None if error is None else error * math.exp(nats)
    return [
        rate("accuracy", whole, n, conditions),
        rate("last_token_accuracy", last, n, conditions),
        Measurement(
            metric="nll_nats", value=nats, unit="nats", n=n, stderr=error, stderr_method="of the mean over words", conditions=conditions
        ),
        Measurement(
            metric="perplexity", value=math.exp(nats), unit="words", n=n, stderr=ppl_error,
            stderr_method="of the mean over words, delta method", conditions=conditions,
        ),
    ]  # fmt: skip


LAMBADA = Lambada(
    TaskCard(
        name="lambada",
        version=1,
        domain="text",
        summary="the last word of a passage, all its tokens; the real LAMBADA from a local file",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="accuracy",
        primary_conditions={"multiple": 1, "split": "test"},
        column_condition="multiple",
        column_label="context",
        row_conditions=(ROPE_SCALING,),
        expected_time={"smoke": "under 20 s", "embedded": "about 1 minute on one CPU core", "paper": "days on 8 GPUs"},
        source=f"arXiv 1606.06031 (LAMBADA); {SOURCE}",
    )
)
