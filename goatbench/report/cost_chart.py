"""Quality against cost: a point a row, and a line through the rows that no other row beats on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..records.costs import undominated
from .svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Look, drawing, height_for, names, number, padded, tag, tick_texts, ticks, x_tick, y_axis


@dataclass(frozen=True, slots=True)
class Point:
    """cost: lower is better; quality and its standard deviation (0 if unknown) in the unit shown."""

    name: str
    cost: float
    quality: float
    spread: float


def frontier(points: Sequence[Point], is_higher_better: bool) -> list[Point]:
    """The points whose means no other one beats, cheapest first."""
    sign = 1 if is_higher_better else -1
    best = undominated({p.name: (sign * p.quality, p.cost) for p in points})
    return sorted((p for p in points if p.name in best), key=lambda p: (p.cost, p.name))


def cost_chart(
    points: Sequence[Point], best: Sequence[Point], looks: dict[str, Look], titles: tuple[str, str], is_higher_better: bool, label: str
) -> Markup:
    """titles: of x and y; best: the frontier, drawn as steps: between two of its points the better one is not to be had."""
    low, high = padded([value for p in points for value in (p.quality - p.spread, p.quality + p.spread)])
    least, most = padded([p.cost for p in points], 0.08)
    height = height_for(len(points))
    bottom = height - BOTTOM
    right = float(WIDTH - RIGHT)

    def place(cost: float, quality: float) -> tuple[float, float]:
        return LEFT + (cost - least) / (most - least) * (right - LEFT), bottom - (quality - low) / (high - low) * (bottom - TOP)

    parts = [*y_axis(low, high, bottom, titles[1]), tag("text", titles[0], x=(LEFT + right) / 2, y=bottom + 38, class_="axis mid")]
    values = ticks(least, most)
    parts += [x_tick(place(value, low)[0], bottom, text) for value, text in zip(values, tick_texts(values), strict=True)]
    steps = [place(p.cost, p.quality) for p in best]
    start = f"M{number(steps[0][0])} {number(bottom if is_higher_better else TOP)}"
    path = start + "".join(f"V{number(y)}H{number(x)}" for (_, y), (x, _) in zip(steps, [*steps[1:], (right, 0.0)], strict=True))
    parts.append(tag("path", d=path, class_="frontier"))
    for p in reversed(points):
        x, y = place(p.cost, p.quality)
        whisker = tag("line", x1=x, x2=x, y1=place(0, p.quality - p.spread)[1], y2=place(0, p.quality + p.spread)[1], class_="whisker")
        parts.append(tag("g", tag("title", p.name), whisker, looks[p.name].marker(x, y), class_=looks[p.name].css, data_row=p.name))
    labelled, _ = names([(p.name, looks[p.name], place(p.cost, p.quality)[1]) for p in points], bottom)
    return drawing(height, label, *parts, *labelled)
