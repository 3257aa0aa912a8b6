"""Does a mechanism learn the prior that is really there? Copies of the first or the previous token, and noise (arXiv 2601.15380, figure 1).

Where an answer comes from is drawn by place alone: the true prior is known, and so is the lowest loss that any model can reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.errors import UsageError
from goatbench.records.record import Cost, Curve, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import ToyRunSpec

from .causal import CausalTask, absent, contexts_of, device_of, evaluate, evaluation_costs, out_of_range
from .toy_recall import TABLE, Recall

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.text.synthetic import SyntheticData
    from goatbench.metrics.prior_parts import PriorParts
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

MAX_SEQUENCES = 64  # whose attention is averaged
BEST = "best possible"  # a yardstick
NO_PRIOR = "not applicable: the mechanism has no prior, or one that depends on content"
GUESS_EXCESS = 1.6439  # ln 24 less the best possible loss, at 32 tokens
FLAT_ERROR = 0.6550  # of attention to every key alike, at 32 tokens
METRICS = (
    Metric(name="excess_nats", unit="nats", direction="lower", chance=GUESS_EXCESS, bounds=(None, None), digits=4, counted="symbols"),
    Metric(name="prior_error", unit="fraction", direction="lower", chance=FLAT_ERROR, bounds=(0, 1), percent=True, counted="queries"),
    Metric(name="attention_error", unit="fraction", direction="lower", chance=FLAT_ERROR, bounds=(0, 1), percent=True, counted="queries"),
    Metric(name="token_accuracy", unit="fraction", direction="higher", chance=1 / 24, bounds=(0, 1), percent=True, counted="symbols"),
    Metric(name="nll_nats", unit="nats", direction="lower", chance=math.log(24), bounds=(0, None), digits=4, counted="symbols"),
)
PROTOCOL = (
    "A causal decoder of one layer and one head reads random symbols of 24; at each place it is to tell the first one (50 %), the one "
    "before the latest (30 %), or a symbol drawn anew (20 %), which no one can know. Sequences are drawn anew in every epoch. "
    "excess_nats: the loss above that of the best possible predictor, which is known; chance is a blind guess. prior_error: total "
    "variation between the probabilities that the learned log-prior alone induces and the true ones (key 0: 50 %, offset 1: 30 %, the "
    "rest over all keys alike), mean over the queries with two keys or more; chance is every key alike. attention_error: the same of the "
    "attention that is really used, content included, mean over 64 sequences. Rows that do not sum to one (multi-token, differential) are"
    " refused. The run's folder has the log-priors taken apart as PNG and SVG: term of the key, term of the offset, row-centred total, "
    "probabilities; the true one, the learned prior, the attention. The network behind attention can make up for a prior that is not the "
    "true one: read the errors beside the loss. " + TABLE
)


@dataclass(frozen=True, slots=True)
class CopyMixture(Recall):
    """`goatbench run task=toy_copy_mixture`."""

    def model(self, spec: ToyRunSpec) -> Decoder:
        from goatbench.metrics.attention_stats import require_softmax

        if spec.model.depth != 1:
            raise UsageError(f"model.depth={spec.model.depth}: the learned prior is read off one layer; set model.depth=1")
        net = CausalTask.model(self, spec)
        require_softmax(net)
        return net

    def measure(self, spec: ToyRunSpec, net: Decoder, data: SyntheticData, folder: Path | None) -> Outcome:
        measurements: list[Measurement] = []
        costs: list[Cost] = []
        net.to(device_of(spec))
        for length in contexts_of(spec):
            where = {"multiple": length // spec.model.seq_len, "length": length, "split": spec.task.split}
            if net.max_positions is not None and length > net.max_positions:
                measurements += [absent(metric, where, out_of_range(net)) for metric in METRICS]
                continue
            ((_, windows),) = self.windows(spec, data, length)
            result = evaluate(spec, net, data, windows, f"{self.card.name}: {length} tokens")
            measurements += _loss(result, length, where)
            measurements += _errors(_rows(net, windows, length), length, where)
            costs += evaluation_costs(result, "tokens", {"length": length})
        ((_, windows),) = self.windows(spec, data, spec.model.seq_len)
        parts = _parts(_rows(net, windows, spec.model.seq_len), spec.model.seq_len)
        notes, artifacts = _chance_note(spec.model.seq_len), _plot(folder, spec.attention.name, parts)
        return Outcome(measurements=measurements, costs=costs, curves=_curves(parts), artifacts=artifacts, notes=notes)


def _chance_note(length: int) -> list[str]:
    """Where a blind guess and attention to every key alike do not have the card's chance at the training length."""
    import numpy as np

    from goatbench.data.text.mixture_problem import best_possible, true_rows
    from goatbench.metrics.prior_parts import total_variation

    flat = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    excess, error = math.log(24) - best_possible(length).nll_nats, float(total_variation(flat, true_rows(length))[1:].mean())
    if math.isclose(excess, GUESS_EXCESS, abs_tol=1e-4) and math.isclose(error, FLAT_ERROR, abs_tol=1e-4):
        return []
    return [f"chance at {length} tokens: excess {excess:.4f} nats, prior and attention error {100 * error:.1f} %"]


