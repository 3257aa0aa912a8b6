"""Passkey and needle in a haystack as the scripts of the GOAT paper make them (arXiv 2601.15380), with their shortcuts.

Characters are tokens; a sequence is built as token ids and never goes through a text. Of the 70 tokens three are unused.
"""

from __future__ import annotations

import numpy as np

from .problems import Problem, assert_once, insert

CHARACTERS = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:?.,"  # our order; the first three ids are special
NUM_SPECIAL = 3
VOCABULARY = NUM_SPECIAL + len(CHARACTERS)

KEY_DIGITS, NEEDLE_LETTERS = 8, 12
PASSKEY_DEPTHS, NEEDLE_DEPTHS = (0.0, 0.8), (0.1, 0.9)  # drawn uniformly in training


def encode(text: str) -> np.ndarray:
    """int64 [len(text)]"""
    return np.array([NUM_SPECIAL + CHARACTERS.index(character) for character in text])


LETTERS, DIGITS, HAYSTACK, NEEDLE = encode("abcdefghijklmnopqrstuvwxyz "), encode("0123456789"), encode("abcd "), encode("abcd")
LOG, PASSKEY_IS, ASK_PASSKEY = encode(" system log: "), encode("passkey: "), encode(" q: what is the passkey? a: ")
DOC, NEEDLE_IS, ASK_NEEDLE = encode(" doc: "), encode("needle: "), encode(" q: what is the needle? a: ")
SPACE = encode(" ")
_FIXED_PASSKEY = len(LOG) + len(PASSKEY_IS) + len(SPACE) + len(ASK_PASSKEY) + 2 * KEY_DIGITS  # characters that are no filler
_FIXED_NEEDLE = len(DOC) + len(NEEDLE_IS) + len(SPACE) + len(ASK_NEEDLE) + 2 * NEEDLE_LETTERS


def build_passkey(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """' system log: ' filler 'passkey: KEY ' filler ' q: what is the passkey? a: ' KEY. The filler has no digits.

    The needle is put in behind the share `depth` of the filler; training draws it from 0 .. 0.8.
    """
    num_filler = length + 1 - _FIXED_PASSKEY
    places = (_depths(numbers[:, 0], depths, PASSKEY_DEPTHS) * num_filler).astype(np.int64)
    key = _drawn(numbers[:, 1 : 1 + KEY_DIGITS], DIGITS)
    filler = _drawn(numbers[:, 1 + KEY_DIGITS :][:, :num_filler], LETTERS)
    return _assemble(LOG, filler, PASSKEY_IS, key, places, ASK_PASSKEY)


def build_needle(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """' doc: ' filler 'needle: NEEDLE ' filler ' q: what is the needle? a: ' NEEDLE. Filler and needle are of the letters abcd.

    The depth is a share of everything before the question: 'needle: ' begins there, moved where header or question would be cut.
    Training draws it from 0.1 .. 0.9 for each sequence.
    """
    num_filler, before = length + 1 - _FIXED_NEEDLE, length + 1 - len(ASK_NEEDLE) - NEEDLE_LETTERS
    begins = (_depths(numbers[:, 0], depths, NEEDLE_DEPTHS) * before).astype(np.int64)
    places = np.clip(begins - len(DOC), 0, num_filler)
    needle = _drawn(numbers[:, 1 : 1 + NEEDLE_LETTERS], NEEDLE)
    filler = _drawn(numbers[:, 1 + NEEDLE_LETTERS :][:, :num_filler], HAYSTACK)
    return _assemble(DOC, filler, NEEDLE_IS, needle, places, ASK_NEEDLE)


def _depths(numbers: np.ndarray, depths: np.ndarray | None, ends: tuple[float, float]) -> np.ndarray:
    return ends[0] + numbers * (ends[1] - ends[0]) if depths is None else depths


def _drawn(numbers: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return tokens[(numbers * len(tokens)).astype(np.int64)]


def _assemble(
    header: np.ndarray, filler: np.ndarray, says: np.ndarray, answer: np.ndarray, places: np.ndarray, question: np.ndarray
) -> np.ndarray:
    """header, filler with `says` answer ' ' put in before filler token places [n], question, answer."""
    n = len(filler)

    def each(tokens: np.ndarray) -> np.ndarray:
        return np.broadcast_to(tokens, (n, len(tokens)))

    phrase = np.concatenate((each(says), answer), axis=1)
    text = insert(filler, [np.concatenate((phrase, each(SPACE)), axis=1)], places[:, None])
    read = np.concatenate((each(header), text, each(question)), axis=1)
    assert_once(read, phrase)
    return np.concatenate((read, answer), axis=1)


PASSKEY_PAPER = Problem(
    "passkey_paper", build_passkey, len(DIGITS), answer=KEY_DIGITS, scored=KEY_DIGITS, extra=0, min_length=_FIXED_PASSKEY - 1,
    num_scored=VOCABULARY, vocab_size=VOCABULARY,
)  # fmt: skip
NIAH_PAPER = Problem(
    "niah_paper", build_needle, len(NEEDLE), answer=NEEDLE_LETTERS, scored=NEEDLE_LETTERS, extra=0, min_length=_FIXED_NEEDLE - 1,
    num_scored=VOCABULARY, vocab_size=VOCABULARY,
)  # fmt: skip
