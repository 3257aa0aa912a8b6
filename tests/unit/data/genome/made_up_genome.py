"""Made-up FASTA files whose letters are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TO_CODES = {"A": 0, "C": 1, "G": 2, "T": 3}


def random_letters(length: int, seed: int, alphabet: str = "ACGTacgtN") -> str:
    return "".join(np.random.default_rng(seed).choice(list(alphabet), length))


def codes_of(letters: str) -> np.ndarray:
    """The specification, letter by letter: A0 C1 G2 T3, all else 4, plus 8 for lower case."""
    return np.array([TO_CODES.get(letter.upper(), 4) + 8 * letter.islower() for letter in letters], np.uint8)


def write_fasta(path: Path, records: dict[str, str], width: int | None = 60, newline: str = "\n", final: bool = True) -> Path:
    """records: header without '>' -> letters. width None: one line a record. final: whether the last line ends."""
    lines = []
    for header, letters in records.items():
        step = width or max(1, len(letters))
        lines += [f">{header}", *(letters[i : i + step] for i in range(0, len(letters), step))]
    path.write_bytes((newline.join(lines) + newline * final).encode())
    return path


def hold(genome) -> None:
    """Initialiser of a worker process: forked ones inherit the genome as it is, spawned ones get it pickled."""
    global _held
    _held = genome


def fetch(requests: list[tuple[str, int, int]]) -> list[np.ndarray]:
    """A copy of each range of the genome held. Worker processes import this module, and no torch."""
    return [np.array(_held.codes(*request)) for request in requests]