def _rows(net: Decoder, windows: Any, length: int) -> dict[str, np.ndarray | None]:
    """Mean over heads of the probabilities [L, L]: of the prior (None: there is none to read) and of the attention."""
    import torch

    from goatbench.metrics.mean_attention import mean_attention
    from goatbench.metrics.prior_curves import prior_rows
    from goatbench.training.targets import read_and_targets

    prior = prior_rows(net, length)
    read, _ = read_and_targets(torch.stack([windows[i][0] for i in range(min(MAX_SEQUENCES, len(windows)))]))
    attention = mean_attention(net, read.to(next(net.parameters()).device))
    return {"prior": None if prior is None else prior.mean(0).numpy(), "attention": attention.mean(0).numpy()}


def _loss(result: LikelihoodResult, length: int, where: dict[str, Any]) -> list[Measurement]:
    from goatbench.data.text.mixture_problem import best_possible
    from goatbench.metrics.likelihood import ratio_stderr

    best = best_possible(length)
    correct, count = result.window_correct, result.window_count
    values = {  # value, standard error, best possible
        "excess_nats": (result.nll_nats - best.nll_nats, result.nll_stderr, 0.0),
        "token_accuracy": (int(correct.sum()) / result.count, ratio_stderr(correct, count), best.accuracy),
        "nll_nats": (result.nll_nats, result.nll_stderr, best.nll_nats),
    }
    units = {metric.name: metric.unit for metric in METRICS}
    found = []
    for name, (value, stderr, reference) in values.items():
        found.append(
            Measurement(
                metric=name, value=value, unit=units[name], n=result.count, stderr=stderr,
                stderr_method="ratio estimator over sequences", conditions=where,
            )
        )  # fmt: skip
        found.append(Measurement(metric=name, value=reference, unit=units[name], n=result.count, conditions=where | {"reference": BEST}))
    return found


def _errors(rows: dict[str, np.ndarray | None], length: int, where: dict[str, Any]) -> list[Measurement]:
    """n counts queries; those with one key have nothing to choose."""
    from goatbench.data.text.mixture_problem import true_rows
    from goatbench.metrics.prior_parts import total_variation

    found = []
    for name, one in rows.items():
        value = None if one is None else float(total_variation(one, true_rows(length))[1:].mean())
        reason = NO_PRIOR if one is None else None
        found.append(Measurement(metric=f"{name}_error", value=value, unit="fraction", n=length - 1, reason=reason, conditions=where))
    return found


def _parts(rows: dict[str, np.ndarray | None], length: int) -> dict[str, PriorParts]:
    from goatbench.data.text.mixture_problem import true_rows
    from goatbench.metrics.prior_parts import parts_of

    return {name: parts_of(one) for name, one in {"true": true_rows(length), **rows}.items() if one is not None}


def _curves(parts: dict[str, PriorParts]) -> list[Curve]:
    """The terms of the key and of the offset, in nats."""
    found = []
    for name, one in parts.items():
        for term, x_name in (("sink", "key"), ("relative", "offset")):
            y = getattr(one, term).tolist()
            x = [float(place) for place in range(len(y))]
            found.append(Curve(name=f"{term}_term", unit="nats", x_name=x_name, x=x, y=y, n=1, conditions={"of": name}))
    return found


def _plot(folder: Path | None, attention: str, parts: dict[str, PriorParts]) -> list[str]:
    from goatbench.plots import style
    from goatbench.plots.prior_parts import prior_parts

    if folder is None:
        return []
    figure = prior_parts(parts, f"{attention}: where the answer is looked for, true and learned, at the training length")
    return [path.name for path in style.save(figure, folder / "prior_parts")]


TOY_COPY_MIXTURE = CopyMixture(
    TaskCard(
        name="toy_copy_mixture",
        version=1,
        domain="toy",
        summary="learns a known prior: tells the first token, the one before the latest, or noise",
        protocol=PROTOCOL,
        metrics=METRICS,
        primary_metric="excess_nats",
        primary_conditions={"multiple": 1, "split": "test"},
        column_condition="multiple",
        column_label="length",
        expected_time={"smoke": "under 20 s", "embedded": "under 1 minute on one CPU core", "paper": "minutes on a GPU"},
        source=(
            "own form of the toy task of arXiv 2601.15380 (GOAT), figure 1: its shares and sizes are not given, and ours asks for what "
            "attention alone can fetch"
        ),
    ),
    "goatbench.data.text.mixture_problem:COPY_MIXTURE",
)
