"""`goatbench data prepare NAME` and `goatbench data check NAME`: what a run would do with its data at the start, done beforehand.

The loaders are those of the runs; both verbs print what they find, a line a fact. No torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .config_tree import ConfigTree
from .errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from .data.genome.genome import Genome
    from .data.text.shards import TokenShard
    from .spec import TextDataSpec

TASKS = {"images": "vit_res224", "genome": "genome_nll", "text": "lm_length", "toy": "needle", "stories": "babilong"}  # any one
CHUNK = 2**24


@dataclass(frozen=True, slots=True)
class Fact:
    """level: ok, warning (unusual, but it may be meant) or broken."""

    level: Literal["ok", "warning", "broken"]
    text: str

    def __str__(self) -> str:
        return f"{self.level:7}  {self.text}"


def data_spec(name: str, overrides: list[str], config_dir: str | None = None) -> Any:
    """The data part of a run with data=NAME. overrides: data.path=..., data.root=..., as for run."""
    from .compose import compose

    tree = ConfigTree.find(config_dir)
    name = name.removeprefix("data=")
    tree.check("data", name)
    kind = tree.read("data", name).get("kind")
    if kind not in TASKS:
        raise UsageError(f"data={name} is of kind '{kind}', which is none of {', '.join(TASKS)}")
    if foreign := [line for line in overrides if not line.lstrip("+").startswith("data.")]:
        raise UsageError(f"'{foreign[0]}': data takes keys of the data only, such as data.path=PATH")
    composed = compose([f"task={TASKS[kind]}", "attention=nope", "scale=smoke", f"data={name}", *overrides], config_dir)
    composed.check_paths()
    return composed.spec.data


def prepare(data: Any) -> Iterator[Fact]:
    """Reads, encodes and keeps what runs need, where that is not done yet; then says what is there. UsageError if it cannot be read."""
    from .checking_images import images

    yield from {"images": images, "genome": _genome, "text": _text, "toy": _toy, "stories": _stories}[data.kind](data)


def check(data: Any) -> Iterator[Fact]:
    """As `prepare`, and then reads everything again that can be compared: hashes, counts, order of the labels."""
    if data.kind == "images":
        from .checking_images import check_images

        yield from check_images(data)
        return
    yield from prepare(data)
    if data.kind == "genome":
        yield from _check_genome(data)
    elif data.kind == "text":
        yield from _check_text(data)
    elif data.kind == "stories":
        from .data.stories.sources import text_of

        yield from _check_text(text_of(data))


# DNA


def _genome(data: Any) -> Iterator[Fact]:
    from .data.genome.sources import load_sequence

    sequence = load_sequence(data)
    for name, row in sequence.genome.report().items():
        yield Fact("ok", f"{name}: {row['length']:,} bases, {100 * row['n_fraction']:.2f} % N, M5 {row['m5']}")
    for split in dict.fromkeys(interval.split for interval in sequence.intervals):
        parts = [interval for interval in sequence.intervals if interval.split == split]
        yield Fact("ok", f"{split}: {sum(i.end - i.start for i in parts):,} bases in {len(parts)} intervals")
    yield Fact("ok", f"fingerprint {sequence.fingerprint()[:16]}")


def _check_genome(data: Any) -> Iterator[Fact]:
    """The encoded bases again: their MD5 in capital letters is that of the FASTA when it was encoded; where there are letters that are
    read as N, they are compared with the FASTA itself."""
    import numpy as np

    from .data.genome.sources import load_sequence
    from .data.genome.splits import check_disjoint

    sequence = load_sequence(data)
    check_disjoint(sequence.intervals, 0)
    yield Fact("ok", "splits do not overlap")
    letters = np.frombuffer(b"ACGTNNNN", np.uint8)
    for name, file in sequence.genome.files.items():
        if file.counts["other"]:  # which the codes do not tell from N, so that they have another M5
            same = _as_in_fasta(sequence.genome, name)
            found = f"{'as' if same else 'not as'} in the FASTA; {file.counts['other']:,} letters other than A C G T N are read as N"
            yield Fact("warning" if same else "broken", f"{name}: the encoded bases are {found}")
            continue
        whole = hashlib.md5(usedforsecurity=False)
        for start, end in _chunks(file.length):
            whole.update(letters[sequence.genome.codes(name, start, end) & 7])
        same = whole.hexdigest() == file.m5
        yield Fact("ok" if same else "broken", f"{name}: the encoded bases {'have' if same else 'do not have'} the M5 of the FASTA")


def _as_in_fasta(genome: Genome, name: str) -> bool:
    """Whether the codes of a contig are those of its letters, which are read again."""
    import numpy as np

    from .data.genome import fasta
    from .data.genome.codes import encode
    from .data.genome.source import GenomeSource

    source = GenomeSource(genome.fasta)
    with fasta.open_fasta(source.path, source.index) as opened:
        return all(
            np.array_equal(encode(fasta.letters(opened, name, start, end)), genome.codes(name, start, end))
            for start, end in _chunks(genome.length(name))
        )


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + CHUNK, length)) for start in range(0, length, CHUNK))


# Text


def _text(data: TextDataSpec) -> Iterator[Fact]:
    from .data.text.sources import load_text

    for split, shard in load_text(data).shards.items():
        tokens = "" if shard.unit == "bytes" else f", {shard.num_tokens:,} tokens"
        yield Fact("ok", f"{split}: {shard.num_documents:,} documents, {shard.num_bytes:,} bytes{tokens}, sha256 {shard.sha256[:16]}")


def _check_text(data: TextDataSpec) -> Iterator[Fact]:
    """The token files again: their hash is that of the encoding, and every document begins with BOS and is in one split only."""
    from .data.text.sources import load_text

    for split, shard in load_text(data).shards.items():
        same = _sha256(Path(shard.path)) == shard.sha256
        yield Fact("ok" if same else "broken", f"{split}: the tokens {'have' if same else 'do not have'} the sha256 of the encoding")
        starts = shard.offsets[:-1]
        whole = bool((shard.tokens[starts] == shard.bos).all()) and int((shard.tokens == shard.bos).sum()) == len(starts)
        yield Fact("ok" if whole else "broken", f"{split}: {len(starts):,} documents, {'each' if whole else 'not each'} behind one BOS")
        if shard.unit == "bytes" and (number := sum(not _is_utf8(document) for document in _documents(shard))):
            yield Fact("broken", f"{split}: {number:,} of {len(starts):,} documents are not UTF-8: convert the files, or leave them out")
    yield from _leaks({split: {_digest(document) for document in _documents(shard)} for split, shard in load_text(data).shards.items()})


def _documents(shard: TokenShard) -> Iterator[np.ndarray]:
    """The tokens of each document, BOS apart."""
    offsets = shard.offsets.tolist()
    return (shard.tokens[start + 1 : end] for start, end in pairwise(offsets))


def _digest(document: np.ndarray) -> bytes:
    return hashlib.sha256(document.tobytes()).digest()


def _is_utf8(document: np.ndarray) -> bool:
    try:
        document.astype("uint8").tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def _leaks(documents: dict[str, set[bytes]]) -> Iterator[Fact]:
    """documents: split -> hashes. What is trained on may be in no other split."""
    for split in [name for name in documents if name != "train"]:
        if common := documents["train"] & documents[split]:
            yield Fact("broken", f"{split}: {len(common):,} of {len(documents[split]):,} different documents are in train as well")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# What is made up


def _toy(data: Any) -> Iterator[Fact]:
    yield Fact("ok", f"{data.name} is made up as it is needed: nothing to prepare")


def _stories(data: Any) -> Iterator[Fact]:
    from .data.stories.sources import fingerprint_of, text_of

    yield from _text(text_of(data))
    yield Fact("ok", f"{data.name}: questions {', '.join(data.questions)}; fingerprint {fingerprint_of(data)[:16]}")
