"""`goatbench bench attention`: what GOAT costs in time and memory beside plain attention, RoPE and its published package."""

from __future__ import annotations

from ..errors import UsageError
from ..progress import Progress
from ..records.environment import describe_environment, package_version
from . import arguments as parse
from . import parts, table
from .parts import PARTS, Settings
from .record import now, record_bytes, writable, write


def main(argv: list[str]) -> int:
    """Measure, print, and with --out write one JSON record. UsageError in one line for what a user can cause."""
    arguments = parse.attention(argv)
    out = writable(arguments.out)
    settings = Settings.quick() if arguments.quick else Settings.full()
    chosen = _chosen(arguments.only)
    started = now()
    measured = measure(settings, chosen)
    print(table.render(measured, settings))
    if out is not None:
        environment = describe_environment(threads=1) | {"goat-attention": package_version("goat-attention")}
        kept = {"settings": settings.as_json() | {"parts": list(chosen)}, **measured.as_json()}
        write(out, record_bytes("attention", started, environment, **kept))
    return 0


def measure(settings: Settings, chosen: tuple[str, ...]) -> parts.Measured:
    """Run the chosen parts, in the order of PARTS, with one progress display whose unit is the estimated work."""
    measured = parts.Measured()
    work = [job for part in chosen for job in PARTS[part](settings)]
    with Progress("bench attention", total=sum(job.cost for job in work), unit="work unit") as bar:
        for job in work:
            job.run(measured, lambda cost, label=job.label: bar.advance(cost, now=label))
    return measured


def _chosen(only: str | None) -> tuple[str, ...]:
    if only is None:
        return tuple(PARTS)
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown or not wanted:
        wrong = f"unknown part {unknown[0]!r}" if unknown else "no part named"
        raise UsageError(f"--only {only!r}: {wrong}; allowed are {', '.join(PARTS)}")
    return tuple(name for name in PARTS if name in wanted)
