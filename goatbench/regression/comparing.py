"""What a check finds: measured beside golden, job by job. Pure functions of two records, so that the gate itself is tested.

exact   every score, on the machine that made the golden record: equal but for rounding in the last digits.
spread  the gated metrics, on any machine: not worse than the seeds of the golden record allow.
cost    CPU-seconds over those of the baseline of the same run: not more than the golden ratio allows, on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from ..records.statistics import t_quantile
from .golden import GoldenJob, Measured, Scores

EXACT = 1e-6  # relative: float32 sums in another order, before training amplifies them
LEVEL = 0.99  # one cell in a hundred would fail by chance if its seeds were drawn anew; a check repeats golden seeds instead
COST_LEVEL = 0.95  # of single runs; a check takes the least of two, and of four before it calls a job slow
SLOWDOWN = 1.5  # between processors, ratios of two mechanisms differ by tens of per cent; a factor of 2 must not pass

Kind = Literal["run", "golden record", "exact", "spread", "cost", "environment"]
Verdict = Literal["ok", "better", "notice", "regression"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One class of comparison of one job. count: numbers compared; details: a line each for what did not agree."""

    job: str
    kind: Kind
    verdict: Verdict
    text: str
    count: int = 0
    details: tuple[str, ...] = ()


def compare_job(
    name: str, golden: GoldenJob | None, measured: Measured, baseline: Measured, gated: tuple[str, ...], machine: str
) -> list[Finding]:
    """All findings about one job."""
    if measured.failure is not None:
        return [Finding(name, "run", "regression", measured.failure)]
    if golden is None:
        return [Finding(name, "golden record", "regression", "there is none: write it with --update-golden --reason TEXT")]
    for field, label in (("identity", "configuration"), ("task_version", "task version"), ("data_fingerprint", "data")):
        a, b = getattr(golden, field), getattr(measured, field)
        if a != b:
            text = f"{label} is not that of the golden record ({a} then, {b} now): if that is meant, --update-golden --reason TEXT"
            return [Finding(name, "golden record", "regression", text)]
    exact, spread = compare_exactly(name, golden, measured, machine), compare_spread(name, golden, measured, gated)
    return [exact, spread, *compare_cost(name, golden, measured, baseline)]


def compare_exactly(name: str, golden: GoldenJob, measured: Measured, machine: str) -> Finding:
    """Every score of every seed against the golden one of the same machine; a machine without golden scores is a notice."""
    scores = golden.scores.get(machine)
    if scores is None:
        text = f"not compared: no golden scores of this machine ({machine}), only of {', '.join(golden.scores)}"
        return Finding(name, "exact", "notice", text)
    moved, count = [], 0
    for cell, by_seed in measured.scores.items():
        for seed, value in by_seed.items():
            if (old := scores.get(cell, {}).get(seed)) is None:
                continue
            count += 1
            if _share(old, value) > EXACT:
                moved.append((_share(old, value), f"{cell}, seed {seed}: {old:.9g} then, {value:.9g} now"))
    gone = [f"{cell}: not measured any more" for cell in scores if cell not in measured.scores]
    if not moved and not gone:
        return Finding(name, "exact", "ok", f"{count} scores equal", count)
    largest = f", by up to {max(moved)[0]:.1e} (relative)" if moved else ""
    text = f"{len(moved)} of {count} scores moved{largest}" + (f", {len(gone)} gone" if gone else "")
    return Finding(name, "exact", "regression", text, count, (*gone, *(line for _, line in sorted(moved, reverse=True))))


