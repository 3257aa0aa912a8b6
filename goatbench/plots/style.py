"""The one look of all figures, and how they are saved: PNG and SVG with the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any colour vision (jfly.uni-koeln.de/color); yellow is left out: too pale for a line on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # colour is never the only difference
GREY, PALE = "#6b6b6b", "#c8c8c8"
DPI = 150
RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: no machine's fonts change the picture
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ebebeb",
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "svg.hashsalt": "goatbench",  # else ids in the SVG are random
}


@contextmanager
def styled() -> Iterator[None]:
    """Our settings on top of matplotlib's defaults, whatever the user's matplotlibrc says; all are put back afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def panels(rows: int, width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of panels that share both axes, row by row; sizes in inches. Needs no display and leaves no global figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    """Changes with the colour, and once more when the colours begin again."""
    return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def save(figure: Figure, path: Path | str) -> tuple[Path, Path]:
    """Write PATH.png and PATH.svg (a suffix .png or .svg of `path` is dropped) and return both."""
    path = Path(path)
    stem = path.with_suffix("") if path.suffix in (".png", ".svg") else path
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with styled():
        figure.savefig(png, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg
