"""Found or not, by place and length: a panel a mechanism, a row a depth, a column a length, one colour scale from 0 to 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..records.board import Board
from ..records.grouping import Group, RowSamples
from . import style
from .boards import fewer
from .curves import length_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR_MAP = "cividis"  # reads the same with red-green blindness (Nunez et al. 2018, doi 10.1371/journal.pone.0199239)
DARK_BELOW = 0.5  # cells below it are dark and their numbers white
MAX_COLUMNS = 3


@dataclass(frozen=True)
class Grid:
    """values [depths, lengths] in 0 .. 1, NaN where nothing was measured."""

    name: str
    depths: list[float]
    lengths: list[int]
    values: NDArray[np.float64]


def plot_heat_map(board: Board, group: Group) -> Figure:
    """The rows of a board in their order, of many the `fewer`, means over seeds. UsageError if their records hold no curve over depth."""
    board = fewer(board)
    grids = grids_of(board, group)
    if not grids:
        raise UsageError(
            f"{board.title}: its records hold no scores by depth; --kind heatmap draws needle, passkey, multi_needle, induction"
        )
    name = board.title.rpartition(" · ")[0]
    return heat_map(grids, f"{name} · exact match (%) by depth and length, mean over seeds")


def grids_of(board: Board, group: Group) -> list[Grid]:
    """Of the rows of a board whose records hold scores by depth, in their order, means over seeds."""
    return [grid for row in board.rows if row.name in group.rows and (grid := _grid(row.label, group.rows[row.name]))]


def _grid(label: str, row: RowSamples) -> Grid | None:
    found: dict[tuple[float, int], list[float]] = {}
    for sample in row.finished:
        own = next(iter(sample.cells.values())).conditions  # a run's variants of evaluation have rows, and curves, of their own
        for curve in sample.record.curves:
            if curve.x_name != "depth" or curve.conditions.get("bound") != "estimate":
                continue
            if _without_length(curve.conditions) == _without_length(own):
                for depth, value in zip(curve.x, curve.y, strict=True):
                    found.setdefault((depth, int(curve.conditions["length"])), []).append(value)
    if not found:
        return None
    depths, lengths = (sorted({place[axis] for place in found}) for axis in (0, 1))
    values = [[float(np.mean(found.get((depth, length), [np.nan]))) for length in lengths] for depth in depths]
    return Grid(label, depths, lengths, np.array(values))


def _without_length(conditions: dict) -> dict:
    return {name: value for name, value in conditions.items() if name not in ("bound", "length", "multiple")}


def heat_map(grids: list[Grid], title: str) -> Figure:
    """A panel a grid, three in a row, over all lengths that any grid has; numbers are percent, 'n/a' where there is no value."""
    lengths = sorted({length for grid in grids for length in grid.lengths})
    columns = min(MAX_COLUMNS, len(grids))
    rows = math.ceil(len(grids) / columns)
    height = 1.0 + 0.34 * len(grids[0].depths)
    with style.styled():
        figure, all_axes = style.panels(rows, 1.6 + columns * max(2.2, 0.55 * len(lengths)), 1.1 + rows * height, columns)
        for index, (axes, grid) in enumerate(zip(all_axes, grids, strict=False)):
            mesh = _draw(axes, grid, lengths)
            mesh.set_gid(f"grid-{index}")
        for axes in all_axes[len(grids) :]:
            axes.set_visible(False)
        for axes in all_axes[max(0, len(grids) - columns) : len(grids)]:
            axes.tick_params(labelbottom=True)  # also where the panel below is empty
            axes.set_xlabel("length (tokens)")
        for axes in all_axes[: len(grids) : columns]:
            axes.set_ylabel("depth")
        bar = figure.colorbar(mesh, ax=all_axes, label="exact match (%)", ticks=[0, 0.25, 0.5, 0.75, 1], shrink=0.9, aspect=30)
        bar.ax.set_yticklabels(["0", "25", "50", "75", "100"])
        bar.outline.set_visible(False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _draw(axes: Axes, grid: Grid, lengths: list[int]):
    """One panel: depth 0, the start of the text, on top."""
    values = np.full((len(grid.depths), len(lengths)), np.nan)
    values[:, [lengths.index(length) for length in grid.lengths]] = grid.values
    mesh = axes.pcolormesh(values, vmin=0, vmax=1, cmap=COLOUR_MAP, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(values):
        known = not np.isnan(value)
        colour = style.GREY if not known else "white" if value < DARK_BELOW else "black"
        text = f"{100 * value:.0f}" if known else "n/a"
        axes.text(column + 0.5, row + 0.5, text, color=colour, ha="center", va="center", fontsize=9)
    axes.set_xticks(np.arange(len(lengths)) + 0.5, [length_label(length) for length in lengths])
    axes.set_yticks(np.arange(len(grid.depths)) + 0.5, [f"{depth:g}" for depth in grid.depths])
    axes.set(title=grid.name, ylim=(len(grid.depths), 0))
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return mesh
