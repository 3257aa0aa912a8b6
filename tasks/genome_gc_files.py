"""What `genome_gc` leaves for a genome browser and for eyes: tracks, samples, prompts and a plot of each region."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from .genome_gc_places import window_gc

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData

    from .genome_gc_places import Places

NO_BIGWIG = "tracks are bedGraph only, pyBigWig is not installed: pip install 'goatbench[tracks]'"


def write_artifacts(folder: Path, data: GenomeData, places: Places, expected: np.ndarray, drawn: np.ndarray) -> list[str]:
    """Tracks on the true coordinates (bedGraph always, bigWig if pyBigWig is there), samples, prompts, a plot of each region."""
    import numpy as np

    from goatbench.data import tracks

    window, num_bases = places.window, places.real.shape[1]
    spread = window_gc(drawn, window)
    real, generated = window_gc(places.real, window), spread.mean(1)
    loci = [data.genome.locus(contig, start, start + window) for contig, start in places.window_loci]
    stretches = [data.genome.locus(contig, start + places.prompt, start + places.prompt + num_bases) for contig, start in places.loci]
    sizes = {}
    for contig, _ in places.loci:
        origin = data.genome.origin(contig)
        sizes[origin.chromosome] = origin.length or data.genome.locus(contig, 0, data.genome.length(contig))[2]
    names = []
    for name, values in {"true": real, "generated": generated, "difference": generated - real, "expected": expected}.items():
        rows = [tracks.Window(*locus, float(value)) for locus, value in zip(loci, values, strict=True)]
        tracks.write_bedgraph(folder / f"gc_{name}.bedgraph", rows, sizes)
        names.append(f"gc_{name}.bedgraph")
        if tracks.has_bigwig():
            tracks.write_bigwig(folder / f"gc_{name}.bw", rows, sizes)
            names.append(f"gc_{name}.bw")
    records = [
        tracks.FastaRecord(f"place{i}_sample{j}", *locus, drawn[i, j]) for i, locus in enumerate(stretches) for j in range(drawn.shape[1])
    ]
    tracks.write_fasta(folder / "generated.fa", records)
    prompts = [data.genome.locus(contig, start, start + places.prompt) for contig, start in places.loci]
    tracks.write_bed(folder / "prompts.bed", [tracks.Interval(*place, f"place{i}") for i, place in enumerate(prompts)])
    bands = np.percentile(spread, [10, 90], axis=1)
    return [*names, "generated.fa", "prompts.bed", *plot_regions(folder, loci, window, real, generated, expected, bands)]


def plot_regions(folder: Path, loci: list, window: int, real, generated, expected, bands) -> list[str]:
    """One figure a chromosome: the longest stretch of places that touch."""
    import numpy as np

    from goatbench.plots import style
    from goatbench.plots.gc_tracks import gc_tracks

    stretches: list[list[int]] = []
    for index, locus in enumerate(loci):
        touches = bool(stretches) and loci[stretches[-1][-1]][0] == locus[0] and loci[stretches[-1][-1]][2] == locus[1]
        stretches = [*stretches[:-1], [*stretches[-1], index]] if touches else [*stretches, [index]]
    longest: dict[str, list[int]] = {}
    for stretch in stretches:
        chromosome = loci[stretch[0]][0]
        longest[chromosome] = max(longest.get(chromosome, []), stretch, key=len)
    names = []
    for chromosome, here in longest.items():
        label = "generated (mean of samples, band 10-90 %)"
        shown = {"true": real[here], label: generated[here], "expected": expected[here]}
        band = {label: (np.asarray(bands[0])[here], np.asarray(bands[1])[here])}
        figure = gc_tracks(chromosome, loci[here[0]][1], window, shown, band)
        names += [path.name for path in style.save(figure, folder / f"gc_{file_name(chromosome)}")]
    return names


def file_name(contig: str) -> str:
    """A contig's name as part of a file name: any character may stand in a FASTA header."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", contig)[:60]
