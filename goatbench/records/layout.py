"""Where runs and results lie on disk.

    runs_dir/<run_id>/started.json                         before anything else: a crash leaves a trace
    runs_dir/<run_id>/record.json                          at the end, atomically and exclusively
    results/<task>@v<int>/<scale>/<row>/<run_id>.json      what was submitted
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from pathlib import Path

from ..errors import UsageError
from .canonical import digest
from .record import NAME_PATTERN, RunRecord

MARKER = "started.json"
RECORD = "record.json"
_TASK_FOLDER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}@v[1-9][0-9]{0,5}")


def results_root() -> Path:
    """The results that came with this installation (`goatbench.results`): in a checkout, its results/ folder."""
    from importlib.resources import files

    return Path(str(files("goatbench.results")))


def submission_root() -> Path:
    """The results of this source tree, where a commit publishes what is placed. UsageError from an installed package, which loses what
    is placed in it with its next installation."""
    root = results_root()
    if not (root.parent / "pyproject.toml").is_file():
        raise UsageError(f"{root} is part of an installed package and not kept: name a folder with --results-dir DIR, or use a checkout")
    return root


def placed_at(record: RunRecord) -> Path:
    """Where a record belongs, relative to the results folder. Every part is a valid name, whatever the record says."""
    row = record.row.attention
    if record.row.variant:
        row = f"{row[:54]}-{digest([row, record.row.variant])[:8]}"
    parts = (f"{record.task.name}@v{record.task.version}", record.scale, row, f"{record.run_id}.json")
    assert _TASK_FOLDER.fullmatch(parts[0]) and all(re.fullmatch(NAME_PATTERN, part) for part in parts[1:]), parts
    return Path(*parts)


def record_paths(root: Path, tasks: Container[str] | None = None) -> Iterator[tuple[Path, bool]]:
    """Record files, and whether each lies in a run folder. tasks: published records of other tasks are not looked at."""
    for folder in folders(root):
        if os.path.lexists(folder / RECORD):  # also in a folder whose name is no run id: it is named, not passed over
            yield folder / RECORD, True
        elif _TASK_FOLDER.fullmatch(folder.name) and (tasks is None or folder.name.partition("@")[0] in tasks):
            for scale in folders(folder):
                for row in folders(scale):
                    for path in sorted(row.iterdir()):
                        if path.suffix == ".json" and not path.name.startswith("."):
                            yield path, False


def folders(root: Path) -> list[Path]:
    """Sub-folders by name; symbolic links are not followed."""
    try:
        with os.scandir(root) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read the folder {root}: {error.strerror}") from None
