"""Across tasks: mean rank and gain over a baseline, with a bootstrap over seeds. A row that misses a task has no aggregate.

Accuracies, bits and correlations have no common unit, so only ranks and relative gains are averaged. Left out are tuning tasks
(validation, half budget), tasks whose headline is a cost or measures nothing trained, and rows of one seed, which no board ranks either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..progress import counted
from .board import Board, Cell, Column, Row
from .files import one_line
from .grouping import Group, group_records
from .leaderboard import cell_of, has_learned, scores_of
from .record import Metric, RunRecord, TaskCard
from .statistics import bootstrap_intervals, summarise

BASELINES = ("rope", "rope_axial")  # plain RoPE of one axis and of two: the first that a task has
COST_UNITS = ("MiB", "bytes", "s")
RESAMPLES = 1000
METHOD = "95 % percentile bootstrap over seeds"


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The headline of one task: by row and seed, turned so that higher is better. Controls and rows that learned nothing are not in."""

    card: TaskCard
    metric: Metric
    group: Group
    scores: Mapping[str, Mapping[int, float]]

    def baseline(self, wanted: str | None) -> str | None:
        return next((name for name in ([wanted] if wanted else BASELINES) if name in self.scores), None)


def overall_boards(
    cards: Iterable[TaskCard], submitted: Sequence[RunRecord], local: Sequence[RunRecord], scale: str, against: str | None = None
) -> list[Board]:
    """A board for each domain with at least two tasks that have results at this scale; and one over all tasks, the first, where at least
    two rows have them all, or there is no other."""
    found = [scores for card in cards if (scores := _scores(card, submitted, local, scale)) is not None]
    if not found:
        raise UsageError(f"no task has ranked results at scale {scale} yet: an overall table needs some")
    known = sorted({name for task in found for name in task.scores})
    if against is not None and against not in known:
        raise UsageError(f"--against {against}: no task has this row at scale {scale}; rows: {', '.join(known)}")
    domains = list(dict.fromkeys(task.card.domain for task in found))
    parts = {domain: [task for task in found if task.card.domain == domain] for domain in domains if len(domains) > 1}
    sets = {name: part for name, part in parts.items() if len(part) > 1}
    if len(_complete(found)) > 1 or not sets:
        sets = {"all domains" if len(domains) > 1 else domains[0]: found} | sets
    return [_board(name, part, scale, against) for name, part in sets.items()]


def _complete(tasks: Sequence[TaskScores]) -> list[str]:
    """Rows with a result in every task."""
    return sorted(set.intersection(*(set(task.scores) for task in tasks)))


def _scores(card: TaskCard, submitted: Sequence[RunRecord], local: Sequence[RunRecord], scale: str) -> TaskScores | None:
    metric = card.metric(card.primary_metric)
    if card.is_tuning or not card.is_overall or metric.unit in COST_UNITS or metric.direction == "none":
        return None
    kept = [[record for record in records if record.scale == scale] for records in (submitted, local)]
    groups = group_records(card, metric, *kept)
    if not groups:
        return None
    group = groups[0]  # the newest version, there the largest board
    headline = card.primary_conditions.get(card.column_condition)
    rivals = [row for row in group.rows.values() if row.is_plain and row.attention not in card.controls]
    scores = {row.name: by_seed for row in rivals if has_learned(card, row) and len(by_seed := scores_of(metric, row, headline)) > 1}
    return TaskScores(card, metric, group, scores) if scores else None


def _board(name: str, tasks: list[TaskScores], scale: str, against: str | None) -> Board:
    everyone = sorted({row for task in tasks for row in task.scores})
    complete = _complete(tasks)
    baselines = [task.baseline(against) for task in tasks]
    means, intervals = _aggregate(tasks, complete, baselines)
    columns = [Column(task.card.name, task.card.name + task.metric.arrow, is_score=True) for task in tasks]
    columns += [Column("rank", "mean rank↓"), *([Column("gain", "gain %↑")] if None not in baselines else []), Column("tasks", "tasks")]
    rows = []
    for row in everyone:
        cells = {task.card.name: _headline(task, row) for task in tasks if row in task.scores}
        for key in ("rank", "gain"):
            if (key, row) in means:
                cells[key] = _aggregate_cell(key, means[key, row], intervals.get((key, row)))
        count = sum(row in task.scores for task in tasks)
        cells["tasks"] = Cell(f"{count}/{len(tasks)}", number=count)
        rows.append(Row(row, cells, is_baseline=all(row == base for base in baselines)))
    rows.sort(key=lambda row: (("rank", row.name) not in means, means.get(("rank", row.name), 0.0), row.name))
    facts = {"kind": "overall", "task": "overall", "scale": scale, "tasks": [task.card.name for task in tasks], "baselines": baselines}
    title = f"overall · {name} · {scale} · {counted(len(tasks), 'task')}"
    return Board(title, tuple(columns), tuple(rows), tuple(_notes(tasks, complete, baselines, intervals)), facts)


