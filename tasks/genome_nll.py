"""How well is the next base predicted? NLL on other chromosomes than the one trained on, beside what n-gram counts reach.

A number of bits per base says nothing alone: on human DNA an order-2 Markov model has 1.92, an interpolated one of orders 0..12
trained on a few Mb about 1.9, on a whole chromosome 1.75. They are rows of the board, counted on the same training bases and
scored on the same targets with the same context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from goatbench.records.record import Cost, Examples, Measurement, Metric, Outcome, TaskCard
from goatbench.spec import GenomeRunSpec

from .causal import BATCH_METHOD, position_curve, unit_contradictions
from .genome import SOURCE, TRAINING, GenomeTask, codes_of, evaluate, letters_note, markov_models, write_inputs

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.data.genome.windows import EvaluationWindows
    from goatbench.metrics.markov import MarkovModel
    from goatbench.models.decoder import Decoder
    from goatbench.training.evaluate_lm import LikelihoodResult

LN2 = math.log(2)
MASKED = REPEAT, NON_REPEAT = "repeat", "non-repeat"
TOO_GOOD_BITS, TOO_GOOD_CONTEXT = 1.6, 1024  # what compressors reach on euchromatin; below it suspect a leak or scored N

METRICS = (
    Metric(name="bits_per_base", unit="bits", direction="lower", chance=2.0, bounds=(0, None), digits=4, counted="bases"),
    Metric(name="nll_nats", unit="nats", direction="lower", chance=math.log(4), bounds=(0, None), digits=4, counted="bases"),
    Metric(name="perplexity", unit="bases", direction="lower", chance=4.0, bounds=(1, None), digits=3, counted="bases"),
    Metric(name="accuracy", unit="fraction", direction="higher", chance=0.25, bounds=(0, 1), percent=True, counted="bases"),
    Metric(name="other_mass", unit="fraction", direction="lower", bounds=(0, 1), digits=4, percent=True, counted="bases"),
    Metric(name="bits_both_strands", unit="bits", direction="lower", chance=2.0, bounds=(0, None), digits=4, counted="bases"),
)

PROTOCOL = (
    TRAINING + "Every base of the evaluated windows (a tiling without overlap, context at most the training length) is a target once; N "
    "never is. One token-weighted sum over all targets gives nats, bits and perplexity; other_mass is the softmax mass on what is not "
    "A C G T; bits_both_strands averages over both strands of the same windows. Columns are regions: all test bases, each region, "
    "and repeats and non-repeats, of the split `masked` where the data have one (embedded: 210 kb of GRCh38 chr16; the test slices have "
    "no soft mask), else of the test bases. References: uniform, Markov models of fixed order and interpolated over orders 0 to 12, "
    "counted on all training bases (a run reads as many windows of them as its budget says), smoothed on the same validation bases, "
    "with the windows' context only. Held-out chromosomes still share repeats and duplications with the training sequence. At scale "
    "embedded the sequence is a few Mb of GRCh37 chr20, tested on slices of chr3 and chr5: it does not stand for the genome."
)


class Part(NamedTuple):
    """Sums over the targets of one region; None: not known for it."""

    region: str
    nll: float  # nats
    count: int
    stderr: float | None  # of the mean nll
    correct: float | None
    other: float | None  # softmax mass on what is no target
    both: float | None  # mean nll over both strands, in nats


@dataclass(frozen=True, slots=True)
class GenomeNll(GenomeTask):
    """`goatbench run task=genome_nll`."""

    def check(self, spec: GenomeRunSpec, data: GenomeData) -> None:
        _windows(data, spec.task.split)

    def measure(self, spec: GenomeRunSpec, net: Decoder, data: GenomeData, folder: Path | None) -> Outcome:
        split = spec.task.split
        windows, masked = _windows(data, split)
        forward, other = _both_strands(spec, net, data, windows, split)
        parts = list(_window_parts(data, windows, split, forward, other))
        if masked is not windows:
            parts += _masked_parts(evaluate(spec, net, data, masked, "scoring repeats"))
        else:
            parts += _masked_parts(forward)
        measurements = [m for part in parts for m in _measurements(part, {"split": split})]
        for name, model in {"uniform": None, **markov_models(spec, data)}.items():
            for part in _reference_parts(model, data, windows, masked, split, spec.evaluation.both_strands):
                measurements += _measurements(part, {"split": split, "reference": name})
        costs = [
            Cost(name="eval_bases_per_second", value=forward.tokens_per_second, unit="bases/s", method=forward.tokens_per_second_method),
            Cost(name="eval_peak_memory_bytes", value=forward.peak_memory_bytes, unit="bytes", method=forward.peak_memory_method),
            Cost(name="eval_batch_size", value=forward.batch_size, unit="windows", method=BATCH_METHOD),
        ]
        curves = [position_curve("bits_per_base", "context", forward, {"region": split})]
        notes, artifacts = [letters_note(data), *_too_good(spec, parts[0])], write_inputs(folder, data)
        examples = list(_examples(data, windows, split, forward))
        return Outcome(measurements=measurements, costs=costs, curves=curves, artifacts=artifacts, notes=notes, examples=examples)

    def contradictions(self, measurements: list[Measurement]) -> Iterator[str]:
        yield from unit_contradictions(measurements)
        yield from _pooled(measurements)


def _pooled(measurements: list[Measurement]) -> Iterator[str]:
    """The whole split is its regions put together."""
    for name in {m.conditions.get("reference") for m in measurements}:
        nats = {m.conditions["region"]: m for m in measurements if m.metric == "nll_nats" and m.conditions.get("reference") == name}
        whole = next((nats[m.conditions["split"]] for m in nats.values() if m.conditions["split"] in nats), None)
        regions = [m for region, m in nats.items() if whole is not None and region not in (whole.conditions["region"], *MASKED)]
        if whole is None or not regions:
            continue
        n, mean = sum(m.n for m in regions), sum(m.n * m.value for m in regions) / max(1, sum(m.n for m in regions))
        if n != whole.n or not math.isclose(mean, whole.value, rel_tol=1e-6):
            who = f" of {name}" if name else ""
            yield f"the regions{who} pool to {mean:g} nats over {n} bases, the whole says {whole.value:g} over {whole.n}"


def _windows(data: GenomeData, split: str) -> tuple[EvaluationWindows, EvaluationWindows]:
    """(of the split, those that tell repeats apart: of the split `masked` where there is one)."""
    windows = data.windows(split)
    return windows, data.windows("masked") if split == "test" and data.has_split("masked") else windows


def _both_strands(
    spec: GenomeRunSpec, net: Decoder, data: GenomeData, windows: EvaluationWindows, name: str
) -> tuple[LikelihoodResult, LikelihoodResult | None]:
    forward = evaluate(spec, net, data, windows, f"scoring {name}")
    if not spec.evaluation.both_strands:
        return forward, None
    return forward, evaluate(spec, net, data, windows.on_other_strand(), f"scoring {name}, other strand")


def _window_parts(
    data: GenomeData, windows: EvaluationWindows, split: str, forward: LikelihoodResult, other: LikelihoodResult | None
) -> Iterator[Part]:
    """All windows, and those of each region where there are several."""
    from goatbench.metrics.likelihood import ratio_stderr

    for region, chosen in _regions(data, windows, split):
        nll, count = forward.window_nll[chosen], forward.window_count[chosen]
        both = None
        if other is not None:
            both = (nll.sum() + other.window_nll[chosen].sum()) / (count.sum() + other.window_count[chosen].sum())
        is_whole = region == split
        correct = int(forward.window_correct[chosen].sum())
        mass = forward.unscored_mass_total if is_whole else None
        yield Part(region, float(nll.sum()), int(count.sum()), ratio_stderr(nll, count), correct, mass, both)


def _examples(data: GenomeData, windows: EvaluationWindows, split: str, forward: LikelihoodResult) -> Iterator[Examples]:
    """Bits a base of each window, weighted by its bases, of the whole split and of each region."""
    for region, chosen in _regions(data, windows, split):
        chosen = chosen & (forward.window_count > 0)
        nll, count = forward.window_nll[chosen], forward.window_count[chosen]
        yield Examples("bits_per_base", {"split": split, "region": region}, (nll / LN2 / count).astype("float32"), count)


def _masked_parts(result: LikelihoodResult) -> Iterator[Part]:
    """Soft-masked bases (repeats) and the others, where there are both."""
    if result.masked_count and result.masked_count < result.count:
        yield Part(REPEAT, result.masked_nll_total, result.masked_count, None, None, None, None)
        rest = float(result.window_nll.sum()) - result.masked_nll_total
        yield Part(NON_REPEAT, rest, result.count - result.masked_count, None, None, None, None)


def _reference_parts(
    model: MarkovModel | None, data: GenomeData, windows: EvaluationWindows, masked: EvaluationWindows, split: str, both_strands: bool
) -> Iterator[Part]:
    """The same regions for a yardstick; None: the uniform distribution, right once in four times."""
    import numpy as np

    from goatbench.data.genome.codes import MASK
    from goatbench.metrics.likelihood import ratio_stderr

    codes = codes_of(windows)
    nll, correct = _scores(model, codes)
    other = _scores(model, codes_of(windows.on_other_strand()))[0] if both_strands else None
    for region, chosen in _regions(data, windows, split):
        totals, counts = nll[chosen].sum(1), np.full(int(chosen.sum()), nll.shape[1])
        both = None if other is None else float((totals.sum() + other[chosen].sum()) / (2 * counts.sum()))
        stderr = None if model is None else ratio_stderr(totals, counts)
        right = counts.sum() / 4 if model is None else int(correct[chosen].sum())
        yield Part(region, float(totals.sum()), int(counts.sum()), stderr, right, 0.0, both)
    codes = codes_of(masked)
    is_masked = (codes[:, 1:] & MASK) != 0
    if is_masked.any() and not is_masked.all():
        nll = nll if masked is windows else _scores(model, codes)[0]
        for region, flags in ((REPEAT, is_masked), (NON_REPEAT, ~is_masked)):
            yield Part(region, float(nll[flags].sum()), int(flags.sum()), None, None, None, None)


def _scores(model: MarkovModel | None, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(nll [n, L] in nats, is the target the most probable base [n, L])."""
    import numpy as np

    from goatbench.metrics.markov import window_correct, window_nll

    if model is None:
        shape = len(codes), codes.shape[1] - 1
        return np.full(shape, math.log(4)), np.zeros(shape, bool)
    return window_nll(model, codes), window_correct(model, codes)


