"""A little genome of known letters, as the specification and the data of a run."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from goatbench.compose import compose


def random_letters(length: int, seed: int) -> str:
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), length))


def little_run(folder: Path, task: Any, letters: dict[str, str], *overrides: str) -> tuple[Any, Any]:
    """(spec, data) of a task at scale smoke and seq_len 16 whose test regions are these contigs; training has contigs of its own."""
    contigs = {"train": random_letters(2000, 1), "validation": random_letters(500, 2), **letters}
    fasta, split = folder / "little.fa", folder / "split.tsv"
    fasta.write_text("".join(f">{name}\n{text}\n" for name, text in contigs.items()))
    rows = [("contig", "start", "end", "split", "core_start", "core_end", "region")]
    for name, text in contigs.items():
        rows.append((name, 0, len(text), name if name in ("train", "validation", "masked") else "test", 0, len(text), name))
    split.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    local = ["data=fasta", f"data.fasta={fasta}", "data.split=file", f"data.split_file={split}"]
    counts = ["data.num_train=8", "data.num_validation=4", "data.num_test=null", "model.seq_len=16", "evaluation.num_targets=16"]
    markov = ["evaluation.markov_orders=[2]", "evaluation.markov_interpolated=3"]
    spec = compose(list(chain([f"task={task.card.name}", "scale=smoke", "attention=nope"], local, counts, markov, overrides))).spec
    return spec, task.data(spec)
