"""Boards as files: Markdown, CSV, LaTeX, HTML, JSON and plain text. Equal boards give equal bytes; nothing holds a time.

CSV and JSON carry every number unrounded in the metric's own unit, and of every interval its ends (of the difference, if there is one)
and its method; the others show what the terminal shows.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from .board import Board, Cell, Column, Row, markdown, to_text
from .files import one_line

TEXT_WIDTH = 160
CSV_FIELDS = (
    "kind", "task", "version", "scale", "metric", "unit", "direction", "chance", "rank", "row", "marks", "local", "pareto", "column",
    "headline", "n", "mean", "sd", "half_width_95", "difference", "difference_n", "difference_sd", "difference_half_width_95", "p_holm",
    "interval_low", "interval_high", "interval_method", "number", "text", "shared",
)  # fmt: skip
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "◆": r"$\diamond$", "·": r"$\cdot$", "–": "--",
    "<": r"$<$", ">": r"$>$", "|": r"$|$", "…": r"\dots{}",
}  # fmt: skip
_STYLE = """\
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { margin: 1rem auto; max-width: 80rem; padding: 0 1rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; }
caption { text-align: left; font-weight: bold; padding: .5rem 0; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); text-align: left; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.dim { opacity: .7; }
details { margin: .5rem 0 2rem; }
"""


def render(boards: Sequence[Board], form: str) -> str:
    """form: terminal (plain text), md, csv, latex, html or json."""
    if form in ("csv", "html", "json"):
        return {"csv": to_csv, "html": to_html, "json": to_json}[form](boards)
    one = {"terminal": lambda board: to_text(board, TEXT_WIDTH), "md": markdown, "latex": to_latex}[form]
    return "\n".join(one(board) for board in boards)


def page(boards: Sequence[Board]) -> str:
    """One Markdown page: what it is, a list of its tasks, and their boards under headings."""
    names = list(dict.fromkeys(board.facts["task"] for board in boards))
    lines = ["# Leaderboard", "", "Published results, task by task; made by `goatbench leaderboard` from the records in this folder.", ""]
    lines += [f"- [{name}](#{name})" for name in names]
    parts = ["\n".join(lines) + "\n"]
    for name in names:
        parts += [f"## {name}\n", *(markdown(board) for board in boards if board.facts["task"] == name)]
    return "\n".join(parts)


def to_json(boards: Sequence[Board]) -> str:
    """{"format": ..., "boards": [{title, facts, columns, rows, notes}]}; strict JSON, keys in a fixed order."""
    listed = [
        {
            "title": board.title,
            "facts": dict(board.facts),
            "columns": [{"key": c.key, "head": c.head, "is_score": c.is_score} for c in board.columns],
            "rows": [_row_data(row, board) for row in board.rows_in_detail()],
            "notes": list(board.notes),
        }
        for board in boards
    ]
    return json.dumps({"format": "goatbench-leaderboard-1", "boards": listed}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(boards: Sequence[Board]) -> str:
    """One line a cell. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.DictWriter(file, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for board in boards:
        facts = board.facts
        shared = {key: facts.get(key) for key in ("kind", "task", "version", "scale", "metric", "unit", "direction", "chance")}
        shared["shared"] = json.dumps(facts["shared"], sort_keys=True) if "shared" in facts else ""
        for row in board.rows_in_detail():
            flags = {"rank": row.rank, "row": row.name, "marks": " ".join(row.marks), "local": row.is_local, "pareto": row.is_pareto}
            for column in board.columns:
                if column.key in row.cells:
                    cell = _cell_data(row.cells[column.key]) | {"column": column.key, "headline": f"{facts.get('headline')}" == column.key}
                    writer.writerow({name: _harmless(value) for name, value in (shared | flags | cell).items()})
    return file.getvalue()


def to_latex(board: Board) -> str:
    """A table for the package booktabs, notes as a list below it."""
    heads = ["rank", "row", *(column.head for column in board.columns)]
    lines = [r"\begin{table}", rf"\caption{{{_tex(board.title)}}}", r"\begin{tabular}{ll" + _alignment(board.columns) + "}", r"\toprule"]
    lines += [" & ".join(map(_tex, heads)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(_tex, [row.rank, row.label, *_texts(row, board)])) + r" \\" for row in board.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if board.notes:
        lines += [r"\begin{itemize}", *(rf"\item {_tex(note)}" for note in board.notes), r"\end{itemize}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_html(boards: Sequence[Board]) -> str:
    """One page that opens offline and needs no script."""
    parts = ['<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>goatbench leaderboard</title>']
    parts += ['<meta name="viewport" content="width=device-width, initial-scale=1">', f"<style>\n{_STYLE}</style>", "</head>\n<body>"]
    for board in boards:
        parts += ["<div>\n<table>", f"<caption>{_text(board.title)}</caption>", "<thead><tr>"]
        heads = [("rank", False), ("row", False), *((column.head, column.numeric) for column in board.columns)]
        parts += [f'<th scope="col"{_class(numeric)}>{_text(head)}</th>' for head, numeric in heads]
        parts.append("</tr></thead>\n<tbody>")
        for row in board.rows:
            dim = ' class="dim"' if row.is_control or row.is_reference or row.is_unlearned or row.is_reported else ""
            cells = zip(_texts(row, board), board.columns, strict=True)
            found = "".join(f"<td{_class(column.numeric)}>{_text(text)}</td>" for text, column in cells)
            parts.append(f'<tr{dim}><td>{_text(row.rank)}</td><th scope="row">{_text(row.label)}</th>{found}</tr>')
        parts += ["</tbody>\n</table>\n</div>", "<details><summary>what is significant, n, data, budget, protocol</summary>\n<ul>"]
        parts += [*(f"<li>{_text(note)}</li>" for note in board.notes), "</ul>\n</details>"]
    return "\n".join([*parts, "</body>\n</html>"]) + "\n"


def _row_data(row: Row, board: Board) -> dict[str, Any]:
    cells = {c.key: {k: v for k, v in _cell_data(row.cells[c.key]).items() if v is not None} for c in board.columns if c.key in row.cells}
    marks = {"marks": row.marks, "local": row.is_local, "plain": row.is_plain, "pareto": row.is_pareto}
    return {"row": row.name, "rank": row.rank, **marks, "cells": cells}


def _cell_data(cell: Cell) -> dict[str, Any]:
    data: dict[str, Any] = {"text": cell.text, "number": cell.number}
    if (s := cell.summary) is not None:
        data |= {"n": s.n, "mean": s.mean, "sd": s.sd, "half_width_95": s.half_width}
    if (d := cell.difference) is not None:
        data |= {"difference": d.mean, "difference_n": d.n, "difference_sd": d.sd, "difference_half_width_95": d.half_width}
        data["p_holm"] = cell.p_adjusted
    interval, method = cell.interval, cell.interval_method
    if interval is None and (of := cell.difference or cell.summary) is not None and of.half_width is not None:
        interval = of.mean - of.half_width, of.mean + of.half_width
        method = "95 % t over seeds" if cell.difference is None else "95 % t over paired seeds"
    if interval is not None:
        data |= {"interval_low": interval[0], "interval_high": interval[1], "interval_method": method}
    return data


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
    clean = one_line(value, 4000)
    return f"'{clean}" if clean.startswith(("=", "+", "-", "@")) and clean != "-" else clean


def _texts(row: Row, board: Board) -> list[str]:
    return [one_line(row.cells.get(column.key, Cell("-")).text, 40) for column in board.columns]


def _alignment(columns: Sequence[Column]) -> str:
    return "".join("r" if column.numeric else "l" for column in columns)


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in one_line(text, 2000))


def _text(text: str) -> str:
    return escape(one_line(text, 2000))


def _class(numeric: bool) -> str:
    return ' class="n"' if numeric else ""
