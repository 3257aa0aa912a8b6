"""What `goatbench report` does: reads published results and own runs and writes the page."""

from __future__ import annotations

from pathlib import Path

from ..boards import Places
from ..errors import UsageError
from ..records.collection import collection_paused
from ..registry import load_plugins, tasks, unknown


@collection_paused()
def write_report(out: str, scale: str, runs_dir: str, results_dir: str | None) -> Path:
    """Write the page, whole or not at all. UsageError if there is nothing to report or `out` cannot be written."""
    from ..records.files import replace_atomic
    from ..records.store import iter_records, say_unread
    from .page import build_page

    path = Path(out)
    if path.is_dir() or path.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {out}: name a file that ends with .html")
    if not path.parent.is_dir():
        raise UsageError(f"--out {out}: no folder {path.parent}; create it first")
    places = Places(runs_dir, results_dir)
    root, own = places.root(), places.own()
    load_plugins()
    warnings: list[str] = []
    submitted = list(iter_records(root, warnings))
    local = list(iter_records(own, warnings)) if own is not None else []
    say_unread(warnings)
    measured = {record.task.name for record in (*submitted, *local) if record.scale == scale}
    if not measured:
        scales = sorted({record.scale for record in (*submitted, *local)} | {"smoke", "embedded", "paper"})
        if scale not in scales:
            raise UsageError(unknown("scale", scale, scales))
        raise UsageError(f"no results at scale {scale} yet; make one with: goatbench run task=vit_res512 scale={scale}")
    cards = [tasks.get(name).card for name in tasks.names() if name in measured]
    replace_atomic(path, build_page(cards, submitted, local, scale, num_unread=len(warnings)).encode("utf-8"))
    return path
