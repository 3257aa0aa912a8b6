"""Which runs may stand on one board, and which of them count.

A board holds one task version, scale, data fingerprint, protocol, budget, unit and set of further conditions (split, ...), and one kind
of hardware where its metric depends on it. Of several runs of one row and seed the newest finished one counts; a failed run counts where
no other run of its seed finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from .canonical import canonical_json
from .record import Measurement, Metric, RunRecord, Status, TaskCard

REFERENCE = "reference"  # the condition that marks a yardstick: a row of its own, whatever run measured it
Place = tuple[str, tuple]  # of a group: what its records share as text, and the unit and further conditions of its measurements
Key = dict[str, Any]  # what all runs of a board share, flat: 'version', 'protocol.crop_pct', ...


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run says about one row: measurements by column value, none if the run failed."""

    record: RunRecord
    is_local: bool
    is_finished: bool
    cells: dict[Any, Measurement]


@dataclass(slots=True)
class RowSamples:
    """The sample of each seed that counts, and the run ids that it superseded."""

    name: str
    attention: str
    is_plain: bool  # no variant of training or evaluation
    samples: dict[int, Sample] = field(default_factory=dict)
    superseded: set[str] = field(default_factory=set)

    def add(self, sample: Sample) -> None:
        rivals = [sample, self.samples.get(sample.record.seed, sample)]
        winner = max(rivals, key=lambda s: (s.is_finished, s.record.run_id))  # run ids begin with the second of their start
        self.superseded |= {s.record.run_id for s in rivals} - {winner.record.run_id}
        self.samples[sample.record.seed] = winner

    @property
    def finished(self) -> list[Sample]:
        return [sample for _, sample in sorted(self.samples.items()) if sample.is_finished]

    @property
    def failed(self) -> list[Sample]:
        return [sample for _, sample in sorted(self.samples.items()) if not sample.is_finished]


@dataclass(slots=True)
class Group:
    """The rows of one board by name."""

    key: Key
    rows: dict[str, RowSamples] = field(default_factory=dict)
    references: dict[str, Sample] = field(default_factory=dict)  # yardsticks, of the newest run that measured them

    def add(self, name: str, is_plain: bool, sample: Sample) -> None:
        self.rows.setdefault(name, RowSamples(name, sample.record.row.attention, is_plain)).add(sample)

    @property
    def samples(self) -> Iterator[Sample]:
        return (sample for name in sorted(self.rows) for sample in self.rows[name].finished)


def group_records(card: TaskCard, metric: Metric, submitted: Iterable[RunRecord], local: Iterable[RunRecord]) -> list[Group]:
    """The groups of a task: newest task version first, then by scale, then in the card's unit, then the larger one. A run in both lists
    is submitted."""
    runs: dict[str, Sample] = {}
    for is_local, records in ((False, submitted), (True, local)):
        for record in records:
            if record.task.name == card.name:
                runs.setdefault(record.run_id, Sample(record, is_local, record.status is Status.OK, {}))
    groups: dict[Place, Group] = {}
    seen: dict[tuple, Any] = {}
    for run_id in sorted(runs):
        if runs[run_id].is_finished:
            _place_finished(card, metric, runs[run_id], groups, seen)
    for run_id in sorted(runs):
        if not runs[run_id].is_finished:
            _place_failed(card, metric, runs[run_id], groups)
    ahead = lambda g: (-g.key["version"], g.key["scale"], g.key["unit"] != metric.unit, -len(g.rows))
    return sorted(groups.values(), key=lambda g: (*ahead(g), canonical_json(g.key)))


def differing_fields(groups: list[Group]) -> list[str]:
    """The key fields in which these groups are not all equal, sorted."""
    fields = sorted({name for group in groups for name in group.key})
    return [name for name in fields if len({canonical_json(group.key.get(name)) for group in groups}) > 1]


def as_measured(metric: Metric, group: Group) -> Metric:
    """The metric in the unit of the group, of another one than the card's nothing more is known; its chance level where that holds."""
    unit = group.key["unit"]
    if unit != metric.unit:
        return metric.model_copy(update={"unit": unit, "percent": False, "chance": None, "counted": "examples"})
    holds = all(group.key.get(f"protocol.{name}", value) == value for name, value in metric.chance_where.items())
    return metric if holds else metric.model_copy(update={"chance": None})


def _place_finished(card: TaskCard, metric: Metric, run: Sample, groups: dict[Place, Group], seen: dict[tuple, Any]) -> None:
    """A row for each value of the card's row conditions, on the board of the remaining conditions."""
    cells: dict[tuple[Any, Any, str], dict[Any, Measurement]] = {}
    for measurement in run.record.measurements:
        if measurement.metric == metric.name:
            conditions = tuple(measurement.conditions.items())
            if (found := seen.get(conditions, False)) is False:  # thousands of records have the same few sets of conditions
                found = seen[conditions] = _sorted_out(card, measurement.conditions)
            if found is not None:
                cells.setdefault((*found, measurement.unit), {}).setdefault(measurement.conditions[card.column_condition], measurement)
    shared = _key(card, run.record) | _method(card, run.record) | _hardware(metric, run.record)
    text = canonical_json(shared)
    for (further, variant, unit), columns in cells.items():
        conditions = tuple(pair for pair in further if pair[0] != REFERENCE)
        place = (text, (unit, *conditions))
        if place not in groups:
            groups[place] = Group(shared | {"unit": unit} | {f"condition.{name}": value for name, value in conditions})
        group = groups[place]
        if REFERENCE in dict(further):
            group.references[str(dict(further)[REFERENCE])] = replace(run, cells=columns)
        else:
            group.add(*_row_name(run.record, variant), replace(run, cells=columns))


