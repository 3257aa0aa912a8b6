"""Does a record agree with itself? What `submit` asks before a record is published.

Nobody can tell an invented score from a measured one by looking; but a record whose row, scale, seed or hash is not that of its
configuration, or whose numbers its task could not have made, was edited or mixed up, and is refused.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from statistics import NormalDist

from pydantic import ValidationError

from .errors import UsageError
from .records.canonical import canonical_json
from .records.files import one_line
from .records.record import Curve, Measurement, RunRecord, Status, TaskCard
from .records.statistics import BINOMIAL, WILSON, wilson_interval
from .registry import load_plugins, tasks, unknown
from .spec import RUN_SPECS

Z = NormalDist().inv_cdf(0.975)
NEEDS_PATH = {"split": ("split_file", ("file",))}  # of data; a record holds no path
ROUNDING = 1e-4  # relative, of a standard error


def verify(record: RunRecord) -> None:
    """UsageError in one line that names the first contradiction."""
    load_plugins()
    if record.status is Status.INTERRUPTED:
        raise UsageError(f"run {record.run_id} was interrupted: that is no result, run it again")
    for problem in (*_against_config(record), *_against_card(record)):
        raise UsageError(one_line(f"run {record.run_id} contradicts itself: {problem}"))


def _against_config(record: RunRecord):
    try:
        if record.domain not in RUN_SPECS:
            yield unknown("domain", record.domain, RUN_SPECS)
            return
        data = found if isinstance(found := record.config.get("data"), dict) else {}
        paths = {path: "somewhere" for key, (path, values) in NEEDS_PATH.items() if data.get(key) in values}
        spec = RUN_SPECS[record.domain].model_validate_json(json.dumps(record.config | {"data": data | paths}))
    except ValidationError as error:
        first = error.errors()[0]
        yield f"config.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return
    for name, said, configured in (
        ("task", record.task.name, spec.task.name),
        ("scale", record.scale, spec.scale),
        ("domain", record.domain, spec.domain),
        ("attention", record.row.attention, spec.attention.name),
        ("seed", record.seed, spec.seed),
    ):
        if said != configured:
            yield f"{name} is {said}, its config says {configured}"
    if record.config_hash not in (spec.config_hash, spec.earlier_config_hash):
        yield f"config_hash is {record.config_hash}, its config gives {spec.config_hash}"
    if record.run_id.split("-")[1] != record.config_hash[:8]:
        yield f"the run id does not carry config_hash {record.config_hash[:8]}"
    if record.finished_at is not None and datetime.fromisoformat(record.finished_at) < datetime.fromisoformat(record.started_at):
        yield f"it finished at {record.finished_at}, before it started at {record.started_at}"
    if record.budget is not None and (record.budget.epochs, record.budget.batch_size) != (spec.training.epochs, spec.training.batch_size):
        yield f"budget {record.budget.epochs} epochs of batch {record.budget.batch_size} is not that of its config"
    if record.training is not None and record.training.learning_rate != spec.learning_rate:
        yield f"learning rate {record.training.learning_rate:g} is not that of its config, {spec.learning_rate:g}"


def _against_card(record: RunRecord):
    if record.task.name not in tasks:
        yield unknown("task", record.task.name, tasks.names())
        return
    task = tasks.get(record.task.name)
    card = task.card
    if record.task.version > card.version:
        yield f"{card.name} has no version {record.task.version}, its newest is {card.version}"
    if record.status is not Status.OK or record.task.version != card.version:
        return
    known = {metric.name: metric for metric in getattr(task, "metrics_of", lambda protocol: card.metrics)(record.protocol)}
    for m in record.measurements:
        if m.metric not in known:
            yield f"{card.name} has no metric {m.metric}; it has {', '.join(known)}"
        elif m.unit != known[m.metric].unit:
            yield f"{m.metric} is in {m.unit}, {card.name} measures it in {known[m.metric].unit}"
        elif m.value is not None:
            yield from _value(m, known[m.metric].bounds, record)
            yield from _standard_error(m)
    yield from gaps(record.measurements, card)
    yield from _headline(record.measurements, card)
    yield from _depths(record)
    yield from getattr(task, "contradictions", lambda measurements: ())(record.measurements)


def _value(m: Measurement, bounds: tuple[float | None, float | None] | None, record: RunRecord):
    low, high = bounds or (None, None)
    if (low is not None and m.value < low) or (high is not None and m.value > high):
        yield f"{m.metric} = {m.value:g} lies outside {low} .. {high}"
    if m.n < 1:
        yield f"{m.metric} = {m.value:g} was measured on no example"
    split = m.conditions.get("split")
    if record.domain != "vision" or record.data is None:  # elsewhere an example of the data has many that are scored
        return
    if split in record.data.counts and m.n != record.data.counts[split]:
        yield f"{m.metric} counts {m.n} examples, the {split} split has {record.data.counts[split]}"


def _standard_error(m: Measurement) -> Iterator[str]:
    """Of a share of n examples it follows from the two: a score that was edited alone does not fit its own."""
    if m.stderr_method not in (WILSON, BINOMIAL) or m.n < 1 or not 0 <= m.value <= 1:
        return
    if m.stderr is None:
        yield f"{m.metric} = {m.value:g} under {canonical_json(m.conditions)} has no standard error, but names its method"
        return
    right = round(m.value * m.n)
    if not math.isclose(m.value * m.n, right, rel_tol=1e-6, abs_tol=1e-6):  # single precision leaves seven digits
        yield f"{m.metric} = {m.value:g} under {canonical_json(m.conditions)} is no share of {m.n} examples"
        return
    low, high = wilson_interval(right, m.n)
    expected = (high - low) / (2 * Z) if m.stderr_method == WILSON else math.sqrt(m.value * (1 - m.value) / m.n)
    if not math.isclose(m.stderr, expected, rel_tol=ROUNDING, abs_tol=1e-7):
        yield (
            f"{m.metric} = {m.value:g} of {m.n} examples under {canonical_json(m.conditions)} has the standard error {expected:.4g} "
            f"({m.stderr_method}), the record says {m.stderr:.4g}"
        )


def _depths(record: RunRecord) -> Iterator[str]:
    """Scores by depth pool to the score that they are part of, each depth with as many examples, inside its own interval."""
    measured = {(m.metric, canonical_json(m.conditions)): m for m in record.measurements if m.value is not None}
    curves = [curve for curve in record.curves if curve.x_name == "depth"]
    bounds = {(curve.name, canonical_json(curve.conditions)): curve for curve in curves}
    for curve in curves:
        where = {key: value for key, value in curve.conditions.items() if key != "bound"}
        whole = measured.get((curve.name, canonical_json(where)))
        if curve.conditions.get("bound") != "estimate" or not curve.y:
            continue
        if whole is not None and curve.n * len(curve.y) == whole.n:
            mean = math.fsum(curve.y) / len(curve.y)
            if not math.isclose(mean, whole.value, rel_tol=1e-6, abs_tol=1e-9):
                yield f"{curve.name} = {whole.value:g} under {canonical_json(where)}, but its scores by depth have the mean {mean:g}"
        ends = [bounds.get((curve.name, canonical_json({**where, "bound": bound}))) for bound in ("wilson_low", "wilson_high")]
        yield from _intervals(curve, *ends)


def _intervals(curve: Curve, low: Curve | None, high: Curve | None) -> Iterator[str]:
    for end, found in enumerate((low, high)):
        if found is None or found.x != curve.x:
            continue
        for x, share, said in zip(curve.x, curve.y, found.y, strict=True):
            expected = wilson_interval(min(curve.n, max(0, round(share * curve.n))), curve.n)[end]
            if not math.isclose(said, expected, rel_tol=ROUNDING, abs_tol=1e-6):
                yield f"{curve.name} = {share:g} of {curve.n} at depth {x:g} has a Wilson bound {expected:.4g}, not {said:.4g}"


def _headline(measurements: list[Measurement], card: TaskCard) -> Iterator[str]:
    own = [m for m in measurements if "reference" not in m.conditions]
    wanted = card.primary_conditions.items()
    if not any(m.metric == card.primary_metric and wanted <= m.conditions.items() for m in own):
        yield f"the headline, {card.primary_metric} at {dict(wanted)}, is missing"


def gaps(measurements: list[Measurement], card: TaskCard) -> Iterator[str]:
    """Cells that stand there twice, or are missing, with neither a value nor a reason. A yardstick (`reference`) has the metrics it has."""
    cells = Counter((canonical_json(m.conditions), m.metric) for m in measurements)
    for (conditions, metric), count in cells.items():
        if count > 1:
            yield f"{metric} stands {count} times under {conditions}"
    own = sorted({canonical_json(m.conditions) for m in measurements if "reference" not in m.conditions})
    for metric in card.metrics:
        missing = [conditions for conditions in own if (conditions, metric.name) not in cells]
        if missing and (metric.everywhere or len(missing) == len(own)):
            yield f"{metric.name} is missing under {missing[0]}"
