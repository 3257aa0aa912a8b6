"""Small multiples: the same curve of many places (layers, heads, regions, rows), a panel a place, all over the same axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from ..plots.curves import Curve
from .svg import Look, number, padded, tag, tick_texts, ticks, x_tick

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 280, 190, 44, 10, 26, 40  # of the drawing's own units; the curves lie inside
MAX_POINTS = 128  # of a curve; of more every second, third, ... is drawn


@dataclass(frozen=True, slots=True)
class Panel:
    """title above its lines; each has the colour of its name in every panel."""

    title: str
    lines: Sequence[Curve]


def panels(shown: Sequence[Panel], x_title: str, y_title: str, greys: Sequence[str] = (), depth: float = math.inf) -> Markup:
    """A drawing a panel, both axes linear and the same in all, and below them what the colours are.

    greys: names of lines that are what others are compared with. depth: what lies so much below the highest value is cut off.
    """
    lines = [line for panel in shown for line in panel.lines]
    ys, xs = ([value for line in lines for value in values(line)] for values in (lambda line: line.y, lambda line: line.x))
    low, high = padded([max(y, max(ys) - depth) for y in ys])
    named = list(dict.fromkeys(line.name for line in lines if line.name not in greys))
    looks = {line.name: Look() for line in lines} | {name: Look(index) for index, name in enumerate(named)}
    scale = _Scale(min(xs), max(xs), low, high)
    drawings = [_panel(panel, looks, scale, x_title, y_title) for panel in shown]
    return tag("div", *drawings, class_="panels") + _legend(looks)


@dataclass(frozen=True, slots=True)
class _Scale:
    """The range of both axes, and where a point of it lies."""

    left: float
    right: float
    low: float
    high: float

    def place(self, x: float, y: float) -> tuple[float, float]:
        across, up = (x - self.left) / (self.right - self.left or 1.0), (y - self.low) / (self.high - self.low)
        return LEFT + across * (WIDTH - RIGHT - LEFT), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP)


def _panel(panel: Panel, looks: Mapping[str, Look], scale: _Scale, x_title: str, y_title: str) -> Markup:
    parts = [tag("text", panel.title, x=float(LEFT), y=15.0, class_="axis"), *_axes(scale, x_title)]
    parts += [_line(line, looks[line.name], scale) for line in reversed(panel.lines)]  # the first one on top
    said = "; ".join(f"{line.name} from {line.y[0]:.3g} at {line.x[0]:g} to {line.y[-1]:.3g} at {line.x[-1]:g}" for line in panel.lines)
    label = f"{panel.title}: {y_title} by {x_title}. {said}."
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _axes(scale: _Scale, x_title: str) -> list[Markup]:
    parts = []
    values = ticks(scale.low, scale.high, 4)
    for value, text in zip(values, tick_texts(values), strict=True):
        y = scale.place(scale.left, value)[1]
        parts.append(tag("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=y, y2=y, class_="grid"))
        parts.append(tag("text", text, x=LEFT - 6.0, y=y + 4.5, class_="tick end"))
    values = ticks(scale.left, scale.right, 3)
    for value, text in zip(values, tick_texts(values), strict=True):
        parts.append(x_tick(scale.place(value, scale.low)[0], HEIGHT - BOTTOM, text))
    return [*parts, tag("text", x_title, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 5.0, class_="axis mid")]


def _line(line: Curve, look: Look, scale: _Scale) -> Markup:
    """In pieces, where it leaves the panel below."""
    points = list(zip(line.x, line.y, strict=True))[:: -(-len(line.x) // MAX_POINTS)]
    pieces = [list(piece) for inside, piece in groupby(points, lambda point: point[1] >= scale.low) if inside]
    places = [[scale.place(x, y) for x, y in piece] for piece in pieces]
    path = "".join("M" + "L".join(f"{number(x)} {number(y)}" for x, y in piece) for piece in places)
    return tag("g", tag("title", line.name), tag("path", d=path, class_="line"), class_=look.css)


def _legend(looks: Mapping[str, Look]) -> Markup:
    if len(looks) == 1:
        return Markup()
    names = [
        tag("span", tag("svg", look.marker(0, 0), viewBox="-7 -7 14 14", class_=f"swatch {look.css}", aria_hidden="true"), name)
        for name, look in looks.items()
    ]
    return tag("p", *names, class_="legend")
