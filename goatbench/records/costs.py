"""What a row costs beside what it scores: the columns next to the scores, whether costs may be compared, and who is not dominated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .board import Cell, Column, Row
from .grouping import Group, RowSamples, Sample
from .record import RunRecord
from .statistics import summarise

TRAINING_COST = "train_cpu_seconds"
PARETO = "◆"
COST = "cost"


def hardware_class(record: RunRecord) -> str:
    """What CPU-seconds depend on: 'AMD EPYC, 1 thread', '8 x H100'."""
    environment = record.environment
    if environment.get("gpu"):
        return f"{environment.get('gpu_count') or 1} x {environment['gpu']}"
    threads = environment.get("threads")
    return f"{environment.get('cpu') or 'unknown processor'}" + (f", {threads} thread{'s' if threads != 1 else ''}" if threads else "")


def cost_classes(group: Group) -> dict[str, set[str]]:
    """Hardware class and method of the training costs of each row that has any; comparable only if the union is one class."""
    found: dict[str, set[str]] = {}
    for name, row in group.rows.items():
        for sample in row.finished:
            for cost in sample.record.costs:
                if cost.name == TRAINING_COST:
                    found.setdefault(name, set()).add(f"{hardware_class(sample.record)}, {cost.method}")
    return found


def is_comparable(group: Group) -> bool:
    return len(set().union(*cost_classes(group).values())) <= 1


def extra_columns(group: Group) -> list[tuple[Column, dict[str, Cell]]]:
    """Seeds, parameters and training cost where known; kernel and source of the learning rate only where they differ between rows."""
    head = "CPU-s" if is_comparable(group) else "CPU-s (not comparable)"
    cells: dict[Column, Callable[[RowSamples], Cell]] = {
        Column("seeds", "seeds"): lambda row: Cell(f"{len(row.finished)}", number=len(row.finished)) if row.finished else Cell(),
        Column("params", "params"): _parameters,
        Column(COST, head): _training_cost,
        Column("kernel", "kernel", numeric=False): lambda row: Cell(_common(row, kernel_of)),
        Column("lr", "lr", numeric=False): lambda row: Cell(_common(row, learning_rate_source_of)),
    }
    columns = [(column, {name: cell(row) for name, row in group.rows.items()}) for column, cell in cells.items()]
    least = {"kernel": 2, "lr": 2}  # different texts that make a column worth its place
    return [(column, by_row) for column, by_row in columns if len({c.text for c in by_row.values() if c.text}) >= least.get(column.key, 1)]


def mark_pareto(rows: list[Row], scores: Mapping[str, float]) -> list[Row]:
    """Rows of which no other is at least as good and as cheap, and better in one of the two, by means. scores: higher is better."""
    costs = {row.name: row.cells[COST].number for row in rows if row.name in scores and COST in row.cells}
    points = {name: (scores[name], -cost) for name, cost in costs.items() if cost is not None}
    if len(points) < 2:
        return rows
    best = {
        name for name, (score, thrift) in points.items()
        if not any(other != (score, thrift) and other[0] >= score and other[1] >= thrift for other in points.values())
    }  # fmt: skip
    return [_marked(row, row.name in best) if row.name in points else row for row in rows]


def _marked(row: Row, holds: bool) -> Row:
    cell = row.cells[COST]
    cells = row.cells | {COST: replace(cell, text=f"{PARETO} {cell.text}")} if holds else row.cells
    return replace(row, cells=cells, is_pareto=holds)


def kernel_of(sample: Sample) -> str:
    """The kernel that ran, 'training/evaluation' if they differ."""
    model = sample.record.model
    assert model is not None
    return model.kernel_train if model.kernel_train == model.kernel_eval else f"{model.kernel_train}/{model.kernel_eval}"


def learning_rate_source_of(sample: Sample) -> str:
    """'tuned', 'default' or 'given'; empty for a run that trained nothing."""
    training = sample.record.training
    return training.learning_rate_source.partition(":")[0] if training is not None else ""


def _common(row: RowSamples, text_of: Callable[[Sample], str]) -> str:
    """The text all runs of a row agree on, else 'mixed'."""
    texts = {text_of(sample) for sample in row.finished}
    return "mixed" if len(texts) > 1 else next(iter(texts), "")


def _parameters(row: RowSamples) -> Cell:
    counts = {sample.record.model.params_total for sample in row.finished if sample.record.model is not None}
    if len(counts) != 1:
        return Cell("mixed" if counts else "")
    count = counts.pop()
    return Cell(f"{count / 1e6:.3f}M", number=count)


def _training_cost(row: RowSamples) -> Cell:
    """The mean over seeds; 'mixed' where they were measured on different hardware."""
    measured = [(hardware_class(s.record), c.method, c.value) for s in row.finished for c in s.record.costs if c.name == TRAINING_COST]
    if len({(hardware, method) for hardware, method, _ in measured}) > 1:
        return Cell("mixed")
    if not measured:
        return Cell()
    mean = summarise([value for *_, value in measured]).mean
    return Cell(f"{mean:.0f}", number=mean)
