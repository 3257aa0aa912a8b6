"""What a board says in one sentence, and what the boards of a domain say together: from places, never from means alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..records.board import Board, Column, Row

MAX_NAMED = 8


class Level(StrEnum):
    """How much the seeds can tell: a sole winner, some of the order, nothing, or no ranked rows to compare."""

    CLEAR = "clear"
    PARTLY = "partly"
    OPEN = "open"
    UNRANKED = "unranked"


LEVEL_TEXT = {
    Level.CLEAR: "one is best",
    Level.PARTLY: "some told apart",
    Level.OPEN: "none told apart",
    Level.UNRANKED: "not ranked",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """first: the rows that can have the first place; ranked: all with a rank, best mean first; seeds of those: least, most."""

    level: Level
    sentence: str
    first: tuple[str, ...] = ()
    ranked: tuple[str, ...] = ()
    seeds: tuple[int, int] | None = None

    @property
    def level_text(self) -> str:
        return LEVEL_TEXT[self.level]


def verdict(board: Board, axis: str) -> Verdict:
    """axis: what the columns are ('resolution'); the sentence speaks of the column that the board is sorted by."""
    column = headline(board)
    ranked = [row for row in board.rows if row.rank]
    aside = _aside(board, column, ranked)
    if column is None or len(ranked) < 2:
        return Verdict(Level.UNRANKED, " ".join([f"{_why_unranked(board, column, ranked)}, so nothing is ranked.", *aside]))
    place = min(_place(row) for row in ranked)
    first = [row for row in ranked if _place(row) == place]
    rest = [row.name for row in ranked if _place(row) != place]
    counts = [row.cells[column.key].summary.n for row in ranked]
    seeds = (min(counts), max(counts))
    where = f"At {axis} {column.head[:-1]}: "
    is_sure = [row.rank for row in first] == [f"{place}"]
    if len(first) == 1:
        says = f"{first[0].name} is best" if is_sure else f"only {first[0].name} can be best"
        core = f"{says} ({_mean(first[0], column)}, {seeds_text(seeds)})"
    else:
        ends = f"means {_mean(first[0], column)} to {_mean(first[-1], column)}"
        core = f"{listed([row.name for row in first])} can each be best ({seeds_text(seeds)}, {ends})"
    behind = f"{listed(rest)} {'is' if len(rest) == 1 else 'are'} worse" if is_sure else f"{listed(rest)} cannot" if rest else ""
    is_open = {row.rank for row in ranked} == {f"1-{len(ranked)}"}
    level = Level.CLEAR if is_sure else Level.OPEN if is_open else Level.PARTLY
    sentence = " ".join([f"{where}{core}{f'; {behind}' if behind else ''}.", *aside])
    return Verdict(level, sentence, tuple(row.name for row in first), tuple(row.name for row in ranked), seeds)


def _why_unranked(board: Board, column: Column | None, ranked: list[Row]) -> str:
    if column is None:
        return "Neither end of this metric is better"
    if not ranked and any(row.is_unlearned for row in board.rows):
        return "No row with two seeds has learned the task"
    return f"Only {ranked[0].name} has two seeds" if ranked else "No row has two seeds"


def domain_verdict(verdicts: Mapping[str, Verdict]) -> tuple[str, Level, str]:
    """Of the verdicts by task: which attention to pick, how much is told apart, and how sure that is in words."""
    ranked = {task: v for task, v in verdicts.items() if v.level is not Level.UNRANKED}
    if not ranked:
        return "No pick yet", Level.UNRANKED, "No task has two rows with two seeds each: one seed says nothing about who is better."
    wins = {name: [task for task, v in ranked.items() if name in v.first] for v in ranked.values() for name in v.ranked}
    picks = [name for name, won in wins.items() if len(won) == len(ranked)]
    every = "the one ranked task" if len(ranked) == 1 else f"all {len(ranked)} ranked tasks"
    if picks:
        pick = f"Pick {picks[0]}" if len(picks) == 1 else f"Candidates: {listed(picks)}"
        why = f"{'The only attention that' if len(picks) == 1 else 'Each'} can be best in {every}."
        if len(picks) > 1:
            leads = {name: sum(v.ranked[0] == name for v in ranked.values()) for name in picks}
            best = max(picks, key=lambda name: leads[name])
            why += f" Best mean: {best}" + ("." if len(ranked) == 1 else f", on {leads[best]} of {len(ranked)}.") if leads[best] else ""
    else:
        most = max(map(len, wins.values()))
        pick = "No single pick: it depends on the task"
        leaders = listed([name for name, won in wins.items() if len(won) == most])
        why = f"No attention can be best in {every}; {leaders}: in {most}."
    levels = {v.level for v in ranked.values()}
    level = Level.CLEAR if len(picks) == 1 and levels == {Level.CLEAR} else Level.OPEN if levels == {Level.OPEN} else Level.PARTLY
    clear = sum(v.level is Level.CLEAR for v in ranked.values())
    winners = f"{clear} of {len(ranked)} ranked tasks {'has' if clear == 1 else 'have'}" if clear else "no task has"
    counts = [count for v in ranked.values() if v.seeds for count in v.seeds]
    sure = {
        Level.CLEAR: "Sure as far as the seeds go",
        Level.PARTLY: f"Partly sure: {winners} a sole winner",
        Level.OPEN: "Not sure: no task tells its attentions apart",
    }[level]
    text = f"{why} {sure} ({seeds_text((min(counts), max(counts)))} a row)."
    return pick, level, text + ("" if level is Level.CLEAR else " Not told apart means too few seeds to tell, not equal.")


def headline(board: Board) -> Column | None:
    """The column that the board is sorted by: its head ends with the arrow of the metric."""
    return next((column for column in board.columns if column.head.endswith(("↑", "↓"))), None)


def listed(names: Sequence[str], word: str = "and") -> str:
    """'a, b and c'; of many the first ones and how many more."""
    shown = list(names) if len(names) <= MAX_NAMED + 1 else [*names[:MAX_NAMED], f"{len(names) - MAX_NAMED} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"


def seeds_text(seeds: tuple[int, int]) -> str:
    least, most = seeds
    return f"{least} seeds" if least == most else f"{least} to {most} seeds"


def _aside(board: Board, column: Column | None, ranked: list[Row]) -> list[str]:
    """What places cannot say: a variant with a better mean, yardsticks ahead, rows that did not learn or have one seed."""
    if column is None:
        return []
    measured = [row for row in board.rows if row.cells.get(column.key) is not None and row.cells[column.key].summary is not None]
    parts = []
    rivals = [row for row in measured if not (row.is_reference or row.is_control or row.is_unlearned)]
    if rivals and not ranked:
        parts.append(f"First on one seed: {rivals[0].name} ({_mean(rivals[0], column)}).")
    if ranked and rivals and not rivals[0].is_plain:
        parts.append(f"The best mean, {_mean(rivals[0], column)}, is that of {rivals[0].name}, a variant: not ranked.")
    if rivals:
        ahead = measured[: measured.index(rivals[0])]
        yardsticks = [f"{row.name} {_mean(row, column)}" for row in ahead if row.is_reference]
        if yardsticks:
            parts.append(f"Yardsticks without attention ahead of all: {listed(yardsticks)}.")
    single = [row.name for row in rivals if row.is_plain and not row.rank] if ranked else []
    unlearned = [row.name for row in board.rows if row.is_unlearned]
    if unlearned:
        parts.append(f"Did not learn the task: {listed(unlearned)}.")
    if single:
        parts.append(f"One seed, not ranked: {listed(single)}.")
    return parts


def _place(row: Row) -> int:
    """'2-4' -> 2."""
    return int(row.rank.partition("-")[0])


def _mean(row: Row, column: Column) -> str:
    return row.cells[column.key].text.partition("±")[0]
