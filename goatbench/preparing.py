"""`goatbench data prepare NAME` and `goatbench data check NAME`: what a run would do with its data at the start, done beforehand.

The loaders are those of the runs; both verbs print what they find, a line a fact. No torch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .config_tree import ConfigTree
from .errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from .data.genome.genome import Genome
    from .data.split import ImageSource
    from .data.text.shards import TokenShard
    from .spec import TextDataSpec

TASKS = {"images": "vit_res224", "genome": "genome_nll", "text": "lm_length", "toy": "needle", "stories": "babilong"}  # any one
IMAGENET_CLASSES = 1000
IMAGENET_COUNTS = {"train": 1_281_167, "test": 50_000}
WNID = re.compile(r"n\d{8}")  # in the name of an image of ImageNet
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
    yield from {"images": _images, "genome": _genome, "text": _text, "toy": _toy, "stories": _stories}[data.kind](data)


def check(data: Any) -> Iterator[Fact]:
    """As `prepare`, and then reads everything again that can be compared: hashes, counts, order of the labels."""
    yield from prepare(data)
    if data.kind == "images":
        yield from _check_images(data)
    elif data.kind == "genome":
        yield from _check_genome(data)
    elif data.kind == "text":
        yield from _check_text(data)
    elif data.kind == "stories":
        from .data.stories.sources import text_of

        yield from _check_text(text_of(data))


# Images


def _images(data: Any) -> Iterator[Fact]:
    from .data.sources import load_source

    source = load_source(data)
    counts = {name: len(source.split(name)) for name in ("train", "validation", "test")}
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    yield Fact("ok", f"{source.name}: {listed} images, {len(source.class_names)} classes; fingerprint {source.fingerprint[:16]}")


def _check_images(data: Any) -> Iterator[Fact]:
    import numpy as np

    from .data.sources import load_source

    source = load_source(data)
    by_split = {name: np.bincount(source.split(name).labels, minlength=len(source.class_names)) for name in ("train", "validation", "test")}
    for name in ("train", "test"):
        counts = by_split[name]
        if empty := [source.class_names[k] for k in np.flatnonzero(counts == 0)]:
            is_subset = name == "test" and len(empty) < len(counts) - 1
            advice = "; for a test set of fewer classes, as ImageNet-A, run with evaluation.classes=present" if is_subset else ""
            level = "warning" if is_subset else "broken"
            yield Fact(level, f"{len(empty)} classes have no {name} image: {', '.join(empty[:3])}{advice}")
        else:
            yield Fact("ok", f"{name}: {counts.min():,} to {counts.max():,} images a class")
    yield _contents(source)
    paths, bad = _tried(source)
    yield Fact("broken", f"{len(bad)} of {len(paths) + len(bad)} images tried cannot be read: {bad[0]}") if bad else Fact(
        "ok", f"{len(paths)} test images tried, one a class: all can be read"
    )
    if len(source.class_names) == IMAGENET_CLASSES:
        found = {"train": int(by_split["train"].sum() + by_split["validation"].sum()), "test": int(by_split["test"].sum())}
        wnids = [match.group() for path in paths if (match := WNID.search(path))]
        yield from imagenet_facts(wnids if len(wnids) == IMAGENET_CLASSES else source.class_names, found)


def _contents(source: ImageSource) -> Fact:
    """A fingerprint of images in files is of names and sizes: the contents are compared with those of the first check."""
    from .data.contents import compare_contents

    if (files := getattr(source, "files", None)) is None:
        in_memory = source.split("test").array is not None
        return Fact("ok", "contents: all are in the fingerprint") if in_memory else Fact("warning", "contents: not compared")
    if empty := [path for path in files if path.stat().st_size == 0]:
        return Fact("broken", f"contents: {len(empty):,} of {len(files):,} files are empty: {empty[0]}")
    found = compare_contents(files)
    if found.changed:
        number = f"{len(found.changed):,} of {len(files):,} files are not what they were at the first check: {found.changed[0]}"
        return Fact("broken", f"contents: {number}; if they are right now, remove {found.noted}")
    said = "noted; the next check compares with them" if found.is_new else "as at the first check"
    return Fact("ok", f"contents: {len(files):,} files, hash {found.whole}, {said}")


def _tried(source: ImageSource) -> tuple[list[str], list[str]]:
    """The first test image of each class, decoded: what each was called ('' where nothing names it), and why the others cannot be read."""
    import numpy as np

    from .data.decode import UnreadableImageError

    split, paths, bad = source.split("test"), [], []
    for index in np.unique(split.labels, return_index=True)[1].tolist():
        try:
            split.image(index)
            paths.append(split.path(index) if hasattr(split, "path") else "")
        except UnreadableImageError as error:
            bad.append(str(error))
    return paths, bad


def imagenet_facts(class_names: Sequence[str], counts: dict[str, int]) -> Iterator[Fact]:
    """Whether a set of 1,000 classes is ImageNet-1k in the label order of pretrained weights, and whole. class_names: WordNet ids, or
    numbers where nothing says more. counts: all of train, test."""
    from timm.data import ImageNetInfo

    if any(name.isdigit() for name in class_names):
        yield Fact("warning", "label order: classes have numbers for names, so it cannot be compared with ImageNet's")
        return
    for index, (name, wnid) in enumerate(zip(class_names, ImageNetInfo().label_names(), strict=True)):
        if name != wnid:
            yield Fact("warning", f"label order: class {index} is '{name}', in ImageNet-1k it is {wnid}")
            return
    yield Fact("ok", "label order: that of ImageNet-1k, at each of 1,000 places")
    for name, expected in IMAGENET_COUNTS.items():
        level = "ok" if counts[name] == expected else "warning"
        yield Fact(level, f"{name} and validation together: {counts[name]:,}" if name == "train" else f"{name}: {counts[name]:,}")
        if level == "warning":
            yield Fact(level, f"ImageNet-1k has {expected:,} of these")


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
