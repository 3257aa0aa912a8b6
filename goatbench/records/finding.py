"""From what a user types to records: a run id, a run folder, a record file, a folder of runs, or the name of a row."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .comparing import Side
from .files import CURE, one_line, read_record
from .grouping import row_name
from .layout import RECORD, placed_at
from .record import RUN_ID_PATTERN, RunRecord
from .store import iter_records, say_unread
from .submission import LAST, record_file

BEGINNING = r"[0-9]{8}(t[0-9a-f-]*)?"  # of a run id: its day at least
NAMED = 5  # run ids that an error lists


def is_run(text: str) -> bool:
    """Whether this names a run rather than something by its name: a run id or its beginning, "last", or a path to what is there."""
    is_path = os.path.lexists(text) and ("/" in text or Path(text).suffix == ".json")
    return text == LAST or bool(re.fullmatch(BEGINNING, text)) or is_path or os.path.lexists(Path(text) / RECORD)


def find_record(run: str, runs_dir: Path | str | None, published: Path | str) -> Path:
    """The record file of a run id (own, then published), run folder or record file; the beginning of an id will do if one run has it.
    UsageError in one line if there is none."""
    if not re.fullmatch(BEGINNING, run) or Path(run).exists():
        return record_file(run, Path(runs_dir or "."))
    found = {path.stem: path for path in sorted(Path(published).glob(f"*@v*/*/*/{run}*.json"))}
    if runs_dir is not None:
        found |= {path.parent.name: path for path in sorted(Path(runs_dir).glob(f"{run}*/{RECORD}"))}
    if not found:
        raise UsageError(f"no finished run {run}: neither in {runs_dir} nor among the published results; name its folder or --runs-dir")
    if len(found) > 1:
        raise UsageError(f"{len(found)} run ids begin with {run}: {', '.join(sorted(found)[:NAMED])}{' ...' if len(found) > NAMED else ''}")
    return next(iter(found.values()))


def find_side(text: str, records: Sequence[RunRecord], runs_dir: Path | str | None, published: Path | str) -> Side:
    """One side of a comparison. records: all that are known, where a row's name is looked up."""
    if not is_run(text) and not Path(text).is_dir():
        return _side_of_row(text, records)
    path = Path(text)
    is_folder_of_runs = path.is_dir() and not os.path.lexists(path / RECORD)
    found = _records_in(path) if is_folder_of_runs else [read_record(find_record(text, runs_dir, published), CURE)]
    rows = sorted({row_name(record) for record in found})
    if len(rows) != 1:
        raise UsageError(one_line(f"{text} holds runs of {len(rows)} rows ({', '.join(rows)}): name one run, or a folder with one row"))
    label = rows[0] if len(found) > 1 else f"{rows[0]} ({found[0].run_id})"
    return Side(label, rows[0], found)


def _side_of_row(text: str, records: Sequence[RunRecord]) -> Side:
    from ..registry import nearest

    found = _runs_of_row(text, records)
    if not found:
        attention = text.partition("[")[0]
        rows = {row_name(record) for record in records if record.row.attention == attention}
        known = sorted(rows or {record.row.attention for record in records})
        guess = nearest(text if rows else attention, known)
        hint = f"did you mean '{guess}'? " if guess else ""
        raise UsageError(
            one_line(f"no results of '{text}'; {hint}rows with results: {', '.join(known) or 'none'}; or name a run id or a folder", 1500)
        )
    return Side(text, text, found)


def _runs_of_row(row: str, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs by this name; of a variant of evaluation ('goat[coords=scaled]') those that it is a variant of."""
    by_name: dict[str, list[RunRecord]] = {}
    for record in records:
        by_name.setdefault(row_name(record), []).append(record)
    beginnings = [name for name in by_name if row.startswith((f"{name}[", f"{name.removesuffix(']')},"))]
    return by_name.get(row) or by_name.get(max(beginnings, key=len, default=""), [])


def _records_in(folder: Path) -> list[RunRecord]:
    """Of a runs_dir, a results folder, or a row's folder inside one."""
    warnings: list[str] = []
    found = list(iter_records(folder, warnings))
    for path in sorted(folder.rglob("*.json")) if not found else []:
        if re.fullmatch(RUN_ID_PATTERN, path.stem):
            record = read_record(path)
            if path.parts[-2:] != placed_at(record).parts[-2:]:
                raise UsageError(f"{path} is in the wrong place: its record belongs at {placed_at(record)}")
            found.append(record)
    if not found:
        raise UsageError(one_line(f"{folder} holds no record{': ' + warnings[0] if warnings else ''}"))
    say_unread(warnings)
    return found
