"""GC along a stretch of a chromosome: the true track and others, one above the other, over the true coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.tracks import ucsc
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USUAL_GC = (20.0, 70.0)  # percent: holds nearly all 1 kb windows of a human chromosome
MANY_WINDOWS = 300  # beyond it steps touch, and lines are drawn thinner


def gc_tracks(
    contig: str,
    start: int,
    window: int,
    tracks: Mapping[str, ArrayLike],
    spread: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
) -> Figure:
    """One panel a track: name -> [n] GC percent of n consecutive windows from `start` (0-based) on; NaN stays blank.

    All panels share one y axis, 20-70% or wider where the data is. The first track (the true one) comes back as a pale line in the
    panels below it, with its mean as a dashed line in all. spread: name -> (low [n], high [n]), a band around a track.
    """
    values = {name: np.asarray(track, float) for name, track in tracks.items()}
    if len({track.shape for track in values.values()}) != 1 or next(iter(values.values())).ndim != 1:
        raise ValueError(f"a figure needs tracks [n] of one length, not { {name: track.shape for name, track in values.items()} }")
    true = next(iter(values.values()))
    edges = start + window * np.arange(len(true) + 1)
    with style.styled():
        figure, all_axes = style.panels(len(values), 9, 1.2 + 1.7 * len(values))
        for index, (axes, (name, track)) in enumerate(zip(all_axes, values.items(), strict=True)):
            if index:
                axes.stairs(true, edges / 1e6, baseline=None, color=style.PALE, linewidth=1.0)
            if spread and name in spread:
                least, most = (np.asarray(bound, float) for bound in spread[name])
                axes.stairs(most, edges / 1e6, baseline=least, fill=True, color=style.colour(index), alpha=0.2, linewidth=0)
            width = 1.3 if len(track) <= MANY_WINDOWS else 0.8
            line = axes.stairs(track, edges / 1e6, baseline=None, color=style.colour(index), linewidth=width)
            line.set_gid(f"track-{index}")
            _dress(axes, list(values), true, index)
        low, high = _y_range(list(values.values()))
        all_axes[0].set_yticks(np.arange(10 * np.ceil(low / 10), high + 1, 10))
        all_axes[0].set_ylim(low, high)
        all_axes[0].set_xlim(edges[0] / 1e6, edges[-1] / 1e6)
        all_axes[0].set_title(f"GC content of {ucsc(contig, int(edges[0]), int(edges[-1]))}, windows of {window:,} bases", pad=24)
        all_axes[-1].set_xlabel(f"position on {contig} (Mb)")
        all_axes[-1].ticklabel_format(axis="x", useOffset=False, style="plain")
        figure.supylabel("GC (%)", fontsize=10)
    return figure


def _dress(axes: Axes, names: list[str], true: NDArray[np.float64], index: int) -> None:
    """Name of the track above its panel, the mean of the first track as a dashed line, and what the grey lines are."""
    axes.text(0, 1.02, names[index], transform=axes.transAxes, color=style.colour(index), fontweight="bold", va="bottom")
    legend = f"grey: {names[0]}, dashed: its mean" if index else "dashed: mean"
    axes.text(1, 1.02, legend, transform=axes.transAxes, color=style.GREY, fontsize=9, ha="right", va="bottom")
    if not np.isnan(true).all():
        axes.axhline(np.nanmean(true), color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))


def _y_range(tracks: list[NDArray[np.float64]]) -> tuple[float, float]:
    """20-70%, widened to multiples of 5 that hold every value."""
    known = np.concatenate([track[~np.isnan(track)] for track in tracks] + [np.array(USUAL_GC)])
    return float(5 * np.floor(known.min() / 5)), float(5 * np.ceil(known.max() / 5))
