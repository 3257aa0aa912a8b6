"""Found or not by depth and length, as tables with coloured cells: they can be read aloud, and fold on a small screen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from ..plots.curves import length_label
from ..plots.heat_map import DARK_BELOW, Grid
from .svg import tag

# cividis (see plots.heat_map) at 0, 1/9 .. 1; between them colours are interpolated, at most 13 of 255 off
CIVIDIS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")


def heat_tables(grids: Sequence[Grid]) -> Markup:
    """A table a grid over all lengths that any grid has; numbers are percent, 'n/a' where there is no value."""
    lengths = sorted({length for grid in grids for length in grid.lengths})
    return tag("div", *(_table(grid, lengths) for grid in grids), class_="heat")


def colour(value: float) -> str:
    """Of a value in 0 .. 1."""
    place = min(max(value, 0.0), 1.0) * (len(CIVIDIS) - 1)
    left = min(int(place), len(CIVIDIS) - 2)
    parts = []
    for channel in (1, 3, 5):
        low, high = (int(CIVIDIS[index][channel : channel + 2], 16) for index in (left, left + 1))
        parts.append(round(low + (place - left) * (high - low)))
    return "#" + "".join(f"{part:02x}" for part in parts)


def _table(grid: Grid, lengths: Sequence[int]) -> Markup:
    head = tag("tr", tag("th", "depth", scope="col"), *(tag("th", length_label(length), scope="col") for length in lengths))
    rows = []
    for depth, values in zip(grid.depths, grid.values, strict=True):
        known = dict(zip(grid.lengths, map(float, values), strict=True))
        cells = (_cell(known.get(length, math.nan)) for length in lengths)
        rows.append(tag("tr", tag("th", f"{depth:g}", scope="row"), *cells))
    return tag("table", tag("caption", grid.name), tag("thead", head), tag("tbody", *rows))


def _cell(value: float) -> Markup:
    if math.isnan(value):
        return tag("td", "n/a", class_="muted")
    return tag("td", f"{100 * value:.0f}", style=f"background:{colour(value)};color:{'#fff' if value < DARK_BELOW else '#000'}")
