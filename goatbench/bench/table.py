"""The benchmark as plain text, at most 80 columns wide."""

from __future__ import annotations

from .parts import Measured, Settings
from .timing import Quartiles


def render(measured: Measured, settings: Settings) -> str:
    lines: list[str] = []
    for part, shapes in measured.seconds.items():
        lines += ["", f"{part}, forward + backward: ms of CPU time of one thread", f"  {'shape':9}{'variant':16}{'median':>9}  [quartiles]"]
        for shape, variants in shapes.items():
            for name, seconds in variants.items():
                q = Quartiles.of(seconds)
                lines.append(f"  {shape:9}{name:16}{1e3 * q.median:9.1f}  [{1e3 * q.q1:.1f}, {1e3 * q.q3:.1f}] in {q.rounds} rounds")
    if measured.results:
        lines += ["", f"{'part, where':19}{'what':28}{'value':>7} {'[quartiles]':12}target"]
    for r in measured.results:
        spread = f"[{r.q1:.2f},{r.q3:.2f}]" if r.q1 is not None else ""
        lines.append(f"{r.part + ' ' + r.where:19}{r.what:28}{_number(r.value):>7} {spread:12}{r.target:9}{r.verdict}".rstrip(" -"))
    lines += [f"note: {note}" for note in measured.notes]
    if not settings.judges:
        lines.append("note: --quick has tiny shapes and two rounds: the numbers mean nothing and are not judged")
    return "\n".join(lines).lstrip("\n")


def _number(value: float) -> str:
    return f"{value:.1e}" if 0 < abs(value) < 0.01 else f"{value:.3f}"