def _regions(data: GenomeData, windows: EvaluationWindows, split: str) -> Iterator[tuple[str, np.ndarray]]:
    """(name, which windows) of the whole split and of its regions; the whole alone where it has one region."""
    import numpy as np

    from goatbench.data.genome.module import regions_of

    of_window = regions_of(windows, data.intervals(split))
    yield split, np.ones(len(of_window), bool)
    names = list(dict.fromkeys(of_window.tolist()))
    if len(names) > 1:
        for name in names:
            yield name, of_window == name


def _measurements(part: Part, conditions: dict[str, Any]) -> Iterator[Measurement]:
    where = {**conditions, "region": part.region}
    nats = part.nll / part.count
    method = "ratio estimator over windows" if part.stderr is not None else None

    def one(metric: str, value: float | None, unit: str, factor: float | None = None) -> Measurement:
        stderr = factor * part.stderr if factor is not None and part.stderr is not None else None
        reason = None if value is not None else "not applicable: not measured for this region apart"
        n, kind = part.count, method if stderr is not None else None
        return Measurement(metric=metric, value=value, unit=unit, n=n, stderr=stderr, stderr_method=kind, reason=reason, conditions=where)

    yield one("bits_per_base", nats / LN2, "bits", 1 / LN2)
    yield one("nll_nats", nats, "nats", 1.0)
    yield one("perplexity", math.exp(nats), "bases", math.exp(nats))
    yield one("accuracy", None if part.correct is None else part.correct / part.count, "fraction")
    yield one("other_mass", None if part.other is None else part.other / part.count, "fraction")
    yield one("bits_both_strands", None if part.both is None else part.both / LN2, "bits")


