"""From records to the page: a section a domain, summary first. Equal records give equal bytes: no time stamps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..records.board import Board, Column, Row
from ..records.grouping import Group, group_records
from ..records.leaderboard import build_boards
from ..records.record import RunRecord, TaskCard
from .details import RowDetails, details_of
from .figures import Figure, figures_of, looks_of
from .svg import Look
from .verdict import Level, Verdict, domain_verdict, headline, verdict

DOMAIN_TITLES = {"vision": "Images", "genome": "Genomes", "text": "Text", "toy": "Toy problems", "stories": "Stories"}


@dataclass(frozen=True, slots=True)
class BoardView:
    """A board, the runs behind its rows and the numbers that its columns are sorted by."""

    anchor: str
    board: Board
    details: list[RowDetails]
    figures: list[Figure]
    looks: dict[str, Look]

    def sort_key(self, row: Row, column: Column) -> str:
        """A number for numeric columns, '' where there is none, else the text."""
        cell = row.cells.get(column.key)
        if cell is None:
            return ""
        if cell.summary is not None:
            return repr(cell.summary.mean)
        text = cell.text.removesuffix("M").replace(",", "")
        return cell.text if not column.numeric else text if text.replace(".", "", 1).isdigit() else ""

    def anchor_of(self, row: Row) -> str:
        """Of the details of a row; '' if it has none (a yardstick)."""
        return next((f"{self.anchor}-{index}" for index, detail in enumerate(self.details) if detail.name == row.name), "")

    @property
    def headline_key(self) -> str:
        column = headline(self.board)
        return column.key if column else ""


@dataclass(frozen=True, slots=True)
class TaskView:
    """boards: the current one first; others differ in what must not be compared."""

    card: TaskCard
    verdict: Verdict
    boards: list[BoardView]



@dataclass(frozen=True, slots=True)
class DomainView:
    name: str
    title: str
    pick: str
    level: Level
    text: str
    tasks: list[TaskView]  # results
    tuning: list[TaskView]  # folded, at the end


def build_page(
    cards: Iterable[TaskCard], submitted: Sequence[RunRecord], local: Sequence[RunRecord], scale: str, num_unread: int = 0
) -> str:
    """The HTML of all tasks that have records at this scale, domains in the order of the cards; it says how many were unreadable."""
    submitted, local = ([record for record in records if record.scale == scale] for records in (submitted, local))
    by_domain: dict[str, list[tuple[TaskCard, list[Board], list[Group]]]] = {}
    for card in cards:
        boards = build_boards(card, submitted, local)
        if boards:
            groups = group_records(card, card.metric(card.primary_metric), submitted, local)
            by_domain.setdefault(card.domain, []).append((card, boards, groups))
    domains = [_domain(name, tasks) for name, tasks in by_domain.items()]
    runs = {record.run_id for record in (*submitted, *local)}
    return _render(domains=domains, scale=scale, num_runs=len(runs), num_unread=num_unread, data=embedded_json(_data(domains, scale)))


def embedded_json(data: Any) -> Markup:
    """JSON that no text in it can end or turn into HTML: <, > and & are escaped, and the two line ends that scripts know."""
    text = json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _domain(name: str, tasks: list[tuple[TaskCard, list[Board], list[Group]]]) -> DomainView:
    looks = looks_of([board for card, boards, _ in tasks if not card.is_tuning for board in boards])
    views = [_task(card, boards, groups, looks) for card, boards, groups in tasks]
    results = [view for view in views if not view.card.is_tuning]
    pick, level, text = domain_verdict({view.card.name: view.verdict for view in results})
    return DomainView(name, DOMAIN_TITLES.get(name, name), pick, level, text, results, [view for view in views if view.card.is_tuning])


def _task(card: TaskCard, boards: list[Board], groups: list[Group], looks: dict[str, Look]) -> TaskView:
    views = []
    for index, (board, group) in enumerate(zip(boards, groups, strict=True)):
        is_drawn = not card.is_tuning
        figures = figures_of(card, board, group, looks) if is_drawn else []
        anchor = f"{card.name}-{index}" if index else card.name
        views.append(BoardView(f"runs-{anchor}", board, details_of(card, board, group), figures, looks if is_drawn else {}))
    return TaskView(card, verdict(boards[0], card.column_label or card.column_condition), views)


def _data(domains: list[DomainView], scale: str) -> dict[str, Any]:
    """The numbers of every board, unrounded, for programs that read the page."""
    tasks = [task for domain in domains for task in (*domain.tasks, *domain.tuning)]
    return {"scale": scale, "boards": [_board_data(task, view) for task in tasks for view in task.boards]}


def _board_data(task: TaskView, view: BoardView) -> dict[str, Any]:
    runs = {detail.name: [run.run_id for run in detail.runs] for detail in view.details}
    rows = []
    for row in view.board.rows:
        cells = {}
        for key, cell in row.cells.items():
            summary = cell.summary
            known = {} if summary is None else {"n": summary.n, "mean": summary.mean, "sd": summary.sd, "half_width": summary.half_width}
            cells[key] = {"text": cell.text, **known}
        rows.append({"name": row.name, "rank": row.rank, "label": row.label, "cells": cells, "runs": runs.get(row.name, [])})
    columns = [{"key": column.key, "head": column.head} for column in view.board.columns]
    return {"task": task.card.name, "version": task.card.version, "title": view.board.title, "columns": columns, "rows": rows}


def _render(**values: Any) -> str:
    folder = files(__package__)
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(folder.joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(style=Markup(style), script=Markup(script), **values)
