"""Attention statistics of a trained model: a cell a head, and what its prior expects by offset, or by patch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from . import style
from .heat_map import COLOUR_MAP, DARK_BELOW

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_NUMBERED = 12  # heads; cells of more are too small for a number
MAX_COLUMNS = 4


def head_maps(shares: Mapping[str, ArrayLike], title: str) -> Figure:
    """name -> [layers, heads] in 0 .. 1, NaN where there is no value: a panel each, a row a layer, a column a head, numbers in percent."""
    maps = {name: np.asarray(values, float) for name, values in shares.items()}
    depth, heads = next(iter(maps.values())).shape
    columns = min(MAX_COLUMNS, len(maps))
    rows = math.ceil(len(maps) / columns)
    with style.styled():
        size = 1.6 + columns * max(1.9, 0.42 * heads), 1.0 + rows * (0.9 + 0.34 * depth)
        figure, all_axes = style.panels(rows, *size, columns)
        for index, (axes, (name, values)) in enumerate(zip(all_axes, maps.items(), strict=False)):
            mesh = axes.pcolormesh(values, vmin=0, vmax=1, cmap=COLOUR_MAP, edgecolors="white", linewidth=1)
            mesh.set_gid(f"map-{index}")
            for (layer, head), value in np.ndenumerate(values):
                if heads <= MAX_NUMBERED:
                    text = "n/a" if np.isnan(value) else f"{100 * value:.0f}"
                    colour = style.GREY if np.isnan(value) else "white" if value < DARK_BELOW else "black"
                    axes.text(head + 0.5, layer + 0.5, text, color=colour, ha="center", va="center", fontsize=9)
            axes.set_xticks(np.arange(heads) + 0.5, [str(head) for head in range(heads)])
            axes.set_yticks(np.arange(depth) + 0.5, [str(layer) for layer in range(depth)])
            axes.set(title=name, xlabel="head", ylabel="layer", ylim=(depth, 0))
            axes.tick_params(length=0)
            axes.grid(False)
        for axes in all_axes[len(maps) :]:
            axes.set_visible(False)
        bar = figure.colorbar(mesh, ax=all_axes, label="%", ticks=[0, 0.5, 1], aspect=30)
        bar.ax.set_yticklabels(["0", "50", "100"])
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def prior_figure(curves: ArrayLike, title: str) -> Figure:
    """ln p(offset) [layers, heads, offsets] in nats: a panel a layer, a line a head; dashed: every key alike."""
    values = np.asarray(curves, float)
    depth, heads, length = values.shape
    columns = min(MAX_COLUMNS, depth)
    rows = math.ceil(depth / columns)
    with style.styled():
        figure, all_axes = style.panels(rows, 1.2 + 3.4 * columns, 0.8 + 2.6 * rows, columns)
        for layer, axes in enumerate(all_axes[:depth]):
            axes.axhline(-math.log(length), color=style.GREY, linewidth=1.0, linestyle=(0, (4, 3)))
            for head in range(heads):
                (line,) = axes.plot(np.arange(length), values[layer, head], color=style.colour(head), linewidth=1.2, label=f"head {head}")
                line.set_gid(f"prior-{layer}-{head}")
            axes.set(title=f"layer {layer}", xlabel="offset (tokens)", ylabel="ln p (nats)")
        for axes in all_axes[depth:]:
            axes.set_visible(False)
        if heads <= MAX_NUMBERED:
            all_axes[0].legend(fontsize=8, frameon=False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def prior_map_figure(maps: ArrayLike, title: str) -> Figure:
    """ln p(patch) [layers, heads, height, width] in nats of the patch in the middle: a row of panels a layer, a panel a head, one scale."""
    values = np.asarray(maps, float)
    depth, heads, height, width = values.shape
    with style.styled():
        figure, all_axes = style.panels(depth, 1.4 + 1.5 * heads, 0.9 + 1.5 * height / width * depth, heads)
        for axes, (layer, head) in zip(all_axes, np.ndindex(depth, heads), strict=True):
            mesh = axes.pcolormesh(values[layer, head], vmin=values.min(), vmax=values.max(), cmap=COLOUR_MAP)
            mesh.set_gid(f"prior-{layer}-{head}")
            axes.set(title=f"layer {layer}, head {head}", ylim=(height, 0), xticks=[], yticks=[], aspect="equal")
            axes.grid(False)
        figure.colorbar(mesh, ax=all_axes, label="ln p (nats)", aspect=30)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
