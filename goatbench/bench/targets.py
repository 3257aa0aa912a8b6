"""What the attention core promises, and whether a measurement keeps it. A miss is printed like a hit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .timing import Quartiles


@dataclass(frozen=True, slots=True)
class Result:
    """One judged number. verdict: PASS or MISS on the value (a median, where there are rounds); '-' where no target is set or
    the settings are not those the target was set for."""

    part: str
    where: str
    what: str
    value: float
    q1: float | None
    q3: float | None
    rounds: int | None
    target: str
    verdict: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def judge(
    part: str, where: str, what: str, value: float | Quartiles, at_most: float | None = None, at_least: float | None = None
) -> Result:
    """Compare with one bound, or with none (printed as it is)."""
    spread = value if isinstance(value, Quartiles) else None
    number = spread.median if spread else float(value)
    target, verdict = "", "-"
    if at_most is not None:
        target, verdict = f"<= {at_most:g}", "PASS" if number <= at_most else "MISS"
    elif at_least is not None:
        target, verdict = f">= {at_least:g}", "PASS" if number >= at_least else "MISS"
    quartiles = (spread.q1, spread.q3, spread.rounds) if spread else (None, None, None)
    return Result(part, where, what, number, *quartiles, target, verdict)


def unjudged(results: list[Result]) -> list[Result]:
    """The same numbers without a verdict: settings for which no target was set."""
    return [Result(**{**asdict(r), "verdict": "-"}) for r in results]


# goat : rival -> bound on their time ratio, at (batch, tokens) with fewer or with at least 1,024 tokens
PLAIN_AT_MOST = 1.05
ROPE_AT_MOST = 1.00
PUBLISHED_AT_LEAST, PUBLISHED_AT_LEAST_LONG, LONG = 1.10, 1.00, 1024
PREPARATION_AT_LEAST = 3.5
SHARE_AT_MOST = {197: 0.13, 1024: 0.05}  # tokens -> preparation's share of the fused kernel's time
SAVED_AT_MOST, PEAK_AT_MOST = 1.01, 1.02
GRAPHS_AT_MOST = 2
BF16_AT_MOST = 5e-3


def judge_times(part: str, where: str, tokens: int, ratios: Mapping[tuple[str, str], Quartiles]) -> list[Result]:
    """ratios: (numerator, denominator) -> quartiles of the time ratio of two variants of a layer or stack."""
    results = []
    for (above, below), value in ratios.items():
        bound: dict[str, float] = {}
        if (above, below) == ("goat", "plain"):
            bound = {"at_most": PLAIN_AT_MOST}
        elif above == "goat" and below.startswith("rope"):
            bound = {"at_most": ROPE_AT_MOST}
        elif (above, below) == ("goat-attention", "goat"):
            bound = {"at_least": PUBLISHED_AT_LEAST_LONG if tokens >= LONG else PUBLISHED_AT_LEAST}
        results.append(judge(part, where, f"{above} / {below}", value, **bound))
    return results
