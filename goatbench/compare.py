"""What `compare` prints: differences by seed with a verdict in words, then what else differs. No torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .boards import Places, example_files
from .errors import UsageError
from .records.canonical import canonical_json
from .records.collection import collection_paused
from .records.comparing import Apart, Line, Side, compare, config_differences, environment_differences, verdict
from .records.files import one_line
from .records.finding import find_side
from .records.store import iter_records, say_unread
from .registry import load_plugins, tasks, unknown

if TYPE_CHECKING:
    from .records.record import Metric
    from .records.statistics import Summary

MAX_LISTED = 40


@collection_paused()
def compare_lines(a: str, b: str, places: Places, task: str | None, scale: str | None, everything: bool) -> list[str]:
    """The comparison as text. UsageError in one line for an unknown name, or if the two have nothing in common."""
    load_plugins()
    if task is not None and task not in tasks:
        raise UsageError(unknown("task", task, tasks.names()))
    warnings: list[str] = []
    root, own = places.root(), places.own()
    known = {record.run_id: record for record in iter_records(root, warnings, None if task is None else [task])}
    if own is not None:
        known |= {record.run_id: record for record in iter_records(own, warnings)}
    say_unread(warnings)
    found = [find_side(name, list(known.values()), places.runs_dir, root) for name in (a, b)]
    if len({(side.row, frozenset(record.run_id for record in side.records)) for side in found}) == 1:
        raise UsageError(one_line(f"A and B are the same, {found[0].label}: name another row or run to compare it with"))
    sides = [_only(side, task, scale) for side in found]
    cards = [tasks.get(name).card for name in ([task] if task else tasks.names())]
    examples = example_files([*sides[0].records, *sides[1].records], places, warnings := [])
    lines, apart = compare(cards, *sides, everything, examples)
    for warning in warnings:
        print(f"goatbench: {warning}", file=sys.stderr)
    if not lines and not apart:
        raise UsageError(one_line(f"{sides[0].label} and {sides[1].label} have no task in common{f' at scale {scale}' if scale else ''}"))
    text = [f"{letter}: {side.label}, {_runs(len(side.records))}" for letter, side in zip("AB", sides, strict=True)]
    names = ("A", "B") if sides[0].row == sides[1].row else (sides[0].row, sides[1].row)
    text += [entry for line in _by_board(lines, names) for entry in line]
    text += [entry for one in apart for entry in _apart(one)]
    if lines:
        how = "A - B: mean [95 % t interval] over common seeds; paired t test; seeds needed: for 80 % power, at the difference seen"
        text += ["", "p: Holm-adjusted over the headlines (the first line of each task), and apart from them over all other lines"]
        text += [how]
    return [one_line(entry, 1000) for entry in [*text, *_other_differences(*sides)]]


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _only(side: Side, task: str | None, scale: str | None) -> Side:
    kept = [r for r in side.records if task in (None, r.task.name) and scale in (None, r.scale)]
    return Side(side.label, side.row, kept)


def _by_board(lines: list[Line], names: tuple[str, str]):
    """The lines under the title of their board."""
    seen: str | None = None
    for line in lines:
        place, _, metric = line.board.rpartition(" · ")
        if place != seen:
            seen = place
            yield ["", place]
        values = f"A {_summary(line.metric, line.a)}, B {_summary(line.metric, line.b)}"
        yield [f"  {metric} at {line.column}: {values}; A - B {_difference(line)}", f"      {verdict(line, *names)}"]
        if (both := line.over_examples) is not None and both.half_width() is not None:
            from .records.over_examples import shown

            over = f"{both.num_seeds} seeds and {both.num_examples:,} examples"
            yield [f"      over {over}: {shown(line.metric, both)} (two-way bootstrap: other examples are covered too)"]


def _summary(metric: Metric, summary: Summary) -> str:
    return f"{metric.text(summary.mean)}±{'?' if summary.sd is None else metric.text(summary.sd)} ({summary.n})"


def _difference(line: Line) -> str:
    difference = line.comparison.difference
    if difference is None:
        return "unknown"
    mean = line.metric.text(difference.mean, "+")
    if difference.half_width is None:
        return mean
    low, high = (line.metric.text(difference.mean + sign * difference.half_width, "+") for sign in (-1, 1))
    p = "" if line.comparison.p_adjusted is None else f", p = {line.comparison.p_adjusted:.2g}"
    return f"{mean} [{low}, {high}]{p}"


def _apart(apart: Apart) -> list[str]:
    lines = ["", f"{apart.task}: not compared, the runs of A and B differ in what one board shares"]
    return lines + [f"  {name}: A {x}, B {y}" for name, x, y in apart.fields]


def _other_differences(a: Side, b: Side) -> list[str]:
    config, environment = config_differences(a.records, b.records), environment_differences(a.records, b.records)
    lines = ["", "configuration, newest runs: " + ("equal apart from the names" if not config else "")]
    lines += [f"  {key}: A {_plain(x)}, B {_plain(y)}" for key, x, y in config[:MAX_LISTED]]
    lines += [f"  and {len(config) - MAX_LISTED} more"] if len(config) > MAX_LISTED else []
    lines += ["environment: " + ("equal" if not environment else "")]
    return [line.rstrip() for line in [*lines, *(f"  {key}: A {x}, B {y}" for key, x, y in environment)]]


def _plain(value: Any) -> str:
    return canonical_json(value)
