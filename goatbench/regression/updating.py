"""New golden records from a run of the suite, with a reason and what moved. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from .comparing import EXACT, relative_change
from .golden import MAX_HISTORY, Change, Golden, GoldenJob, Measured


def updated(
    golden: Golden, measured: Mapping[str, Measured], baselines: Mapping[str, str], gated: Mapping[str, tuple[str, ...]],
    seeds: tuple[int, ...], machine: str, reason: str,
) -> Golden:  # fmt: skip
    """`golden` with these jobs put anew, and one entry of history that says what moved.

    baselines: job -> job of its costs. gated: job -> metrics that keep all seeds; other cells keep `seeds` only. Scores of other
    machines stay while they agree with the new ones within the tolerance of the exact class, and go with the numbers they belonged to.
    """
    jobs, changes = dict(golden.jobs), []
    for name, new in measured.items():
        assert new.failure is None, new.failure
        old = jobs.get(name)
        scores = {
            cell: by_seed if cell.partition(" ")[0] in gated[name] else {seed: by_seed[seed] for seed in seeds if seed in by_seed}
            for cell, by_seed in new.scores.items()
        }
        others = dict(old.scores) if old is not None and old.identity == new.identity else {}
        before = others.pop(machine, None)
        if before is not None and relative_change(before, scores) > EXACT:
            others = {}
        base = measured[baselines[name]]
        jobs[name] = GoldenJob(
            identity=new.identity, task_version=new.task_version, data_fingerprint=new.data_fingerprint, directions=new.directions,
            scores={**others, machine: scores},
            cost_ratios=() if new is base else tuple(a / b for a, b in zip(new.costs, base.costs, strict=True)),
        )  # fmt: skip
        changes += _changes(name, old, jobs[name], gated[name])
    entry = Change(reason=reason, machine=machine, changes=tuple(changes))
    return golden.model_copy(update={"jobs": jobs, "history": (*golden.history, entry)[-MAX_HISTORY:]})


def _changes(name: str, old: GoldenJob | None, new: GoldenJob, gated: tuple[str, ...]) -> list[str]:
    """'needle/goat nll_nats multiple=1: 2.31 -> 2.28 (-1.3 %)' for each gated cell and cost that moved."""
    if old is None:
        return [f"{name}: new"]
    lines = []
    for field in ("identity", "task_version", "data_fingerprint"):
        a, b = getattr(old, field), getattr(new, field)
        lines += [f"{name} {field}: {a} -> {b}"] if a != b else []
    lines += [f"{name}: new machine {machine}" for machine in new.scores if machine not in old.scores]
    lines += [f"{name}: machine {machine} dropped, its numbers are of before" for machine in old.scores if machine not in new.scores]
    for cell in dict.fromkeys([*old.directions, *new.directions]):
        if cell.partition(" ")[0] in gated:
            lines += _moved(f"{name} {cell}", old.pooled(cell), new.pooled(cell))
    return lines + _moved(f"{name} cost over the baseline's", list(old.cost_ratios), list(new.cost_ratios))


def _moved(name: str, old: list[float], new: list[float]) -> list[str]:
    if old == new:
        return []
    if not old or not new:
        return [f"{name}: {'new' if new else 'gone'}"]
    a, b = fmean(old), fmean(new)
    share = f" ({100 * (b - a) / abs(a):+.2g} %)" if a else ""
    return [f"{name}: {a:.6g} -> {b:.6g}{share}"]
