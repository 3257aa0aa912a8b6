"""Which bases a model is trained, chosen and tested on: a split is a list of intervals, and a file that lists them.

    contig  start  end  split  core_start  core_end  region

tab-separated, 0-based half-open. start..end may be read; only the bases of the core are scored, what lies around it is context.
region groups intervals in reports; by default it is the contig. core and region columns may be left out of a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from ...errors import UsageError
from ...records.files import replace_atomic
from ...registry import nearest, unknown
from .contigs import resolve, short
from .fasta import check_regular
from .genome import ucsc

COLUMNS = ("contig", "start", "end", "split", "core_start", "core_end", "region")
NUMBERS = ("start", "end", "core_start", "core_end")
_WANTED = f"the first line names the tab-separated columns {' '.join(COLUMNS)} (the last three are optional)"
GUARD = 65_536  # bases between the splits of chr20_blocks: no shorter than the longest context that is evaluated (16 x 1024, with room)


@dataclass(frozen=True, slots=True)
class Interval:
    """core_start, core_end: the scored part; None means the whole. region: '' means the contig."""

    contig: str
    start: int
    end: int
    split: str
    core_start: int | None = None
    core_end: int | None = None
    region: str = ""

    def __post_init__(self) -> None:
        for name, default in (("core_start", self.start), ("core_end", self.end), ("region", self.contig)):
            if getattr(self, name) in (None, ""):
                object.__setattr__(self, name, default)
        if not 0 <= self.start <= self.core_start < self.core_end <= self.end or not self.split:
            raise UsageError(
                f"interval {short(self.contig)} {self.start} {self.end} "
                f"(split '{short(self.split)}', core {self.core_start} {self.core_end}): "
                "wanted 0 <= start <= core_start < core_end <= end and the name of a split"
            )


def by_chromosome(lengths: Mapping[str, int], chromosomes: Mapping[str, Iterable[str | int]]) -> list[Interval]:
    """Whole chromosomes: split -> chromosomes. UsageError if the FASTA lacks one."""
    intervals = []
    for split, names in chromosomes.items():
        for name in names:
            contig = resolve(f"chr{name}", lengths, f"split '{split}'")
            intervals.append(Interval(contig, 0, lengths[contig], split))
    return intervals


def instadeep(lengths: Mapping[str, int]) -> list[Interval]:
    """Train on 1-20, X and Y, validate on 21, test on 22: the division of InstaDeepAI/human_reference_genome."""
    return by_chromosome(lengths, {"train": [*range(1, 21), "X", "Y"], "validation": [21], "test": [22]})


def in_chunks(intervals: Iterable[Interval], chunk: int, overlap: int = 100) -> list[Interval]:
    """Each interval cut into chunks of `chunk` scored bases with `overlap` bases of context on both sides.

    The cut of the loading script of InstaDeepAI/human_reference_genome: the first chunk starts at the first base, neighbours share
    2 * overlap bases, what is left at the end is dropped, and chunks of nothing but N are kept.
    """
    chunks = []
    for whole in intervals:
        for index in range((whole.end - whole.start - 2 * overlap) // chunk):
            start = whole.start + index * chunk
            end = start + chunk + 2 * overlap
            chunks.append(Interval(whole.contig, start, end, whole.split, start + overlap, end - overlap, whole.region))
    return chunks


def instadeep_6kbp(lengths: Mapping[str, int]) -> list[Interval]:
    """The 6,200 base chunks of its configuration 6kbp."""
    return in_chunks(instadeep(lengths), 6_000)


def instadeep_12kbp(lengths: Mapping[str, int]) -> list[Interval]:
    """The 12,200 base chunks of its configuration 12kbp."""
    return in_chunks(instadeep(lengths), 12_000)


def bionemo(lengths: Mapping[str, int]) -> list[Interval]:
    """Train on 1-19, validate on 20 and 21, test on 22: the division of NVIDIA's DNABERT model."""
    return by_chromosome(lengths, {"train": range(1, 20), "validation": [20, 21], "test": [22]})


def chr20_blocks(lengths: Mapping[str, int]) -> list[Interval]:
    """One chromosome: train 0-45 and 56 Mb to its end, validation 45-50, test 50-56 Mb; the test block is whole.

    Training and validation stop GUARD bases before the next block, and training resumes GUARD bases after the test block.
    """
    contig = resolve("chr20", lengths, "split 'chr20_blocks'")
    blocks = (
        ("train", 0, 45_000_000 - GUARD),
        ("validation", 45_000_000, 50_000_000 - GUARD),
        ("test", 50_000_000, 56_000_000),
        ("train", 56_000_000 + GUARD, lengths[contig]),
    )
    if lengths[contig] <= blocks[-1][1]:
        raise UsageError(f"split 'chr20_blocks': {contig} has {lengths[contig]:,} bases, not a whole chromosome 20; give a split file")
    return [Interval(contig, start, end, split) for split, start, end in blocks]


def embedded(lengths: Mapping[str, int]) -> list[Interval]:
    """Of the DNA inside the package; a committed file."""
    return read_split(Path(str(files("goatbench.data.genome.embedded"))) / "split.tsv", lengths)


PRESETS = {preset.__name__: preset for preset in (embedded, chr20_blocks, instadeep, instadeep_6kbp, instadeep_12kbp, bionemo)}


def load_split(name_or_path: str, lengths: Mapping[str, int]) -> list[Interval]:
    """Intervals of a preset or of a split file. lengths: contig -> bases of the FASTA; contigs are named as there."""
    if name_or_path in PRESETS:
        return PRESETS[name_or_path](lengths)
    path = Path(os.path.expanduser(name_or_path))
    if os.path.exists(path) or path.suffix or len(path.parts) > 1:
        return read_split(path, lengths)
    raise UsageError(f"{unknown('split', name_or_path, PRESETS)}, or the path of a split file (.tsv)")


