"""Log-priors taken apart, one below the other: term of the key, term of the offset, the whole, and the probabilities that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..metrics.prior_parts import PriorParts
from . import style
from .heat_map import COLOUR_MAP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADS = ("term of the key, sink(j)", "term of the offset, relative(i - j)", "row-centred log p(j | i)", "p(j | i)")
CENTRED_MAP = "PuOr"  # diverging, told apart with any colour vision (ColorBrewer)


def prior_parts(shown: Mapping[str, PriorParts], title: str) -> Figure:
    """A row a name, four panels: two curves in nats, two maps of query by key. The first (the truth) comes back as a pale line below it."""
    from matplotlib.figure import Figure

    true = next(iter(shown.values()))
    length = len(true.sink)
    largest = max(float(np.nanmax(np.abs(parts.centred))) for parts in shown.values())
    with style.styled():
        figure = Figure(figsize=(13.5, 0.9 + 2.7 * len(shown)), dpi=style.DPI, layout="constrained")
        grid = figure.subplots(len(shown), 4, squeeze=False)
        for row, (name, parts) in enumerate(shown.items()):
            curves = ((parts.sink, true.sink, "key j"), (parts.relative, true.relative, "offset i - j"))
            for axes, (values, truth, x_name) in zip(grid[row, :2], curves, strict=True):
                if row:
                    axes.plot(np.arange(length), truth, color=style.PALE, linewidth=3.0)
                (line,) = axes.plot(np.arange(length), values, color=style.colour(row), linewidth=1.4, marker=".", markersize=4)
                line.set_gid(f"curve-{row}-{x_name[:3]}")
                axes.set(xlabel=x_name, ylabel=f"{name}\n(nats)" if x_name == "key j" else "nats")
            _map(figure, grid[row, 2], parts.centred, CENTRED_MAP, (-largest, largest), "nats")
            visible = np.where(np.isnan(parts.centred), np.nan, parts.probabilities)
            _map(figure, grid[row, 3], visible, COLOUR_MAP, (0.0, 1.0), "probability")
        for axes, head in zip(grid[0], HEADS, strict=True):
            axes.set_title(head)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _map(figure: Figure, axes: Axes, values: np.ndarray, colours: str, limits: tuple[float, float], unit: str) -> None:
    """values [query, key], query 0 on top; blank where they are NaN."""
    mesh = axes.pcolormesh(values, vmin=limits[0], vmax=limits[1], cmap=colours)
    mesh.set_rasterized(True)  # an SVG of a thousand squares is slow to open
    axes.set(xlabel="key j", ylabel="query i", ylim=(len(values), 0))
    axes.grid(False)
    bar = figure.colorbar(mesh, ax=axes, label=unit)
    bar.outline.set_visible(False)
