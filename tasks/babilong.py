"""Are facts found and put together when more and more other text lies between them? Five kinds of questions at 1x to 16x the length.

The answer is one word, the most likely one behind the question: what greedy generation writes. It is right by BABILong's own rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.errors import UsageError
from goatbench.records.record import Cost, Learned, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import StoryRunSpec

from .causal import (
    ROPE_SCALING,
    SCALINGS,
    CausalTask,
    absent,
    evaluate,
    evaluation_costs,
    length_variants,
    machine_of,
    out_of_range,
    rate,
)

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.stories.module import StoryData
    from goatbench.data.stories.sources import Tests
    from goatbench.models.decoder import Decoder

ALL = "all"  # the five kinds together
LEARNED = 0.6  # accuracy over all kinds at the training length; the yardstick last-label reaches about 0.5
CHANCE = {"qa1": 1 / 6, "qa2": 1 / 6, "qa3": 1 / 6, "qa4": 1 / 6, "qa5": 1 / 7}  # six rooms; seven names and things
METRICS = (
    Metric(name="accuracy", unit="fraction", direction="higher", chance=sum(CHANCE.values()) / 5, bounds=(0, 1), percent=True),
    Metric(name="nll_nats", unit="nats", direction="lower", bounds=(0, None), digits=3),
)
TRAINING = (
    "A causal decoder of words is trained on stories of a few facts among sentences of the training documents, with a question at the end "
    "and a loss on its answer, one word, only; all kinds of questions mixed: where somebody is (qa1, one fact), where a thing is (qa2, "
    "two facts), where it was before (qa3, three), which room lies on a side of another (qa4, two arguments), who gave what to whom (qa5, "
    "three). "
)
PROTOCOL = TRAINING + (
    "Facts keep their order, lie in slots between sentences that are drawn with replacement, and are as many at every length; "
    "distractors of the tests come from test documents; lengths count the model's tokens and are filled to the last. Evaluated at 1, 2, 4, "
    "8 and 16 training lengths on the same stories. accuracy: BABILong's rule on the most likely word: the only answer of its kind that it "
    "names, those of the question left aside, is the right one. Rows: all (every story once) and each kind. Chance: 1/6 for qa1 to qa4, "
    "1/7 for qa5; reference last-label names the last possible answer among the facts that the question does not name. A mechanism below "
    "60 % over all kinds at 1x has not learned the task and is not ranked. " + SCALINGS + "data=babilong data.path=PATH: the real data set."
)


@dataclass(frozen=True, slots=True)
class Babilong(CausalTask):
    """`goatbench run task=babilong`."""

    def fingerprint(self, spec: StoryRunSpec) -> str:
        from goatbench.data.stories.sources import fingerprint_of

        return fingerprint_of(spec.data)

    def data(self, spec: StoryRunSpec) -> StoryData:
        from goatbench.data.stories.module import StoryData

        return StoryData(spec.data, spec.model, spec.evaluation, **machine_of(spec))

    def answer_tokens(self, spec: StoryRunSpec) -> int:
        return 1

    def protocol(self, spec: StoryRunSpec) -> dict[str, Any]:
        return CausalTask.protocol(self, spec) | {"tokens": "words", "questions": " ".join(spec.data.questions)}

    def check(self, spec: StoryRunSpec, data: StoryData) -> None:
        if not sum(1 for _ in self._tests(spec, data)):
            raise UsageError(f"data.path={spec.data.path} has no row of data.questions {', '.join(spec.data.questions)}: choose others")

    def _tests(self, spec: StoryRunSpec, data: StoryData) -> Tests:
        return data.tests(spec.task.split, sorted({1, *spec.task.multiples}))

    def measure(self, spec: StoryRunSpec, net: Decoder, data: StoryData, folder: Path | None) -> Outcome:
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        for where, windows in self._tests(spec, data):
            conditions = where | {"split": spec.task.split}
            if net.max_positions is not None and windows.context > net.max_positions:
                kinds = (ALL, *dict.fromkeys(windows.kinds))
                measurements += [absent(m, {**conditions, "qa": kind}, out_of_range(net)) for kind in kinds for m in METRICS]
                continue
            for variant, applied in length_variants(net, windows.context, spec.model.seq_len):
                label = " ".join((f"stories of {windows.context} words", *variant.values()))
                with applied:
                    result = evaluate(spec, net, data, windows, label, last=windows.last)
                words = [data.words.vocabulary.word(token) for token in result.window_last_prediction]
                nll = result.window_nll if result.window_masked_nll is None else result.window_masked_nll
                found = measurements_of(windows, words, nll, conditions | variant)
                measurements += [m for m in found if not variant or "reference" not in m.conditions]  # yardsticks read no positions
                costs += evaluation_costs(result, "tokens", {"length": windows.context} | variant)
        learned = next((m.value for m in measurements if m.conditions["qa"] == ALL and m.value is not None), 0.0)
        notes = [] if learned >= LEARNED else [f"not learned at the shortest length: accuracy {100 * learned:.1f} %, below 60 %"]
        usual = self.card.metric("accuracy").chance
        chance = next((m.value for m in measurements if m.conditions.get("reference") == "chance"), usual)
        if not math.isclose(chance, usual):
            notes.append(f"chance of these questions: accuracy {100 * chance:.1f} %")
        return Outcome(measurements=measurements, costs=costs, notes=notes)


def measurements_of(windows: Any, words: list[str], nll: np.ndarray, conditions: dict[str, Any]) -> list[Measurement]:
    """Accuracy and NLL of all stories and of each kind, and the yardsticks. words: what the model puts; nll: [n] of the answers."""
    import numpy as np

    from goatbench.data.stories.facts import LABELS
    from goatbench.metrics.likelihood import ratio_stderr
    from goatbench.metrics.single_label import is_single_label

    def right(said: list[str]) -> np.ndarray:
        rows = zip(said, windows.answers, windows.questions, windows.kinds, strict=True)
        return np.array([is_single_label(word, target, question, LABELS[kind]) for word, target, question, kind in rows])

    kinds = np.array(windows.kinds)
    correct, last = right(words), right(last_labels(windows))
    found = []
    for kind in (ALL, *dict.fromkeys(windows.kinds)):
        where, name = {**conditions, "qa": kind}, "" if kind == ALL else f"-{kind}"  # a yardstick of each kind is a row of its own
        chosen = np.ones(len(kinds), bool) if kind == ALL else kinds == kind
        n = int(chosen.sum())
        nats, error = float(nll[chosen].mean()), ratio_stderr(nll[chosen], np.ones(n))
        found += [
            rate("accuracy", int(correct[chosen].sum()), n, where),
            Measurement(
                metric="nll_nats", value=nats, unit="nats", n=n, stderr=error, stderr_method="of the mean over stories", conditions=where
            ),
            rate("accuracy", int(last[chosen].sum()), n, {**where, "reference": f"last-label{name}"}),
            Measurement(
                metric="accuracy", value=sum(CHANCE[one] for one in kinds[chosen]) / n, unit="fraction", n=n,
                conditions={**where, "reference": f"chance{name}"},
            ),
        ]  # fmt: skip
    return found


def last_labels(windows: Any) -> list[str]:
    """What a reader says who only knows which words can be an answer: the last one read that the question does not name."""
    from goatbench.data.stories.facts import LABELS

    said = []
    for read, question, kind in zip(windows.read, windows.questions, windows.kinds, strict=True):
        possible = [word for word in read if word in LABELS[kind] and word not in question]
        said.append(possible[-1] if possible else "")
    return said


BABILONG = Babilong(
    TaskCard(
        name="babilong",
        version=1,
        domain="stories",
        summary="answers from facts in text of 1x to 16x the training length, five kinds of questions",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="accuracy",
        primary_conditions={"multiple": 4, "split": "test"},
        column_condition="multiple",
        column_label="length",
        row_conditions=("qa", ROPE_SCALING),
        headline_rows={"qa": (ALL,)},
        learned=Learned(metric="accuracy", value=1, at_least=LEARNED),
        expected_time={"smoke": "under 20 s", "embedded": "about 3 minutes on one CPU core", "paper": "an hour on a GPU"},
        source="own form of qa1 to qa5 of BABILong (arXiv 2406.10149) and bAbI (arXiv 1502.05698); RMT-team/babilong for the real one",
    )
)