def read_split(path: Path, lengths: Mapping[str, int]) -> list[Interval]:
    """UsageError, naming the line, unless every interval lies in its contig and no base is in two splits or scored twice."""
    lines = _lines(path)
    if not lines:
        raise UsageError(f"split file {path} is empty; {_WANTED}")
    columns = _columns(path, lines[0][1])
    intervals = []
    for number, line in lines[1:]:
        where, fields = f"split file {path}, line {number}", [field.strip() for field in line.split("\t")]
        if len(fields) != len(columns):
            raise UsageError(f"{where}: {len(fields)} tab-separated fields instead of {len(columns)}")
        row: dict = dict(zip(columns, fields, strict=True))
        row["contig"] = resolve(row["contig"], lengths, where)
        row |= {name: _number(where, name, row[name]) for name in NUMBERS if name in row}
        try:
            interval = Interval(**row)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        if interval.end > lengths[interval.contig]:
            raise UsageError(f"{where}: end {interval.end} is beyond {short(interval.contig)}, which has {lengths[interval.contig]} bases")
        intervals.append(interval)
    if not intervals:
        raise UsageError(f"split file {path}: it lists no interval")
    try:
        check_disjoint(intervals, 0)
    except UsageError as error:
        raise UsageError(f"split file {path}: {error}") from None
    return intervals


def _lines(path: Path) -> list[tuple[int, str]]:
    """(number, text) of the lines that are neither blank nor comments. A UTF-8 byte-order mark is skipped."""
    try:
        check_regular(path, "split file")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"split file {path} cannot be read: {error.strerror or error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = "UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "no UTF-8"
        raise UsageError(f"split file {path} is {kind} text (byte {error.start + 1}); save it as plain text, UTF-8") from None
    lines = enumerate(re.split("\r\n|\n|\r", text), 1)
    return [(number, line) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]


def _columns(path: Path, line: str) -> list[str]:
    """The names in the first line. UsageError about the one that is unknown, missing or there twice."""
    where, columns = f"split file {path}, first line", [name.strip() for name in line.split("\t")]
    for separator, words in (("blanks", line.split()), ("commas", [name.strip() for name in line.split(",")])):
        if len(words) > len(columns) and set(words) <= set(COLUMNS):
            raise UsageError(f"{where}: {separator} stand between the columns; put tabs there and in the other lines")
    if not set(columns) & set(COLUMNS):
        raise UsageError(f"{where} names no column ('{short(line)}'); {_WANTED}")
    for name in columns:
        if name not in COLUMNS:
            guess = nearest(name, COLUMNS) if name else None
            raise UsageError(f"{where}: unknown column '{short(name)}'{f'; did you mean {guess!r}?' if guess else ';'} {_WANTED}")
        if columns.count(name) > 1:
            raise UsageError(f"{where}: column '{name}' is there {columns.count(name)} times; {_WANTED}")
    if missing := [name for name in COLUMNS[:4] if name not in columns]:
        raise UsageError(f"{where}: column '{missing[0]}' is missing; {_WANTED}")
    return columns


def _number(where: str, name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text):
        raise UsageError(f"{where}: {name} '{short(text)}' is not a whole number (digits only, counted from 0)")
    return int(text)


def write_split(path: Path, intervals: Iterable[Interval]) -> None:
    rows = ["\t".join(COLUMNS), *("\t".join(str(getattr(interval, name)) for name in COLUMNS) for interval in intervals)]
    replace_atomic(path, ("\n".join(rows) + "\n").encode())


def check_disjoint(intervals: Iterable[Interval], guard: int) -> None:
    """UsageError unless intervals of different splits are at least `guard` bases apart and no base is scored twice.

    guard: the longest context that is evaluated; then no base can be read for two splits.
    """
    by_contig: dict[str, list[Interval]] = {}
    for interval in intervals:
        by_contig.setdefault(interval.contig, []).append(interval)
    for contig, group in by_contig.items():
        for before, after in pairwise(sorted(group, key=lambda interval: interval.core_start)):
            if after.core_start < before.core_end:
                twice = ucsc(contig, after.core_start, min(before.core_end, after.core_end))
                raise UsageError(f"{twice} is scored twice; make the cores disjoint")
        reached: dict[str, int] = {}  # split -> where it ends so far
        for interval in sorted(group, key=lambda interval: interval.start):
            for split, end in reached.items():
                if split != interval.split and interval.start < end + guard:
                    raise UsageError(
                        f"splits '{split}' and '{interval.split}' are {interval.start - end} bases apart at "
                        f"{ucsc(contig, interval.start, interval.end)}; wanted: at least {guard}, the longest context evaluated"
                    )
            reached[interval.split] = max(reached.get(interval.split, 0), interval.end)


def contigs_of(intervals: Iterable[Interval]) -> list[str]:
    """Each contig once, in order: what GenomeSource.genome has to encode."""
    return list(dict.fromkeys(interval.contig for interval in intervals))


def of_split(intervals: Iterable[Interval], split: str, region: str | None = None) -> list[Interval]:
    """Those of a split, and of a region of it. UsageError, with the nearest name, if there are none."""
    intervals = list(intervals)
    found = [interval for interval in intervals if interval.split == split]
    if not found:
        raise UsageError(unknown("split", split, dict.fromkeys(interval.split for interval in intervals)))
    if region is None:
        return found
    regions = dict.fromkeys(interval.region for interval in found)
    if region not in regions:
        raise UsageError(unknown(f"region of split '{split}':", region, regions))
    return [interval for interval in found if interval.region == region]