def _too_good(spec: GenomeRunSpec, whole: Part) -> list[str]:
    """A warning where a number is better than it can be. Over a whole split only: repeats alone may well be below."""
    best = whole.nll / whole.count / LN2
    if best >= TOO_GOOD_BITS or spec.model.seq_len > TOO_GOOD_CONTEXT:
        return []
    return [f"WARNING: {best:.3f} bits per base at a context of {spec.model.seq_len} is below {TOO_GOOD_BITS}: suspect a leak or repeats"]


def _card(name: str, summary: str, split: str, expected_time: dict[str, str]) -> GenomeNll:
    return GenomeNll(
        TaskCard(
            name=name,
            version=1,
            domain="genome",
            summary=summary,
            protocol=PROTOCOL,
            metrics=METRICS,
            primary_metric="bits_per_base",
            primary_conditions={"region": split, "split": split},
            column_condition="region",
            expected_time=expected_time,
            source=SOURCE,
        )
    )


GENOME_NLL = _card(
    "genome_nll",
    "next-base NLL on held-out chromosomes, beside Markov models",
    "test",
    {"smoke": "under 20 s", "embedded": "about 5 minutes on one CPU core", "paper": "a day on 8 GPUs (25M parameters, hg38)"},
)
GENOME_TUNING = _card(
    "genome_tuning",
    "next-base NLL on validation: chooses learning rates",
    "validation",
    {"smoke": "under 20 s", "embedded": "about 2 minutes on one CPU core", "paper": "hours on 8 GPUs"},
)
