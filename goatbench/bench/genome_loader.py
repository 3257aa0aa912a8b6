"""`goatbench bench genome_loader`: windows from the encoded genome beside pyfaidx with a table of letters, both to int64 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..data.genome.codes import ENCODE, TOKEN
from ..data.genome.embedded_genome import embedded_fasta
from ..data.genome.fasta import open_fasta
from ..data.genome.source import GenomeSource
from ..errors import UsageError
from ..progress import Progress
from ..records.environment import describe_environment, package_version
from . import arguments as parse
from .record import now, record_bytes, writable, write
from .targets import Result, judge, unjudged
from .timing import Quartiles, interleaved, one_thread, ratio

if TYPE_CHECKING:
    from ..data.genome.genome import Genome

AT_LEAST = {1_024: 2.5, 12_200: None}  # bases of a window -> pyfaidx's time over ours; 12,200: a chunk of the instadeep_12kbp split
WINDOWS = {1_024: 2_000, 12_200: 500}  # a round
FULL_ROUNDS, QUICK_ROUNDS = 21, 3


def main(argv: list[str]) -> int:
    """Measure, print, and with --out write one JSON record. UsageError in one line for what a user can cause."""
    arguments = parse.genome_loader(argv)
    out, started = writable(arguments.out), now()
    source = GenomeSource(arguments.fasta or embedded_fasta())
    contig = arguments.contig or max(source.lengths, key=source.lengths.get)
    genome = source.genome([contig])
    (contig,) = genome.contigs
    if genome.length(contig) < (needed := 2 * max(WINDOWS)):
        raise UsageError(f"contig '{contig}' has {genome.length(contig)} bases; at least {needed} are needed: give --contig")
    seconds, results = measure(source, genome, contig, QUICK_ROUNDS if arguments.quick else FULL_ROUNDS)
    if arguments.quick:
        results = unjudged(results)
    print(render(seconds, results, contig))
    if out is not None:
        environment = describe_environment(threads=1) | {"pyfaidx": package_version("pyfaidx")}
        settings = {"clock": "process CPU time", "contig": contig, "fingerprint": genome.fingerprint, "windows_a_round": WINDOWS}
        kept = {"settings": settings, "seconds": seconds, "results": [result.as_json() for result in results]}
        write(out, record_bytes("genome_loader", started, environment, **kept))
    return 0


def measure(source: GenomeSource, genome: Genome, contig: str, rounds: int) -> tuple[dict[int, dict[str, list[float]]], list[Result]]:
    """Seconds of every round by window length and variant, and the judged ratios."""
    seconds, results = {}, []
    total = len(WINDOWS) * (rounds + 1)  # one unmeasured round each
    with open_fasta(source.path, source.index) as fasta, one_thread(), Progress("bench genome_loader", total, "round") as bar:
        record = fasta[contig]
        for length, count in WINDOWS.items():
            starts = np.random.default_rng(length).integers(0, len(record) - length + 1, count).tolist()
            readers = {"codes": _codes_reader(genome, contig, length), "pyfaidx": _pyfaidx_reader(record, length)}
            for start in starts[:20]:
                if not np.array_equal(readers["codes"](start), readers["pyfaidx"](start)):
                    raise RuntimeError(f"{contig} from {start}: the two readers disagree")
            steps = {name: _over(reader, starts) for name, reader in readers.items()}
            seconds[length] = interleaved(steps, rounds, after_round=lambda length=length: bar.advance(1, bases=length))
            times = ratio(seconds[length], "pyfaidx", "codes")
            results.append(judge("genome_loader", f"{length} bases", "pyfaidx / codes", times, at_least=AT_LEAST[length]))
    return seconds, results


def render(seconds: dict[int, dict[str, list[float]]], results: list[Result], contig: str) -> str:
    """A table: windows per second of both, their ratio, and the verdict."""
    lines = [f"random windows of {contig}, CPU time of one process", f"{'bases':>7}  {'codes/s':>9}  {'pyfaidx/s':>9}  pyfaidx / codes"]
    for (length, times), result in zip(seconds.items(), results, strict=True):
        rates = [f"{WINDOWS[length] / Quartiles.of(times[name]).median:>9,.0f}" for name in ("codes", "pyfaidx")]
        spread = f"{result.value:.2f} [{result.q1:.2f}, {result.q3:.2f}]"
        verdict = f"  target {result.target}: {result.verdict}" if result.target else ""
        lines.append(f"{length:>7,}  {rates[0]}  {rates[1]}  {spread}{verdict}")
    return "\n".join(lines)


def _codes_reader(genome: Genome, contig: str, length: int) -> Callable[[int], np.ndarray]:
    return lambda start: (genome.codes(contig, start, start + length) & TOKEN).astype(np.int64)


def _pyfaidx_reader(record, length: int) -> Callable[[int], np.ndarray]:
    table = ENCODE & TOKEN
    return lambda start: table[np.frombuffer(record[start : start + length].encode(), np.uint8)].astype(np.int64)


def _over(reader: Callable[[int], np.ndarray], starts: list[int]) -> Callable[[], None]:
    def step() -> None:
        for start in starts:
            reader(start)

    return step