def _aggregate(tasks: list[TaskScores], complete: list[str], baselines: list[str | None]):
    """({(what, row): mean}, {(what, row): interval}); the same seeds are drawn for all rows, and for tasks of a domain with equal seeds."""
    if len(complete) < 2:
        return {}, {}
    used = []
    for task, base in zip(tasks, baselines, strict=True):
        common = set.intersection(*(set(task.scores[row]) for row in {*complete, *([base] if base else [])}))
        used.append((task.card.domain, tuple(sorted(common))))
    paired = all(seeds for _, seeds in used)
    blocks = sorted(set(used))
    keys = [(what, row) for what in (("rank", "gain") if None not in baselines else ("rank",)) for row in complete]

    def statistic(draws: list[list[int]]) -> list[float]:
        ranks, gains = dict.fromkeys(complete, 0.0), dict.fromkeys(complete, 0.0)
        for task, base, block in zip(tasks, baselines, used, strict=True):
            names = {*complete, *([base] if base else [])}
            drawn = [block[1][i] for i in draws[blocks.index(block)]] if paired else None
            mean = {row: _mean(task.scores[row], drawn) for row in names}
            for row in complete:
                better = sum(mean[other] > mean[row] for other in complete)
                tied = sum(mean[other] == mean[row] for other in complete)
                ranks[row] += (1 + better + (tied - 1) / 2) / len(tasks)
                if base is not None:
                    gains[row] += _gain(mean[row], mean[base]) / len(tasks)
        return [{"rank": ranks, "gain": gains}[what][row] for what, row in keys]

    sizes = [len(seeds) for _, seeds in blocks]
    means = dict(zip(keys, statistic([list(range(size)) for size in sizes]), strict=True))
    if not paired or min(sizes) < 2:
        return means, {}
    return means, dict(zip(keys, bootstrap_intervals(sizes, statistic, RESAMPLES), strict=True))


def _gain(score: float, base: float) -> float:
    """In -1 .. 1 for scores of one sign. Divided by the larger of the two: a baseline near zero would make any mean over tasks its own."""
    largest = max(abs(score), abs(base))
    return (score - base) / largest if largest else 0.0


def _mean(by_seed: Mapping[int, float], seeds: Sequence[int] | None) -> float:
    values = list(by_seed.values()) if seeds is None else [by_seed[seed] for seed in seeds]
    return sum(values) / len(values)


def _headline(task: TaskScores, row: str) -> Cell:
    return cell_of(task.metric, task.group.rows[row].finished, task.card.primary_conditions.get(task.card.column_condition))


def _aggregate_cell(key: str, mean: float, interval: tuple[float, float] | None) -> Cell:
    factor, sign, digits = (100, "+", 2) if key == "gain" else (1, "", 2)
    ends = "" if interval is None else " [" + ",".join(f"{factor * end:{sign}.{digits}f}" for end in interval) + "]"
    return Cell(f"{factor * mean:{sign}.{digits}f}{ends}", number=mean, interval=interval, interval_method=METHOD if interval else None)


def _notes(tasks: list[TaskScores], complete: list[str], baselines: list[str | None], intervals: Mapping) -> Iterable[str]:
    yield (
        "a task's column: its headline, mean ± standard deviation over seeds; controls, rows of one seed and rows that did not learn "
        "a task are not in it"
    )
    if len(complete) > 1:
        listed = ", ".join(complete)
        yield f"mean rank: among the {len(complete)} rows that have a result in every task ({listed}); no other row has an aggregate"
    else:
        yield f"{'only ' + complete[0] if complete else 'no row'} has a result in every task, and a rank takes two: nothing is aggregated"
    if None not in baselines:
        pairs = [f"{base} in {task.card.name}" for task, base in zip(tasks, baselines, strict=True)]
        named = baselines[0] if len(set(baselines)) == 1 else ", ".join(pairs)
        text = f"gain: (row - baseline) / the larger, of headlines turned so that more is better; mean over tasks; baseline: {named}"
        yield one_line(text, 900)
    else:
        lacking = [task.card.name for task, base in zip(tasks, baselines, strict=True) if base is None]
        yield f"no gain: the baseline has no result in {', '.join(lacking)}"
    if intervals:
        seeds = summarise([len(by_seed) for task in tasks for by_seed in task.scores.values()]).mean
        yield (
            f"[ ]: {METHOD} ({RESAMPLES} draws, fixed seed), the same seeds for all rows and for tasks of one "
            f"domain; with about {seeds:.0f} seeds it is too narrow: read it as a lower bound of the uncertainty"
        )
