"""Quality against length or resolution: lines with bands over a log2 axis, each named at its right end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from ..plots.curves import Curve, Labels, length_label
from .svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Look, drawing, height_for, names, number, padded, tag, x_tick, y_axis

MIN_TICK_GAP = 34.0
MAX_MARKED = 20  # a longer line is drawn without markers


def line_chart(lines: Sequence[Curve], labels: Labels, looks: Mapping[str, Look], label: str) -> Markup:
    """looks: by the name of the line; references of `labels` are dashed lines across; label: what a screen reader says."""
    points = {line.name: _points(line) for line in lines}
    ys = [value for line in points.values() for _, *bounds in line for value in bounds] + list(labels.references.values())
    low, high = padded(ys)
    xs = sorted({x for line in points.values() for x, *_ in line})
    height = height_for(len(lines) + len(labels.references))
    bottom = height - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log2(x) - math.log2(xs[0])) / (math.log2(xs[-1]) - math.log2(xs[0]))
        return LEFT + 8 + share * (WIDTH - RIGHT - LEFT - 16), bottom - (y - low) / (high - low) * (bottom - TOP)

    right = WIDTH - RIGHT
    parts = [*y_axis(low, high, bottom, labels.y), *_x_axis(xs, place, bottom, labels.x)]
    ends: list[tuple[str, Look | None, float]] = []
    starts: list[float] = []
    for name, value in labels.references.items():
        y = place(xs[0], value)[1]
        parts.append(tag("line", x1=float(LEFT), x2=float(right), y1=y, y2=y, class_="reference"))
        ends.append((name, None, y))
        starts.append(right)
    for line in reversed(lines):  # the first one on top
        drawn = [(*place(x, y), place(x, least)[1], place(x, most)[1]) for x, y, least, most in points[line.name]]
        parts.append(_line(line, looks[line.name], drawn))
        ends.append((line.name, looks[line.name], drawn[-1][1]))
        starts.append(drawn[-1][0])
    labelled, heights = names(ends, bottom)
    ties = [
        tag("path", d=f"M{number(x + 7)} {number(y)}L{right + 14} {number(to)}", class_="tie")
        for x, (_, _, y), to in zip(starts, ends, heights, strict=True)
    ]
    return drawing(height, label, *parts, *ties, *labelled)


def _points(line: Curve) -> list[tuple[float, float, float, float]]:
    """(x, y, low, high) where y is known; without a band low = y = high."""
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    low, high = (y if bound is None else np.asarray(bound, float) for bound in (line.low, line.high))
    return [tuple(map(float, point)) for point in zip(x, y, low, high, strict=True) if not math.isnan(point[1])]


def _line(line: Curve, look: Look, drawn: list[tuple[float, float, float, float]]) -> Markup:
    parts = [tag("title", line.name)]
    if line.low is not None:
        outline = [(x, high) for x, _, _, high in drawn] + [(x, low) for x, _, low, _ in reversed(drawn)]
        parts.append(tag("path", d=_path(outline) + "z", class_="band"))
    parts.append(tag("path", d=_path([(x, y) for x, y, *_ in drawn]), class_="line"))
    if len(drawn) <= MAX_MARKED:
        parts += [look.marker(x, y) for x, y, *_ in drawn]
    return tag("g", *parts, class_=look.css, data_row=line.name)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _x_axis(xs: Sequence[float], place, bottom: float, title: str) -> list[Markup]:
    """A tick at every measured x that leaves room to the one before; of many, powers of two."""
    wanted = xs if len(xs) <= MAX_MARKED else [2.0**n for n in range(math.ceil(math.log2(xs[0])), math.floor(math.log2(xs[-1])) + 1)]
    parts, last = [tag("text", title, x=(LEFT + WIDTH - RIGHT) / 2, y=bottom + 38, class_="axis mid")], -math.inf
    for x in wanted:
        at = place(x, 0)[0]
        if at - last >= MIN_TICK_GAP:
            parts.append(x_tick(at, bottom, length_label(x)))
            last = at
    return parts
