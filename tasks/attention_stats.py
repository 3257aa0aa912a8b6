"""Where does a trained model look? Mass on the first token and on the latest ones, entropy, distance, per layer and head.

A description of a model that another task of the same domain trained (lm_length, genome_length, needle: the weights are shared), at
its training length and beyond it. Neither end of these numbers is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.errors import UsageError
from goatbench.records.record import Curve, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import GenomeRunSpec, StoryRunSpec, TextRunSpec, ToyRunSpec

from . import babilong, genome, retrieval, text
from .causal import MAX_CURVE_POINTS, CausalTask, absent, contexts_of, device_of, out_of_range

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.data.stories.module import StoryData
    from goatbench.data.text.module import TextData
    from goatbench.data.text.synthetic import SyntheticData
    from goatbench.models.backbone import Backbone
    from goatbench.models.decoder import Decoder

MAX_WINDOWS = 64  # a mean over heads needs no more
LATEST = 128  # keys
UNIFORM = "uniform"  # the yardstick: every visible key alike
FIELDS = {  # metric -> field of AttentionStats
    "first_token_mass": "first_mass",
    "recent_mass": "recent_mass",
    "largest_mass": "max_mass",
    "sink_mass": "sink_mass",
    "entropy_nats": "entropy_nats",
    "entropy_share": "entropy_share",
    "distance": "distance",
    "distance_share": "distance_share",
    "largest_norm": "largest_norm",
}
UNITS = {"entropy_nats": "nats", "distance": "tokens", "largest_norm": "norm"}  # others: fraction
METRICS = tuple(
    Metric(
        name=name, unit=UNITS.get(name, "fraction"), direction="none", bounds=(0, None if name in UNITS else 1),
        digits=2 if name in UNITS else 1, percent=name not in UNITS,
    )
    for name in FIELDS
)  # fmt: skip
SHOWN = ("first_token_mass", "recent_mass", "entropy_share", "distance_share")  # on the map of heads
PROTOCOL = (
    "A trained model reads held-out windows of 1 and 4 training lengths (at most 64 of each, the same ends). Of the rows of attention "
    "that the model really uses, means over layers, heads and queries with two visible keys or more: mass on the first token of the "
    "window; on the latest keys (condition recent: 128, or a quarter of the training length where that is less; queries that see more); "
    "largest probability of a key; mass of a learned sink; entropy over the keys, in nats and over ln(visible keys); mean distance to a "
    "key, in tokens and over the farthest visible one. largest_norm: the largest norm of a token behind any layer. Values by layer and "
    "head are curves of the record. The reference looks at every visible key alike. Rows that do not sum to one (multi-token, "
    "differential) are refused. "
)


@dataclass(frozen=True, slots=True)
class TextAttention(text.TextTask):
    """`goatbench run task=attention_stats`."""

    def model(self, spec: TextRunSpec) -> Decoder:
        return softmax_only(CausalTask.model(self, spec))

    def check(self, spec: TextRunSpec, data: TextData) -> None:
        self._windows(spec, data)

    def _windows(self, spec: TextRunSpec, data: TextData) -> dict[int, Any]:
        e, contexts = spec.evaluation, contexts_of(spec)
        blocks = data.tiling(spec.task.split, max(contexts), e.num_targets, min(e.num_blocks, MAX_WINDOWS))
        return {context: blocks.with_context(context) for context in contexts}

    def measure(self, spec: TextRunSpec, net: Decoder, data: TextData, folder: Path | None) -> Outcome:
        return measure(spec, net, self._windows(spec, data), folder)


@dataclass(frozen=True, slots=True)
class GenomeAttention(genome.GenomeTask):
    """`goatbench run task=attention_stats_genome`."""

    def model(self, spec: GenomeRunSpec) -> Decoder:
        return softmax_only(CausalTask.model(self, spec))

    def check(self, spec: GenomeRunSpec, data: GenomeData) -> None:
        self._windows(spec, data)

    def _windows(self, spec: GenomeRunSpec, data: GenomeData) -> dict[int, Any]:
        from goatbench.data.genome.windows import same_target_windows

        e, intervals = spec.evaluation, data.intervals(spec.task.split)
        return same_target_windows(data.genome, intervals, e.num_targets, contexts_of(spec), min(e.num_blocks, MAX_WINDOWS))

    def measure(self, spec: GenomeRunSpec, net: Decoder, data: GenomeData, folder: Path | None) -> Outcome:
        return measure(spec, net, self._windows(spec, data), folder)


@dataclass(frozen=True, slots=True)
class ToyAttention(retrieval.Retrieval):
    """`goatbench run task=attention_stats_needle`."""

    def model(self, spec: ToyRunSpec) -> Decoder:
        return softmax_only(CausalTask.model(self, spec))

    def measure(self, spec: ToyRunSpec, net: Decoder, data: SyntheticData, folder: Path | None) -> Outcome:
        return measure(spec, net, {context: data.windows(spec.task.split, context) for context in contexts_of(spec)}, folder)


@dataclass(frozen=True, slots=True)
class StoryAttention(babilong.Babilong):
    """`goatbench run task=attention_stats_stories`."""

    def model(self, spec: StoryRunSpec) -> Decoder:
        if spec.data.name != "stories":
            raise UsageError(f"data={spec.data.name}: stories filled up behind the answer; attention_stats_stories takes data=stories")
        return softmax_only(CausalTask.model(self, spec))

    def measure(self, spec: StoryRunSpec, net: Decoder, data: StoryData, folder: Path | None) -> Outcome:
        return measure(spec, net, {windows.context: windows for _, windows in self._tests(spec, data)}, folder)


def softmax_only(net: Decoder) -> Decoder:
    """The net; ValueError if it has rows of attention that no softmax makes."""
    from goatbench.metrics.attention_stats import require_softmax

    require_softmax(net)
    return net


def measure(spec: Any, net: Decoder, windows: dict[int, Any], folder: Path | None) -> Outcome:
    """windows: context -> data set whose samples begin with tokens int64 [context + 1]."""
    from goatbench.progress import Progress

    base, recent = spec.model.seq_len, latest_keys(spec.model.seq_len)
    net.to(device_of(spec))
    measurements: list[Measurement] = []
    curves = []
    maps: dict[str, np.ndarray] = {}
    for context, samples in windows.items():
        where = {"multiple": context // base, "context": context, "recent": recent, "split": spec.task.split}
        if net.max_positions is not None and context > net.max_positions:
            measurements += [absent(metric, where, out_of_range(net)) for metric in METRICS]
            continue
        count = min(MAX_WINDOWS, len(samples))
        with Progress(f"attention over {context} tokens", total=count, unit="window") as bar:
            found = collect(net, [samples[place][0][:-1] for place in evenly(count, len(samples))], recent, bar)
        for metric in METRICS:
            measurements.append(measurement(metric, found[metric.name], where))
            curves += by_head(metric, found[metric.name], {"multiple": where["multiple"], "context": where["context"]})
        maps |= {f"{name}, {context} tokens": found[name].mean(0) for name in SHOWN}
        measurements += _uniform(context, recent, count, where)
    priors = _priors(net, base)
    curves += _prior_curves(priors)
    return Outcome(measurements=measurements, curves=curves, artifacts=plots(folder, spec.attention.name, maps, priors))


def latest_keys(train_length: int) -> int:
    return max(1, min(LATEST, train_length // 4))


def evenly(count: int, total: int) -> list[int]:
    """`count` places of 0 .. total - 1, each in the middle of its share."""
    return [(2 * i + 1) * total // (2 * count) for i in range(count)]


def collect(net: Backbone, inputs: Sequence[Any], recent: int, bar: Any) -> dict[str, np.ndarray]:
    """inputs: token ids [K] or images [C, h, w]. metric -> [inputs, layers, heads]; of largest_norm [inputs, layers]."""
    import numpy as np

    from goatbench.metrics.attention_stats import attention_stats

    device = next(net.parameters()).device
    found: dict[str, list[np.ndarray]] = {name: [] for name in FIELDS}
    for one in inputs:
        stats = attention_stats(net, one[None].to(device), recent)
        for name, field in FIELDS.items():
            found[name].append(getattr(stats, field).numpy())
        bar.advance()
    return {name: np.stack(values) for name, values in found.items()}


def measurement(metric: Metric, values: np.ndarray, where: dict[str, Any]) -> Measurement:
    """The mean over layers, heads and inputs; of norms the largest."""
    n = len(values)
    if metric.name == "largest_norm":
        return Measurement(metric=metric.name, value=float(values.max()), unit=metric.unit, n=n, conditions=where)
    by_window = values.mean((1, 2))
    if math.isnan(by_window[0]):
        return absent(metric, where, f"not applicable: no query sees more than {where['recent']} keys")
    return Measurement(
        metric=metric.name, value=float(by_window.mean()), unit=metric.unit, n=n, conditions=where,
        stderr=float(by_window.std(ddof=1)) / math.sqrt(n) if n > 1 else None, stderr_method="windows" if n > 1 else None,
    )  # fmt: skip


def _uniform(context: int, recent: int, count: int, where: dict[str, Any]) -> list[Measurement]:
    """What attention to every visible key alike gives, in closed form: query n - 1 sees n keys."""
    seen = range(2, context + 1)
    mean = lambda values: sum(values) / len(values)
    values = {
        "first_token_mass": mean([1 / n for n in seen]),
        "largest_mass": mean([1 / n for n in seen]),
        "sink_mass": 0.0,
        "entropy_nats": mean([math.log(n) for n in seen]),
        "entropy_share": 1.0,
        "distance": mean([(n - 1) / 2 for n in seen]),
        "distance_share": 0.5,
    }
    if context > recent:
        values["recent_mass"] = mean([recent / n for n in range(recent + 1, context + 1)])
    where = {**where, "reference": UNIFORM}
    units = {metric.name: metric.unit for metric in METRICS}
    return [Measurement(metric=name, value=value, unit=units[name], n=count, conditions=where) for name, value in values.items()]


def by_head(metric: Metric, values: np.ndarray, place: dict[str, Any]) -> list[Curve]:
    """Means over inputs by head, one curve a layer; of norms the largest, by layer. place: conditions of the curves."""
    if metric.name == "largest_norm":
        y = values.max(0).tolist()
        x = [float(layer) for layer in range(len(y))]
        return [Curve(name=metric.name, unit=metric.unit, x_name="layer", x=x, y=y, n=len(values), conditions=place)]
    mean = values.mean(0)
    if math.isnan(mean[0, 0]):
        return []
    x = [float(head) for head in range(mean.shape[1])]
    return [
        Curve(name=metric.name, unit=metric.unit, x_name="head", x=x, y=y, n=len(values), conditions={**place, "layer": layer})
        for layer, y in enumerate(mean.tolist())
    ]


def _priors(net: Decoder, length: int) -> np.ndarray | None:
    from goatbench.metrics.prior_curves import prior_curves

    found = prior_curves(net, length)
    return None if found is None else found.numpy()


def _prior_curves(priors: np.ndarray | None) -> list[Curve]:
    """ln p by offset at the training length, at no more than 128 offsets."""
    if priors is None:
        return []
    offsets = range(0, priors.shape[-1], math.ceil(priors.shape[-1] / MAX_CURVE_POINTS))
    return [
        Curve(
            name="log_prior", unit="nats", x_name="offset", x=[float(at) for at in offsets], n=1,
            y=[float(heads[head, at]) for at in offsets], conditions={"layer": layer, "head": head},
        )
        for layer, heads in enumerate(priors)
        for head in range(len(heads))
    ]  # fmt: skip


def plots(folder: Path | None, attention: str, maps: dict[str, np.ndarray], priors: np.ndarray | None = None) -> list[str]:
    """Writes the map of heads, and the priors if there are any ([L, H, offsets] or [L, H, height, width]), as PNG and SVG; the names of
    the files."""
    from goatbench.plots import attention_maps, style

    if folder is None or not maps:
        return []
    figures = {"attention_by_head": attention_maps.head_maps(maps, f"{attention}: where attention goes (%)")}
    if priors is not None and priors.ndim == 3:
        figures["prior_by_offset"] = attention_maps.prior_figure(priors, f"{attention}: the prior of the last token at the training length")
    elif priors is not None:
        figures["prior_by_patch"] = attention_maps.prior_map_figure(priors, f"{attention}: the prior of the patch in the middle")
    return [path.name for name, figure in figures.items() for path in style.save(figure, folder / name)]


def card(name: str, domain: str, of: str, training: str, source: str) -> TaskCard:
    return TaskCard(
        name=name,
        version=1,
        domain=domain,
        summary=f"where the model of {of} looks: first token, latest tokens, entropy, distance, per layer and head",
        protocol=training + PROTOCOL,
        metrics=METRICS,
        primary_metric="first_token_mass",
        primary_conditions={"multiple": 1, "split": "test"},
        column_condition="multiple",
        column_label="context",
        expected_time={"smoke": "under 20 s", "embedded": "half a minute after training", "paper": "minutes on one GPU after training"},
        source=f"{source}; arXiv 2309.17453 (StreamingLLM: mass on the first token), arXiv 2402.17762 (massive activations)",
    )


ATTENTION_STATS = TextAttention(card("attention_stats", "text", "lm_length", text.TRAINING, text.SOURCE))
ATTENTION_STATS_GENOME = GenomeAttention(card("attention_stats_genome", "genome", "genome_length", genome.TRAINING, genome.SOURCE))
ATTENTION_STATS_NEEDLE = ToyAttention(
    card("attention_stats_needle", "toy", "needle", retrieval.TRAINING, retrieval.OWN), f"{retrieval.PROBLEMS}:needle_of"
)
ATTENTION_STATS_STORIES = StoryAttention(
    card("attention_stats_stories", "stories", "babilong", babilong.TRAINING, babilong.BABILONG.card.source)
)