def _sorted_out(card: TaskCard, conditions: dict[str, Any]) -> tuple[tuple, tuple] | None:
    """(conditions that a board shares, those that make a row of their own); None if the measurement is not of this board's columns."""
    shown = {card.column_condition, card.column_label, *card.column_details, *card.row_conditions}
    free = {*shown, "split"}  # another split than the card's is a board of its own
    pinned = {name: value for name, value in card.primary_conditions.items() if name not in free}
    if card.column_condition not in conditions or any(conditions.get(name) != value for name, value in pinned.items()):
        return None
    further = tuple(sorted((name, value) for name, value in conditions.items() if name not in shown))
    headline = card.headline_rows
    rows = [name for name in card.row_conditions if name in conditions and conditions[name] not in headline.get(name, ())]
    return further, tuple((name, conditions[name]) for name in rows)


def _place_failed(card: TaskCard, metric: Metric, run: Sample, groups: dict[Place, Group]) -> None:
    """On the largest board that agrees with what the run still knew (data, protocol, ... may be missing), else on one of its own."""
    key = _key(card, run.record) | {"unit": metric.unit}
    agreeing = [g for g in groups.values() if all(g.key[name] == value for name, value in key.items() if name in g.key)]
    if agreeing:
        group = max(agreeing, key=lambda g: (len(g.rows), canonical_json(g.key)))
    else:
        group = groups.setdefault((canonical_json(key), ()), Group(key))
    group.add(*_row_name(run.record, ()), run)


def _key(card: TaskCard, record: RunRecord) -> Key:
    key: Key = {"version": record.task.version, "scale": record.scale}
    if record.data is not None:
        key["data"] = record.data.fingerprint
    if record.budget is not None:
        key |= {f"budget.{name}": value for name, value in record.budget.model_dump().items()}
    per_row = {*card.row_conditions, *card.protocol_per_row}
    return key | {f"protocol.{name}": value for name, value in record.protocol.items() if name not in per_row}


def _method(card: TaskCard, record: RunRecord) -> Key:
    """By what method a run measured its plain row, where a card has several (an allocator's counter, a profiler): never on one board."""
    plain = card.headline_rows.get("method", ())
    found = (m.conditions["method"] for m in record.measurements if m.conditions.get("method") in plain)
    method = next(found, None)
    return {} if method is None else {"condition.method": method}


def _hardware(metric: Metric, record: RunRecord) -> Key:
    """Where the metric is a time or a speed, the kind of hardware; where it is memory, the GPU (all processors count bytes alike)."""
    if metric.unit == "s" or metric.unit.endswith("/s"):
        return {"hardware": hardware_class(environment_of(record))}
    return {"hardware": record.environment.get("gpu") or "CPU"} if metric.unit == "MiB" else {}


def hardware_class(environment: Mapping[str, Any]) -> str:
    """What costs depend on: 'AMD EPYC, 1 thread', 'AMD EPYC, 1 thread, 2 processes', '8 x H100'. environment: of `environment_of`."""
    devices = environment.get("devices", 1)
    if environment.get("gpu"):
        return f"{devices} x {environment['gpu']}"
    counts = [(environment.get("threads"), "thread", "threads"), (devices if devices != 1 else None, "process", "processes")]
    known = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return ", ".join([f"{environment.get('cpu') or 'unknown processor'}", *known])


def environment_of(record: RunRecord) -> dict[str, Any]:
    """The record's environment, with the number of devices (processes) of the run; older records have it in their configuration only."""
    devices, trainer = record.environment.get("devices"), record.config.get("trainer")
    if not isinstance(devices, int):
        counts = [trainer.get(name) for name in ("devices", "num_nodes")] if isinstance(trainer, dict) else []
        devices = prod(count for count in counts if isinstance(count, int))
    return record.environment | {"devices": max(1, devices)}


def row_name(record: RunRecord) -> str:
    """The row of a run, variants of evaluation apart: 'goat', 'goat[attention.lanes=append]'."""
    return _row_name(record, ())[0]


def _row_name(record: RunRecord, variant: tuple[tuple[str, Any], ...]) -> tuple[str, bool]:
    """'goat' or 'goat[lanes=append,coords=scaled]', and whether it is the attention as it comes."""
    parts = [*sorted(record.row.variant.items()), *variant]
    if not parts:
        return record.row.attention, True
    texts = (f"{name}={value if isinstance(value, str) else canonical_json(value)}" for name, value in parts)
    return f"{record.row.attention}[{','.join(texts)}]", False
