"""Which figures a board gets: only what its records hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from ..errors import UsageError
from ..plots.boards import board_curves, fewer
from ..plots.curves import Curve, Labels
from ..plots.heat_map import grids_of
from ..records.board import Board, Row
from ..records.costs import CostClass, training_costs
from ..records.grouping import Group
from ..records.record import Curve as RecordCurve
from ..records.record import TaskCard
from ..records.statistics import summarise
from .cost_chart import Point, cost_chart, frontier
from .heat_table import heat_tables
from .line_chart import line_chart
from .panels import Panel, panels
from .svg import Look
from .verdict import headline, listed

MAX_POINTS = 32  # of a curve; more are averaged
NO_AXIS = ("depth", "head", "layer")  # of the heat map, and numbers that are no quantity
LINES = ("head", "of")  # conditions of a curve that tell the lines of one panel apart
TRUE = ("true", "real")  # lines that others are compared with
SMALL_MULTIPLES = {  # name of a curve -> title, caption, how far below the highest value it is drawn
    "log_prior": (
        "Learned log-priors by offset",
        "ln p (nats) that the log-prior alone, before any content, gives to the key so many tokens back, at the training length: a "
        "panel a row and layer, a line a head. Rows without a prior, or with one of content, are left out; so is what lies more than "
        "20 nats below the highest value.",
        20.0,
    ),
    "relative_term": ("The prior's part by offset, true and learned", "Nats, up to a constant.", math.inf),
    "sink_term": ("The prior's part by key, true and learned", "Nats, up to a constant.", math.inf),
    "gc_track": ("GC along the genome, true and generated", "Grey: the true sequence, window by window.", math.inf),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """title above, drawing, caption below; is_wide: takes the whole width of the page."""

    title: str
    body: Markup
    caption: str
    is_wide: bool = False


def figures_of(card: TaskCard, board: Board, group: Group, looks: Mapping[str, Look]) -> list[Figure]:
    """looks: by row name."""
    lines = [*_by_column(board, looks), *_by_cost(card, board, group, looks), *_curves(card, board, group, looks)]
    return [*lines, *_heat(board, group)]


def looks_of(boards: list[Board]) -> dict[str, Look]:
    """By row name: an attention has one colour and marker on all boards of a domain, its variants dashed lines of that colour."""
    looks: dict[str, Look] = {}
    for row in (row for board in boards for row in board.rows):
        attention, bracket, _ = row.name.partition("[")
        if row.is_reference:
            continue
        if attention not in looks:
            used = [look.index for look in looks.values() if look.index is not None]
            looks[attention] = Look(None if row.is_control or row.is_unlearned else max(used, default=-1) + 1)
        looks[row.name] = Look(looks[attention].index, bool(bracket))
    return looks


def _by_column(board: Board, looks: Mapping[str, Look]) -> Iterator[Figure]:
    try:
        drawn = fewer(board)
        lines, labels = board_curves(drawn)
    except UsageError:  # its columns are no numbers
        return
    shown = [line for line in lines if line.name in looks]
    column = headline(board)
    if len(shown) and any(len(list(line.x)) > 1 for line in shown):
        ends = listed([f"{row.name} {row.cells[column.key].text}" for row in _measured(board, column.key)]) if column else ""
        label = f"Line chart of {labels.y} by {labels.x}. {f'At {column.head[:-1]}: {ends}.' if column else ''}"
        caption = "Mean over seeds; band: one standard deviation." + (" Dashed across: yardsticks." if labels.references else "")
        caption += f" {labels.title.rpartition(' · ')[2].capitalize()}." if drawn is not board else ""  # what is left out
        caption += " Dashed: variants." if any(looks[line.name].is_dashed for line in shown) else ""
        axes = Labels("", labels.x, labels.y, references=labels.references)
        yield Figure(f"Quality against {labels.x.partition(' (')[0]}", line_chart(shown, axes, looks, label), caption)


def _by_cost(card: TaskCard, board: Board, group: Group, looks: Mapping[str, Look]) -> Iterator[Figure]:
    """Of the rows that ran on the kind of hardware that most of them ran on."""
    column, metric = headline(board), card.metric(card.primary_metric)
    points: dict[CostClass, list[Point]] = {}
    for row in _measured(board, column.key if column else ""):
        if row.name not in group.rows or row.is_control or row.is_unlearned:
            continue
        samples = group.rows[row.name].finished
        measured = [cost for sample in samples for cost in training_costs(sample)]
        costs, machines = [value for _, value in measured], {kind for kind, _ in measured}
        if costs and len(machines) == 1:
            summary, factor = row.cells[column.key].summary, 100 if metric.percent else 1
            point = Point(row.name, summarise(costs).mean, factor * summary.mean, factor * (summary.sd or 0.0))
            points.setdefault(next(iter(machines)), []).append(point)
    if not points:
        return
    machine = max(points, key=lambda kind: (len(points[kind]), f"{kind}"))
    shown = points[machine]
    if len(shown) < 2:
        return
    is_higher = metric.direction == "higher"
    best = frontier(shown, is_higher)
    titles = (f"training, {machine.unit}", board.title.rpartition(" · ")[2])
    on_it = listed([p.name for p in best])
    left_out = sum(map(len, points.values())) - len(shown)
    caption = f"On the line, beaten by no other mean on both: {on_it}. Whiskers: one standard deviation."
    caption += f" {left_out} rows that ran on another kind of hardware are left out." if left_out else ""
    label = f"Scatter chart of {titles[1]} against {titles[0]}, {len(shown)} rows. Not beaten on both: {on_it}."
    yield Figure("Quality against cost", cost_chart(shown, best, dict(looks), titles, is_higher, label), caption)


def _curves(card: TaskCard, board: Board, group: Group, looks: Mapping[str, Look]) -> Iterator[Figure]:
    """Curves of the records over another axis than the board's columns, at the headline's conditions: means over seeds, or, where a
    record has several of one name (a layer's, a head's, a region's), small multiples."""
    found: dict[tuple[str, str, str], dict[str, list[list[RecordCurve]]]] = {}
    for row in board.rows:
        for sample in group.rows[row.name].finished if row.name in group.rows and row.is_plain else ():
            of_record: dict[tuple[str, str, str], list[RecordCurve]] = {}
            for curve in sample.record.curves:
                where = {name: value for name, value in curve.conditions.items() if name in card.primary_conditions}
                is_headline = all(card.primary_conditions[name] == value for name, value in where.items())
                is_headline = is_headline and "reference" not in curve.conditions
                if curve.x_name not in (*NO_AXIS, card.column_condition, card.column_label) and is_headline and len(curve.x) > 1:
                    of_record.setdefault((curve.name, curve.unit, curve.x_name), []).append(curve)
            for key, curves in of_record.items():
                found.setdefault(key, {}).setdefault(row.name, []).append(curves)
    for (name, unit, x_name), by_row in sorted(found.items()):
        if any(len(curves) > 1 for samples in by_row.values() for curves in samples):
            yield small_multiples(name, unit, x_name, {row: samples[0] for row, samples in by_row.items()}, set(card.primary_conditions))
            continue
        lines = [line for row, samples in by_row.items() if (line := _mean_curve(row, [curve for [curve] in samples])) is not None]
        if not lines or min(float(line.x[0]) for line in lines) <= 0:
            continue
        label = f"Line chart of {name} ({unit}) by {x_name} for {listed([line.name for line in lines])}."
        chart = line_chart(lines, Labels("", x_name, f"{name} ({unit})"), looks, label)
        yield Figure(f"{name} by {x_name}", chart, f"Mean over seeds, in up to {MAX_POINTS} stretches of the curves that the records hold.")


def small_multiples(name: str, unit: str, x_name: str, by_row: Mapping[str, list[RecordCurve]], shared: set[str]) -> Figure:
    """A panel a row and place; of the conditions that are not `shared` the one in LINES tells the lines of a panel apart."""
    shown: dict[str, list[Curve]] = {}
    for row, curves in by_row.items():
        for curve in curves:
            own = {key: f"{value}" for key, value in sorted(curve.conditions.items()) if key not in shared}
            key = next((key for key in LINES if key in own), None)
            value = own.pop(key) if key is not None else name
            place = ", ".join([row, *(f"{key} {text}" for key, text in own.items())])
            shown.setdefault(place, []).append(Curve(f"head {value}" if key == "head" else value, curve.x, curve.y))
    title, caption, depth = SMALL_MULTIPLES.get(name, (f"{name} by {x_name}", "", math.inf))
    told = [Panel(place, sorted(lines, key=lambda line: line.name in TRUE)) for place, lines in shown.items()]
    caption = " ".join(filter(None, [caption, "Each row's first seed. All panels have the same axes."]))
    return Figure(title, panels(told, x_name, f"{name} ({unit})", TRUE, depth), caption, is_wide=True)


def _mean_curve(row: str, curves: list) -> Curve | None:
    """Over seeds, then over neighbours; None if the seeds do not share their x."""
    x = curves[0].x
    if any(curve.x != x for curve in curves):
        return None
    y = [fmean(values) for values in zip(*(curve.y for curve in curves), strict=True)]
    size = -(-len(x) // MAX_POINTS)
    parts = [slice(start, start + size) for start in range(0, len(x), size)]
    return Curve(row, [fmean(x[part]) for part in parts], [fmean(y[part]) for part in parts])


def _heat(board: Board, group: Group) -> Iterator[Figure]:
    grids = grids_of(board, group)
    if grids:
        caption = "Percent found, mean over seeds; depth 0 is the start of the text. Dark: never found, bright: always."
        yield Figure("Found, by depth and length", heat_tables(grids), caption, is_wide=True)


def _measured(board: Board, key: str) -> list[Row]:
    return [row for row in board.rows if row.cells.get(key) is not None and row.cells[key].summary is not None]
