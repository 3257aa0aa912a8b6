"""The runs behind a row: seeds, values, the commands that repeat them, where they ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..records.board import Board
from ..records.costs import training_costs
from ..records.grouping import Group, RowSamples, Sample
from ..records.record import Metric, RunRecord, TaskCard
from ..records.repeating import command


@dataclass(frozen=True, slots=True)
class RunView:
    """One run: value of the headline column as shown, '' if it has none; facts: (name, text)."""

    run_id: str
    seed: int
    status: str
    value: str
    cost: str


@dataclass(frozen=True, slots=True)
class RowDetails:
    """name as on the board; commands of its runs by seed; facts that its runs share or differ in: (name, texts)."""

    name: str
    runs: tuple[RunView, ...]
    commands: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def details_of(card: TaskCard, board: Board, group: Group) -> list[RowDetails]:
    """Of the rows that ran (a yardstick was measured by the runs of others), in the order of the board."""
    metric = card.metric(card.primary_metric)
    headline = card.primary_conditions.get(card.column_condition)
    return [_row(metric, headline, group.rows[row.name]) for row in board.rows if row.name in group.rows]


def _row(metric: Metric, headline: Any, row: RowSamples) -> RowDetails:
    samples = [sample for _, sample in sorted(row.samples.items())]
    records = [sample.record for sample in samples]
    notes = [note for record in records for note in (*record.notes, *(record.model.notes if record.model else ()))]
    notes += [f"seed {r.seed}: {r.status}: {r.error.kind}: {r.error.message}" for r in records if r.error is not None]
    notes += [f"superseded by a newer run of the same seed: {', '.join(sorted(row.superseded))}"] if row.superseded else []
    runs = tuple(_run(metric, headline, sample) for sample in samples)
    return RowDetails(row.name, runs, tuple(map(command, records)), tuple(_facts(records)), tuple(dict.fromkeys(notes)))


def _run(metric: Metric, headline: Any, sample: Sample) -> RunView:
    record, measured = sample.record, sample.cells.get(headline)
    value = "" if measured is None or measured.value is None else metric.text(measured.value)
    cost = next((f"{value:.0f} {kind.unit}" for kind, value in training_costs(sample)), "")
    return RunView(record.run_id, record.seed, record.ending, value, cost)


def _facts(records: list[RunRecord]) -> list[tuple[str, str]]:
    """Each fact with its texts, more than one where the runs differ; without those that no run knows."""
    texts = {
        "model": lambda r: r.model and f"{r.model.name}, {r.model.params_total:,} parameters ({r.model.params_prior:,} in the prior)",
        "kernel": lambda r: r.model and f"{r.model.kernel_train} in training, {r.model.kernel_eval} in evaluation",
        "learning rate": lambda r: r.training and f"{r.training.learning_rate:g} ({r.training.learning_rate_source})",
        "budget": lambda r: r.budget and f"{r.budget.epochs} epochs, {r.budget.steps:,} steps of {r.budget.batch_size}",
        "data": lambda r: r.data and f"{r.data.name}, fingerprint {r.data.fingerprint[:8]}",
        "code": lambda r: f"{r.code.version}, source {r.code.source_hash[:8]}{', uncommitted changes' if r.code.dirty else ''}",
        "configuration": lambda r: r.config_hash,
        "plug-ins": lambda r: ", ".join(f"{p.name} of {p.provider} {p.version or ''}".strip() for p in r.plugins),
        "environment": lambda r: ", ".join(f"{name} {value}" for name, value in sorted(r.environment.items()) if value is not None),
    }
    found = ((name, list(dict.fromkeys(filter(None, map(text, records))))) for name, text in texts.items())
    return [(name, "; ".join(known)) for name, known in found if known]
