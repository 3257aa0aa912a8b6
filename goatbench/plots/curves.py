"""Quality against length or resolution: one line an attention, what was reached without any model as dashed lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_HEIGHT = 0.058  # of the panel's height: two labels nearer than this would touch


@dataclass(frozen=True)
class Curve:
    """y [n] over x [n]; low and high [n] bound a band (a standard error, the range over seeds). NaN: no point there."""

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None


@dataclass(frozen=True)
class Labels:
    """Title and axis labels (with the unit). trained_at: the x of training, shown as a vertical line; band says what the band is."""

    title: str
    x: str
    y: str
    trained_at: float | None = None
    band: str = ""
    references: Mapping[str, float] = field(default_factory=dict)  # name -> y of a dashed line


def curves(lines: Sequence[Curve], labels: Labels, y_range: tuple[float, float] | None = None, log_y: bool = False) -> Figure:
    """Lines over a log2 x axis, each named at its right end in its own colour.

    y_range: where one line leaves the picture (extrapolation that fails) and the others should stay readable; such a line's name
    stands at the edge with an arrow.
    """
    if not lines:
        raise ValueError("a figure of curves needs at least one curve")
    with style.styled():
        figure, [axes] = style.panels(1, 8, 4.6)
        last = max(float(np.max(line.x)) for line in lines)
        ends: list[tuple[str, str, float]] = []  # name, colour, y
        for index, line in enumerate(lines):
            ends += _draw(axes, line, index, last)
        if log_y:
            axes.set_yscale("log")
        for name, y in labels.references.items():
            axes.axhline(y, color=style.GREY, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
            ends.append((name, style.GREY, y))
        if y_range:
            axes.set_ylim(*y_range)
        _x_axis(axes, lines)
        _name(axes, ends)
        _label(axes, labels)
    return figure


def length_label(x: float) -> str:
    """16,384 -> 16k, 1,048,576 -> 1M (powers of 1,024), anything else as it is."""
    for unit, size in (("M", 2**20), ("k", 2**10)):
        if x >= size and x % size == 0:
            return f"{x // size:.0f}{unit}"
    return f"{x:,g}"


def _draw(axes: Axes, line: Curve, index: int, last: float) -> list[tuple[str, str, float]]:
    """Draw one line with its band. Returns its name, colour and last height (nothing for a line without points).

    The name of a line that stops before `last` says where: "learned_absolute (to 512)".
    """
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    if x.shape != y.shape or x.ndim != 1 or not (x > 0).all():
        raise ValueError(f"curve {line.name}: x and y have one length and x is above 0 (its axis is log2), got {x.tolist()}, {y.tolist()}")
    colour = style.colour(index)
    [drawn] = axes.plot(x, y, color=colour, marker=style.marker(index), zorder=3)
    drawn.set_gid(f"curve-{index}")
    if line.low is not None and line.high is not None:
        axes.fill_between(x, np.asarray(line.low, float), np.asarray(line.high, float), color=colour, alpha=0.18, linewidth=0, zorder=2)
    known = np.flatnonzero(~np.isnan(y))
    if not len(known):
        return []
    end = known[-1]
    name = line.name if x[end] == last else f"{line.name} (to {length_label(x[end])})"
    return [(name, colour, float(y[end]))]


def _x_axis(axes: Axes, lines: Sequence[Curve]) -> None:
    """A tick at every measured x, and no other."""
    ticks = sorted({float(x) for line in lines for x in np.asarray(line.x, float)})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [length_label(x) for x in ticks])
    axes.set_xticks([], minor=True)
    margin = (ticks[-1] / ticks[0]) ** 0.03 if len(ticks) > 1 else 2.0
    axes.set_xlim(ticks[0] / margin, ticks[-1] * margin)


def _name(axes: Axes, ends: list[tuple[str, str, float]]) -> None:
    """Write each name right of the panel at its line's height; names that would touch are moved apart and tied by a thin line."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    shares = (axes.transData + axes.transAxes.inverted()).transform([(1.0, y) for _, _, y in ends])[:, 1]
    places = spread_apart(np.clip(shares, 0, 1), LINE_HEIGHT)
    for (name, colour, _), share, place in zip(ends, shares, places, strict=True):
        shown = f"{name} ↑" if share > 1 else f"{name} ↓" if share < 0 else name
        axes.annotate(
            shown,
            xy=(1.0, min(max(share, 0.0), 1.0)),
            xytext=(1.045, place),
            xycoords="axes fraction",
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )


def spread_apart(heights: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """[n] heights in the same order, at least `gap` apart, each group of neighbours around the mean of where it belongs."""
    order = np.argsort(heights, kind="stable")
    groups: list[list[float]] = []  # [mean of the wanted heights, size]
    for height in heights[order]:
        groups.append([float(height), 1])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            (mean, size), (mean_below, size_below) = groups.pop(), groups.pop()
            groups.append([(mean * size + mean_below * size_below) / (size + size_below), size + size_below])
    placed = [mean + gap * (place - (size - 1) / 2) for mean, size in groups for place in range(int(size))]
    result = np.empty(len(heights))
    result[order] = placed
    return result


def _label(axes: Axes, labels: Labels) -> None:
    axes.set(title=labels.title, xlabel=labels.x, ylabel=f"{labels.y}\n(band: {labels.band})" if labels.band else labels.y)
    if labels.trained_at is not None:
        axes.axvline(labels.trained_at, color=style.PALE, linewidth=1.2, zorder=1)
        axes.text(labels.trained_at, 1.0, " trained here", transform=axes.get_xaxis_transform(), color=style.GREY, fontsize=9, va="top")
