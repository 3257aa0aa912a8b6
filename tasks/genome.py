"""What all genome tasks share: the same training of a causal decoder on human DNA, and the yardsticks every number needs beside it.

Imports no torch at the top: `goatbench list` and the leaderboards read the cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.spec import GenomeRunSpec

from .causal import CausalTask, machine_of
from .causal import device_of as device_of
from .causal import evaluate as evaluate

if TYPE_CHECKING:
    import numpy as np

    from goatbench.data.genome.module import GenomeData
    from goatbench.data.genome.windows import EvaluationWindows
    from goatbench.metrics.markov import MarkovModel

SOURCE = "arXiv 2601.15380 (GOAT), arXiv 2306.15794 (HyenaDNA), Debian packages vt-examples and augustus-doc (embedded sequence)"
TRAINING = (
    "A causal decoder reads windows of A C G T (N-free, one strand unless reverse_complement is set) and predicts the next base; "
    "the epoch is chosen by NLL on the validation block. "
)


@dataclass(frozen=True, slots=True)
class GenomeTask(CausalTask):
    """One task of the family. Subclasses measure."""

    def fingerprint(self, spec: GenomeRunSpec) -> str:
        """Of the bases that this run would use; no torch."""
        from goatbench.data.genome.sources import fingerprint_of

        return fingerprint_of(spec.data)

    def longest_context(self, spec: GenomeRunSpec) -> int:
        """Of any evaluation, in bases: splits must lie at least so far apart."""
        return spec.model.seq_len * max(spec.task.multiples, default=1)

    def data(self, spec: GenomeRunSpec) -> GenomeData:
        from goatbench.data.genome.module import GenomeData

        return GenomeData(spec.data, spec.model, spec.evaluation, longest_context=self.longest_context(spec), **machine_of(spec))

    def protocol(self, spec: GenomeRunSpec) -> dict[str, Any]:
        """What must agree between two rows of one board, beside task version, scale and data."""
        return CausalTask.protocol(self, spec) | {
            "split": spec.data.split, "reverse_complement": spec.data.reverse_complement, "targets": "A C G T",
        }  # fmt: skip


def letters_note(data: GenomeData) -> str:
    """What the sequence is made of, over all contigs of the run."""
    rows = data.genome.report().values()
    known, unknown, other = (sum(sum(int(row[key]) for key in keys) for row in rows) for keys in ("ACGT", "N", ("other",)))
    strange = f", {other:,} other letters (read as N)" if other else ""
    return f"sequence: {known:,} A C G T, {unknown:,} N{strange} in {len(rows)} contigs; by contig in contigs.json"


def write_inputs(folder: Path | None, data: GenomeData) -> list[str]:
    """What the run read, beside its record: split.tsv (every interval) and contigs.json (length, M5, counts, share of N by contig)."""
    import json

    from goatbench.data.genome.splits import write_split
    from goatbench.records.files import replace_atomic

    if folder is None:
        return []
    write_split(folder / "split.tsv", data.sequence.intervals)
    replace_atomic(folder / "contigs.json", (json.dumps(data.genome.report(), indent=1) + "\n").encode())
    return ["split.tsv", "contigs.json"]


def markov_models(spec: GenomeRunSpec, data: GenomeData, only_interpolated: bool = False) -> dict[str, MarkovModel]:
    """Name -> Markov model counted on the training bases (one strand), smoothed by what is best on the validation bases."""
    from goatbench.metrics.markov import MarkovCounts, choose_pseudo, choose_weight
    from goatbench.progress import Progress

    orders, largest = [] if only_interpolated else spec.evaluation.markov_orders, spec.evaluation.markov_interpolated
    validation = data.stretches("validation")
    models: dict[str, MarkovModel] = {}
    with Progress("counting n-grams", total=2 + len(orders), unit="model") as bar:
        counts = MarkovCounts.fit(data.stretches("train"), largest)
        bar.advance()
        for order in orders:
            models[f"markov-{order}"] = choose_pseudo(counts, order, validation)
            bar.advance()
        models[interpolated(spec)] = choose_weight(counts, validation)
        bar.advance()
    return models


def interpolated(spec: GenomeRunSpec) -> str:
    return f"markov-0..{spec.evaluation.markov_interpolated}"


def codes_of(windows: EvaluationWindows) -> np.ndarray:
    """uint8 [n, context + 1] of all windows."""
    from goatbench.data.genome.module import codes_of

    return codes_of(windows)
