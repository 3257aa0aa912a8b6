"""What a row costs beside what it scores: the columns next to the scores, whether costs may be compared, and who is not dominated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_uppercase

from .board import Cell, Column, Row
from .grouping import Group, RowSamples, Sample, environment_of, hardware_class
from .statistics import summarise

PARETO = "◆"
COST = "cost"
MAX_CLASSES = 6  # columns; costs of further kinds of hardware are in none


@dataclass(frozen=True, slots=True)
class CostClass:
    """What may be compared: costs of one kind of hardware, measured by one method. unit: 'CPU-s' or 'GPU-s'."""

    hardware: str
    method: str
    unit: str

    def __str__(self) -> str:
        return f"{self.hardware}, {self.method}"


def training_costs(sample: Sample) -> Iterator[tuple[CostClass, float]]:
    """What a run's training cost, if it is known: the CPU-seconds of its first process, on GPUs the seconds that it held them all."""
    environment = environment_of(sample.record)
    on_gpus = bool(environment.get("gpu"))
    name, unit, factor = ("train_wall_seconds", "GPU-s", environment["devices"]) if on_gpus else ("train_cpu_seconds", "CPU-s", 1)
    for cost in sample.record.costs:
        if cost.name == name:
            method = f"{cost.method}, times GPUs" if on_gpus else cost.method
            yield CostClass(hardware_class(environment), method, unit), cost.value * factor
            return


def cost_classes(group: Group) -> list[CostClass]:
    """Hardware class and method of all training costs, those of most rows first. Costs may be compared within one class only."""
    rows = ({kind for sample in row.finished for kind, _ in training_costs(sample)} for row in group.rows.values())
    counts = Counter(kind for kinds in rows for kind in kinds)
    return sorted(counts, key=lambda kind: (-counts[kind], f"{kind}"))


def is_comparable(group: Group) -> bool:
    return len(cost_classes(group)) <= 1


def cost_columns(classes: Sequence[CostClass]) -> dict[CostClass, Column]:
    """A column for each class: one plain column, or columns A, B, ... whose letters a note explains."""
    if len(classes) <= 1:
        return {kind: Column(COST, kind.unit) for kind in classes}
    letters = zip(ascii_uppercase, classes[:MAX_CLASSES], strict=False)
    return {kind: Column(f"{COST}_{letter}", f"{kind.unit} {letter}") for letter, kind in letters}


def extra_columns(group: Group) -> list[tuple[Column, dict[str, Cell]]]:
    """Seeds, parameters and training cost where known; kernel and source of the learning rate only where they differ between rows."""
    costs = {column: partial(_training_cost, kind=kind) for kind, column in cost_columns(cost_classes(group)).items()}
    cells: dict[Column, Callable[[RowSamples], Cell]] = {
        Column("seeds", "seeds"): lambda row: Cell(f"{len(row.finished)}", number=len(row.finished)) if row.finished else Cell(),
        Column("params", "params"): _parameters,
        **costs,
        Column("kernel", "kernel", numeric=False): lambda row: Cell(_common(row, kernel_of)),
        Column("lr", "lr", numeric=False): lambda row: Cell(_common(row, learning_rate_source_of)),
    }
    columns = [(column, {name: cell(row) for name, row in group.rows.items()}) for column, cell in cells.items()]
    least = {"kernel": 2, "lr": 2}  # different texts that make a column worth its place
    return [(column, by_row) for column, by_row in columns if len({c.text for c in by_row.values() if c.text}) >= least.get(column.key, 1)]


def mark_pareto(rows: list[Row], scores: Mapping[str, float]) -> list[Row]:
    """Rows of which no other is at least as good and as cheap, and better in one of the two, by means. scores: higher is better."""
    costs = {row.name: row.cells[COST].number for row in rows if row.name in scores and COST in row.cells}
    points = {name: (scores[name], cost) for name, cost in costs.items() if cost is not None}
    if len(points) < 2:
        return rows
    best = undominated(points)
    return [_marked(row, row.name in best) if row.name in points else row for row in rows]


def undominated(points: Mapping[str, tuple[float, float]]) -> set[str]:
    """points: (score, where higher is better, and cost) by name. Those than which no other is at least as good and as cheap, and better in
    one of the two."""
    best, thriftiest = set(), float("-inf")
    for score, thrift in sorted({(score, -cost) for score, cost in points.values()}, reverse=True):  # of equally good ones the cheapest
        if thrift > thriftiest:
            best.add((score, -thrift))
            thriftiest = thrift
    return {name for name, point in points.items() if point in best}


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


def _training_cost(row: RowSamples, kind: CostClass) -> Cell:
    """The mean over the seeds that were trained on this kind of hardware; '200 (2)' where those are not all."""
    measured = [value for sample in row.finished for found, value in training_costs(sample) if found == kind]
    if not measured:
        return Cell()
    mean = summarise(measured).mean
    count = "" if len(measured) == len(row.finished) else f" ({len(measured)})"
    return Cell(f"{mean:.0f}{count}", number=mean)
