"""The lines below a board: how to read it, what is and is not significant, and everything that was left out or went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .board import Row
from .canonical import canonical_json
from .costs import PARETO, cost_classes, cost_columns
from .files import one_line
from .grouping import Group, differing_fields
from .ranking import ALPHA, MAX_ALL_PAIRS, Comparison, Ranking
from .record import Metric, TaskCard
from .statistics import t_quantile

MAX_LISTED = 20
UNNAMED = {"protocol.classes": "all"}  # fields that a record has only where they are anything else


def notes_of(
    card: TaskCard,
    metric: Metric,
    group: Group,
    groups: list[Group],
    rows: list[Row],
    headline: str | None,
    ranking: Ranking,
) -> list[str]:
    """In this order: reading, sameness, significance, exclusions, failures."""
    return [
        *_split(group, groups),
        _reading(card, metric, group, headline),
        *_spread(group, rows),
        *_significance(metric, headline, ranking),
        *_marks(card, rows),
        *_costs(group, rows),
        _shared(group),
        *_same_everywhere(group),
        *_mixed_sources(group),
        *_models(group),
        *_missing(group, metric),
        *_failed(group),
        *_superseded(group),
    ]


def _split(group: Group, groups: list[Group]) -> Iterable[str]:
    if len(groups) > 1:
        place = next(index for index, other in enumerate(groups, 1) if other is group)
        names = differing_fields(groups)
        values = "; ".join(f"{name} = {_plain(group.key.get(name, UNNAMED.get(name, 'unknown')))}" for name in names)
        yield f"board {place} of {len(groups)}: runs that differ in {', '.join(names)} are not compared. Here: {values}"


def _reading(card: TaskCard, metric: Metric, group: Group, headline: str | None) -> str:
    unit = "percent" if metric.percent else metric.unit
    parts = [f"{metric.name} in {unit}, {metric.reading}"]
    chance = metric.chance_at(group.key["scale"])
    if chance is not None:
        parts.append(f"chance is {metric.text(chance)}")
    if counts := _counts(metric, group):
        listed = (f"{n:,}" + "".join(f" (of {number:,} examples)" for number in numbers) for n, numbers in sorted(counts.items()))
        parts.append(f"n = {' or '.join(listed)} {metric.counted} a cell")
    if card.column_label and card.column_label != card.column_condition:
        parts.append(f"columns: {card.column_label} ({card.column_condition})")
    parts += _plain_rows(card, group)
    if headline is not None:
        parts.append(f"sorted by {headline[:-1]}")
    return "; ".join(parts)


def _counts(metric: Metric, group: Group) -> dict[int, set[int]]:
    """The n of cells; where it counts parts of examples, in how many of them, as far as the runs have stored single scores."""
    counts: dict[int, set[int]] = {}
    for sample in group.samples:
        arrays = sample.record.examples.arrays if sample.record.examples is not None and metric.counted != "examples" else []
        stored = [array for array in arrays if array.metric == metric.name]
        for m in sample.cells.values():
            if m.value is not None:
                numbers = counts.setdefault(m.n, set())
                numbers.update(array.num_examples for array in stored if array.conditions == m.conditions)
    return {n: numbers if len(numbers) == 1 else set() for n, numbers in counts.items()}


def _plain_rows(card: TaskCard, group: Group) -> Iterable[str]:
    """Under which value of a row condition a row bears no mark of it, where other values are rows beside it."""
    for name, headline in card.headline_rows.items():
        found = {m.conditions[name] for sample in group.samples for m in sample.cells.values() if name in m.conditions}
        if (plain := found & set(headline)) and plain != found:
            yield f"rows without {name} in brackets: {name} {' or '.join(sorted(map(_plain, plain)))}"


def _spread(group: Group, rows: list[Row]) -> Iterable[str]:
    seeds = sorted({len(row.finished) for row in group.rows.values() if len(row.finished) > 1})
    if seeds:
        widths = ", ".join(f"{t_quantile(0.975, n - 1) / math.sqrt(n):.2f} sd at {n}" for n in seeds)
        yield f"mean ± standard deviation over seeds; half width of the 95 % t interval of a mean: {widths} seeds"
    if any(cell.summary is not None and cell.summary.n == 1 for row in rows if not row.is_reference for cell in row.cells.values()):
        yield "±?: one seed, its spread is unknown and the row is not ranked on it"


def _significance(metric: Metric, headline: str | None, ranking: Ranking) -> Iterable[str]:
    if headline is None:
        return
    if metric.direction == "none":
        yield "a description, no score: rows are sorted, not ranked"
        return
    if not ranking.labels:
        yield "no plain row that may be ranked has two seeds: nothing can be said about significance, and nothing is ranked"
        return
    best, comparisons = next(iter(ranking.labels)), ranking.against_best
    rivals = f"{best} alone" if len(ranking.labels) > MAX_ALL_PAIRS else "all ranked rows, Holm-adjusted for each"
    yield (
        f"rank: the places a row can have, a {100 * (1 - ALPHA):.0f} % interval for each row by itself: paired t tests by seed at "
        f"{headline[:-1]} against {rivals}; variants (adjusted apart) and controls are not ranked"
    )
    tested = [c for c in comparisons if c.p_adjusted is not None]
    alike, apart = [c for c in tested if not c.is_told_apart], [c for c in tested if c.is_told_apart]
    for text, found in ((f"not distinguishable from {best}, the best plain row", alike), (f"different from {best}", apart)):
        yield f"{text}: " + (_listed(_difference(metric, c) for c in found) if found else "none")
    if ranking.num_untested:
        yield (
            f"{ranking.num_untested:,} of {ranking.num_pairs:,} pairs of ranked rows cannot be tested (the same difference in every seed, "
            "or fewer than two common seeds); for ranks they are not told apart"
        )
    same = [c for c in comparisons if c.p_adjusted is None and c.difference is not None and c.difference.n > 1]
    if same:
        yield f"cannot be tested against {best} (the same difference in every seed): {_listed(_difference(metric, c) for c in same)}"
    lonely = [c.name for c in comparisons if c.difference is None or c.difference.n < 2]
    if lonely:
        yield f"not tested against {best} (fewer than two common seeds): {_listed(lonely)}"
    pairs = min((c.difference.n for c in tested if c.difference is not None), default=0)
    if 0 < pairs < 5:
        half = t_quantile(0.975, pairs - 1) / math.sqrt(pairs)
        yield (
            f"with {pairs} seeds the 95 % interval of a paired difference is {half:.2f} times its sd wide each way: "
            "'not distinguishable' means too few seeds to tell, not equal"
        )


def _difference(metric: Metric, comparison: Comparison) -> str:
    """'rope (-1.2, p = 0.15)', 'rope (-1.2)' without a test."""
    assert comparison.difference is not None
    p = "" if comparison.p_adjusted is None else f", p = {comparison.p_adjusted:.2g}"
    return f"{comparison.name} ({metric.text(metric.sign * comparison.difference.mean, '+')}{p})"


def _marks(card: TaskCard, rows: list[Row]) -> Iterable[str]:
    if card.learned is not None and any(row.is_unlearned for row in rows):
        test = card.learned
        yield f"not learned: mean {test.metric} at {test.value}x below {test.at_least:g}; what it does elsewhere says nothing, not ranked"
    if any(row.is_local for row in rows):
        yield "*: with runs of this machine that are not submitted"
    if any(row.is_control for row in rows):
        yield "control: shown for comparison, not ranked and not tested"
    if any(row.is_reference for row in rows):
        yield "reference: a yardstick without attention, worked out on the same training data and scored on the same examples; not ranked"


def _costs(group: Group, rows: list[Row]) -> Iterable[str]:
    """What the mark of the costs means, or why there is none."""
    classes = cost_classes(group)
    if any(row.is_pareto for row in rows):
        yield f"{PARETO}: no other ranked row or variant is both better and cheaper to train (means; their spread is not counted)"
    if len(classes) > 1:
        columns = cost_columns(classes)
        listed = "; ".join(f"{column.head}: {kind}" for kind, column in columns.items())
        more = f"; {len(classes) - len(columns)} more kinds are in no column" if len(classes) > len(columns) else ""
        told = "costs of different hardware or methods are not comparable: a column each, and no mark for what is not dominated"
        yield one_line(f"{told}: {listed}{more}", 1500)


def _shared(group: Group) -> str:
    """Scale, data, budget and protocol that all rows share."""
    sample = next(group.samples, None)
    parts = []
    if sample is not None and sample.record.data is not None:
        data = sample.record.data
        counts = ", ".join(f"{count:,} {split}" for split, count in sorted(data.counts.items()))
        parts.append(f"data {data.name} ({data.source}; {counts}; fingerprint {data.fingerprint[:8]})")
    for kind in ("budget", "protocol", "condition"):
        values = {name.partition(".")[2]: value for name, value in sorted(group.key.items()) if name.startswith(f"{kind}.")}
        if values:
            parts.append(f"{kind} " + ", ".join(f"{name} {_plain(value)}" for name, value in values.items()))
    return "all rows: " + ("; ".join(parts) if parts else "nothing known, every run failed")


def _same_everywhere(group: Group) -> Iterable[str]:
    """What has no column because it is the same for all rows."""
    models = [sample.record.model for sample in group.samples if sample.record.model is not None]
    kernels = {(model.kernel_train, model.kernel_eval) for model in models}
    sources = {sample.record.training.learning_rate_source.partition(":")[0] for sample in group.samples if sample.record.training}
    parts = []
    if len(kernels) == 1:
        train, evaluation = next(iter(kernels))
        parts.append(f"kernel {train}" + ("" if train == evaluation else f" in training, {evaluation} in evaluation"))
    if len(sources) == 1:
        parts.append(f"learning rate {next(iter(sources))}")
    if parts:
        yield "; ".join(parts)
    sizes = sorted({model.params_total for model in models})
    if sizes and sizes[-1] > 1.01 * sizes[0]:
        yield f"parameter counts differ by {100 * (sizes[-1] / sizes[0] - 1):.1f} %: see the column"


def _mixed_sources(group: Group) -> Iterable[str]:
    codes = sorted({sample.record.code.source_hash[:8] for sample in group.samples})
    if len(codes) > 1:
        yield f"runs come from {len(codes)} states of the code: {_listed(codes)}"
    if any(sample.record.code.dirty for sample in group.samples):
        yield "some runs were made with uncommitted changes in the code"


def _models(group: Group) -> Iterable[str]:
    """What records note about a row's model, with the rows that it is said of."""
    said: dict[str, list[str]] = {}
    for name in sorted(group.rows):
        notes = {note for sample in group.rows[name].finished if sample.record.model is not None for note in sample.record.model.notes}
        for note in sorted(notes):
            said.setdefault(note, []).append(name)
    yield from (one_line(f"{_listed(names)}: {note}", 1500) for note, names in said.items())