def compare_spread(name: str, golden: GoldenJob, measured: Measured, gated: tuple[str, ...]) -> Finding:
    """Means over the seeds of a check against the prediction interval of the golden seeds, in the direction of each metric."""
    lines: dict[Verdict, list[str]] = {"regression": [], "better": []}
    cells = [cell for cell in golden.directions if cell.partition(" ")[0] in gated]
    widest = 0.0
    for cell in cells:
        values, now = golden.pooled(cell), list(measured.scores.get(cell, {}).values())
        if not now:
            lines["regression"].append(f"{cell}: not measured any more")
            continue
        mean, limit = fmean(values), tolerance(values, len(now))
        change = fmean(now) - mean
        worse = {"higher": -change, "lower": change, "none": abs(change)}[golden.directions[cell]]
        widest = max(widest, limit / abs(mean)) if mean else widest
        if abs(worse) > limit:
            text = f"{cell}: {mean:.6g} over {len(values)} seeds then, {fmean(now):.6g} now ({change:+.3g}, allowed {limit:.3g})"
            lines["regression" if worse > 0 else "better"].append(text)
    if not cells:
        return Finding(name, "spread", "regression", f"nothing to compare: the golden record has none of {', '.join(gated)}")
    if lines["regression"]:
        text = f"{len(lines['regression'])} of {len(cells)} scores worse than the seeds allow"
        return Finding(name, "spread", "regression", text, len(cells), tuple(lines["regression"]))
    if lines["better"]:
        text = f"{len(lines['better'])} of {len(cells)} scores better than the seeds explain: --update-golden keeps the gain"
        return Finding(name, "spread", "better", text, len(cells), tuple(lines["better"]))
    return Finding(name, "spread", "ok", f"{len(cells)} within {100 * widest:.2g} %", len(cells))


def tolerance(values: list[float], seeds_now: int) -> float:
    """Half width of the one-sided prediction interval for the mean of `seeds_now` new seeds; rounding where seeds do not differ."""
    n = len(values)
    rounding = EXACT * abs(fmean(values))
    if n < 2:
        return rounding
    return max(rounding, t_quantile(LEVEL, n - 1) * stdev(values) * math.sqrt(1 / seeds_now + 1 / n))


def cost_limit(ratios: tuple[float, ...]) -> float:
    """How many times its golden ratio a cost may be: SLOWDOWN, or more where the golden ratios spread more."""
    if len(ratios) < 2:
        return SLOWDOWN
    logs = [math.log(ratio) for ratio in ratios]
    return max(SLOWDOWN, math.exp(t_quantile(COST_LEVEL, len(logs) - 1) * stdev(logs) * math.sqrt(1 + 1 / len(logs))))


def compare_cost(name: str, golden: GoldenJob, measured: Measured, baseline: Measured) -> list[Finding]:
    """Least cost of the runs over the least of the baseline's: whatever else the machine does can only add. Nothing for a baseline."""
    if not golden.cost_ratios:
        return []
    if baseline.failure is not None:
        return [Finding(name, "cost", "notice", "not compared: its baseline did not run")]
    then = math.exp(fmean(math.log(ratio) for ratio in golden.cost_ratios))
    now, limit = min(measured.costs) / min(baseline.costs), cost_limit(golden.cost_ratios)
    if 1 / limit <= now / then <= limit:
        return [Finding(name, "cost", "ok", f"{now:.2f} times the baseline's ({then:.2f} then)", 1)]
    text = f"{now:.2f} times the baseline's, {then:.2f} then: {now / then:.2f} times as much (allowed {limit:.2f})"
    return [Finding(name, "cost", "regression" if now > then else "better", text, 1)]


def relative_change(old: Scores, new: Scores) -> float:
    """The largest one over the cells and seeds that both have; infinite if they share none."""
    shared = [(cell, seed) for cell, by_seed in old.items() for seed in by_seed if seed in new.get(cell, {})]
    return max((_share(old[cell][seed], new[cell][seed]) for cell, seed in shared), default=math.inf)


def _share(a: float, b: float) -> float:
    """|a - b| over the larger of the two; 0 for equal values, zeros among them."""
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))


def is_regression(findings: list[Finding]) -> bool:
    """Whether the check fails: on any regression, and if not a single number was compared."""
    return any(finding.verdict == "regression" for finding in findings) or not any(finding.count for finding in findings)


def slow_jobs(findings: Mapping[str, list[Finding]]) -> list[str]:
    """Jobs whose cost should be measured once more before anybody is alarmed."""
    return [name for name, found in findings.items() if any(one.kind == "cost" and one.verdict == "regression" for one in found)]
