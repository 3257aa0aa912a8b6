"""Where `genome_gc` looks: consecutive places in the middle of each test region, and the GC windows in what follows their prompts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from goatbench.records.record import Curve
from goatbench.spec import GenomeRunSpec

from .genome import codes_of

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.data.genome.windows import EvaluationWindows

MAX_LAG = 16  # windows: longest distance of the autocorrelation curves


class Places(NamedTuple):
    """codes uint8 [n, prompt + generate] of consecutive places; loci: contig and start of each; window: bases of a GC window."""

    codes: np.ndarray
    loci: list[tuple[str, int]]
    prompt: int
    window: int

    @property
    def real(self) -> np.ndarray:
        """[n, generate]: what follows the prompts."""
        return self.codes[:, self.prompt :]

    @property
    def windows_each(self) -> int:
        """GC windows a place."""
        return self.real.shape[1] // self.window

    @property
    def window_loci(self) -> list[tuple[str, int]]:
        """Contig and start of each GC window, in the order of `window_gc`."""
        return [(contig, start + self.prompt + i * self.window) for contig, start in self.loci for i in range(self.windows_each)]


def places_of(spec: GenomeRunSpec, data: GenomeData) -> Places:
    """num_prompts consecutive places, the same number in the middle of each region; UsageError unless they fit and are two or more."""
    from goatbench.data.genome.windows import EvaluationWindows
    from goatbench.errors import UsageError

    e = spec.evaluation
    intervals = data.intervals(spec.task.split)
    regions = list(dict.fromkeys(i.region for i in intervals))
    each = e.num_prompts // len(regions)
    chosen: list[tuple[str, int]] = []
    windows: EvaluationWindows | None = None
    for region in regions:
        windows = EvaluationWindows(data.genome, [i for i in intervals if i.region == region], e.prompt + e.generate - 1, None, e.generate)
        if not 1 <= each <= len(windows.loci):
            has = f"region {region} has {len(windows.loci)} places of {e.prompt} + {e.generate} bases"
            raise UsageError(f"evaluation.num_prompts={e.num_prompts} means {each} a region, but {has}")
        first = (len(windows.loci) - each) // 2
        chosen += windows.loci[first : first + each]
    if len(chosen) < 2:
        raise UsageError(f"evaluation.num_prompts={e.num_prompts}: one half of the places is compared with the other: set 2 or more")
    assert windows is not None
    windows.loci = chosen
    return Places(codes_of(windows), chosen, e.prompt, e.gc_window)


def window_gc(codes: np.ndarray, window: int) -> np.ndarray:
    """GC percent of consecutive windows within each place: [n, bases] -> [n * bases / window], [n, samples, bases] -> [.., samples]."""
    import numpy as np

    from goatbench.metrics.gc_content import gc_percent

    each = gc_percent(codes.reshape(*codes.shape[:-1], -1, window))
    return np.moveaxis(each, -1, 1).reshape(-1, *codes.shape[1:-1])


def autocorrelation(track: np.ndarray, places: Places, max_lag: int) -> tuple[np.ndarray, np.ndarray]:
    """(correlation, pairs), [max_lag] each, of GC windows 1..max_lag apart on one stretch of windows that touch, over all regions."""
    import numpy as np

    from goatbench.metrics import gc_content

    loci = places.window_loci
    starts = [0, *(i for i, ((contig, start), after) in enumerate(pairwise(loci), 1) if (contig, start + places.window) != after)]
    stretches = np.split(np.asarray(track, float), starts[1:])
    rows = np.full((len(stretches), max(map(len, stretches))), np.nan)
    for row, stretch in zip(rows, stretches, strict=True):
        row[: len(stretch)] = stretch
    pairs = [sum(max(0, len(stretch) - lag) for stretch in stretches) for lag in range(1, max_lag + 1)]
    return gc_content.autocorrelation(rows, max_lag), np.array(pairs)


def lag_curve(track: np.ndarray, places: Places, conditions: dict[str, str]) -> list[Curve]:
    """The autocorrelation of a track by lag, as far as it is defined; none where it is nowhere."""
    import numpy as np

    found, pairs = autocorrelation(track, places, MAX_LAG)
    lags = np.flatnonzero(~np.isnan(found))
    if not len(lags):
        return []
    x, y, n = [float(lag + 1) for lag in lags], found[lags].tolist(), int(pairs[lags].min())
    return [Curve(name="gc_autocorrelation", unit="correlation", x_name="lag_windows", x=x, y=y, n=n, conditions=conditions)]


def track_curves(tracks: Mapping[str, np.ndarray], places: Places, split: str) -> list[Curve]:
    """GC of the windows of each contig along it, one curve a track; windows of other places on the contig lie beside them."""
    starts: dict[str, dict[int, int]] = {}
    for index, (contig, start) in enumerate(places.window_loci):
        starts.setdefault(contig, {})[start] = index
    return [
        Curve(
            name="gc_track", unit="%", x_name="position_kb", x=[start / 1000 for start in sorted(places_of_contig)],
            y=[round(float(track[places_of_contig[start]]), 3) for start in sorted(places_of_contig)], n=places.window,
            conditions={"split": split, "contig": contig, "of": name},
        )
        for contig, places_of_contig in starts.items()
        for name, track in tracks.items()
    ]  # fmt: skip