def _missing(group: Group, metric: Metric) -> Iterable[str]:
    """Reasons of the cells without a value: one line for each reason and columns, with the rows that it holds for."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in sorted(group.rows):
        reasons: dict[str, set[str]] = {}
        for sample in group.rows[name].finished:
            for value, measurement in sample.cells.items():
                if measurement.reason is not None:
                    reasons.setdefault(measurement.reason, set()).add(f"{value}")
        for reason, values in sorted(reasons.items()):
            columns = ", ".join(sorted(values, key=lambda column: (len(column), column)))
            found.setdefault((columns, reason), []).append(name)
    yield from (one_line(f"n/a: {_listed(names)} at {where}: {reason}", 1500) for (where, reason), names in found.items())


def _failed(group: Group) -> Iterable[str]:
    for name in sorted(group.rows):
        for sample in group.rows[name].failed:
            record = sample.record
            assert record.error is not None
            how = "" if record.ending == "refused" else f"{record.status}: {record.error.kind}: "
            word = "refused" if record.ending == "refused" else "failed"
            yield one_line(f"{word}: {name} seed {record.seed}: {how}{record.error.message}")


def _superseded(group: Group) -> Iterable[str]:
    runs = set().union(*(row.superseded for row in group.rows.values()))
    if runs:
        yield f"{len(runs)} run{'s' if len(runs) > 1 else ''} superseded by a newer finished one of the same row and seed"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _plain(value) -> str:
    return value if isinstance(value, str) else canonical_json(value)
