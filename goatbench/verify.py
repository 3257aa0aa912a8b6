"""Does a record agree with itself? What `submit` asks before a record is published.

Nobody can tell an invented score from a measured one by looking; but a record whose row, scale, seed or hash is not that of its
configuration, or whose numbers its task could not have made, was edited or mixed up, and is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime

from pydantic import ValidationError

from .errors import UsageError
from .records.canonical import canonical_json
from .records.files import one_line
from .records.record import Measurement, RunRecord, Status, TaskCard
from .registry import load_plugins, tasks, unknown
from .spec import RUN_SPECS


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
        spec = RUN_SPECS[record.domain].model_validate_json(json.dumps(record.config))
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
    known = {metric.name: metric for metric in card.metrics}
    for m in record.measurements:
        if m.metric not in known:
            yield f"{card.name} has no metric {m.metric}; it has {', '.join(known)}"
        elif m.unit != known[m.metric].unit:
            yield f"{m.metric} is in {m.unit}, {card.name} measures it in {known[m.metric].unit}"
        elif m.value is not None:
            yield from _value(m, known[m.metric].bounds, record)
    yield from _completeness(record.measurements, card)
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


def _completeness(measurements: list[Measurement], card: TaskCard):
    """Each metric once under each set of conditions, and the headline among them."""
    cells = Counter((canonical_json(m.conditions), m.metric) for m in measurements)
    for (conditions, metric), count in cells.items():
        if count > 1:
            yield f"{metric} stands {count} times under {conditions}"
    for conditions in sorted({conditions for conditions, _ in cells}):
        for metric in card.metrics:
            if (conditions, metric.name) not in cells:
                yield f"{metric.name} is missing under {conditions}"
    wanted = card.primary_conditions.items()
    if not any(m.metric == card.primary_metric and wanted <= m.conditions.items() for m in measurements):
        yield f"the headline, {card.primary_metric} at {dict(wanted)}, is missing"
