"""One base a byte: the low three bits say which letter, the fourth whether it was lower case (soft-masked: a repeat).

A 0, C 1, G 2, T 3, everything else N 4. `codes & TOKEN` is the token of a model; its targets are 0..3 only.
"""

from __future__ import annotations

import numpy as np

LETTERS = "ACGTN"
N = 4
TOKEN, MASK = 7, 8
_DNA = b"ACGTNRYSWKMBDHVXacgtnryswkmbdhvx-."
VOCAB_SIZE = 5


def _encoding() -> np.ndarray:
    table = np.full(256, N, np.uint8)
    for code, letter in enumerate(LETTERS):
        table[ord(letter)] = code
        table[ord(letter.lower())] = code
    table[ord("a") : ord("z") + 1] |= MASK
    return table


ENCODE = _encoding()  # uint8 [256]: byte -> code
DECODE = np.frombuffer((LETTERS + "NNN" + LETTERS.lower() + "nnn").encode(), np.uint8)  # uint8 [16]: code -> byte
_COMPLEMENT = np.array([code & MASK | (3 - (code & TOKEN) if code & TOKEN < N else N) for code in range(16)], np.uint8)


def encode(letters: bytes) -> np.ndarray:
    """uint8 codes [n] of n letters. Every letter other than ACGT of either case becomes N."""
    return ENCODE[np.frombuffer(letters, np.uint8)]


def decode(codes: np.ndarray) -> bytes:
    """The letters of codes [n]: soft-masked ones in lower case, what was not ACGT as N."""
    return DECODE[codes].tobytes()


def reverse_complement(codes: np.ndarray) -> np.ndarray:
    """The other strand of codes [..., n], read in its own direction; soft-masking stays with its base."""
    return _COMPLEMENT[codes[..., ::-1]]


def letter_counts(letters: bytes) -> dict[str, int]:
    """How often A C G T N occur, case aside, `other` (IUPAC and whatever else becomes N), and `masked` (lower case)."""
    by_byte = np.bincount(np.frombuffer(letters, np.uint8), minlength=256)
    counts = {letter: int(by_byte[ord(letter)] + by_byte[ord(letter.lower())]) for letter in LETTERS}
    counts["other"] = len(letters) - sum(counts.values())
    counts["masked"] = int(by_byte[ord("a") : ord("z") + 1].sum())
    return counts


def odd_letters(letters: bytes) -> bytes:
    """Those that are no DNA code of either case: not ACGTN, IUPAC (RYSWKM BDHV), X (a masked base), or a gap."""
    return letters.translate(None, _DNA)


def n_runs(codes: np.ndarray) -> np.ndarray:
    """int64 [k, 2]: start and end of the maximal runs of N."""
    return true_runs((codes & TOKEN) == N)


def true_runs(flags: np.ndarray) -> np.ndarray:
    """int64 [k, 2]: start and end of the maximal runs of True in bool [n]."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).view(np.int8)))
    return edges.astype(np.int64).reshape(-1, 2)
