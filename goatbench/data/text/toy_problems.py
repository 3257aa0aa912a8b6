"""Sequences whose best possible score is known for a model that cannot tell the order of its past: copy, selective copy, induction.

Such a model is one attention layer without positions: its output is a function of the last token and of the *set* of tokens before
it. L tokens are read, as in `problems`.
"""

from __future__ import annotations

import numpy as np

from .problems import FIRST_LABEL, NUM_SYMBOLS, QUERY, VOCAB_SIZE, Problem, drawn_place, insert, place

PAYLOAD = 4  # symbols to be written again
BLANK = FIRST_LABEL  # copy: what lies between
OTHERS = NUM_SYMBOLS - 1  # induction: the answer is never the symbol that is asked for
NUM_NOISE = VOCAB_SIZE - FIRST_LABEL  # selective_copy: different tokens that are no symbols


def build_copy(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """s1 .. s4 BLANK .. BLANK QUERY s1 .. s4. The payload is always at the start: its distance is that of the length."""
    payload = (numbers[:, :PAYLOAD] * NUM_SYMBOLS).astype(np.int64)
    blanks = np.full((len(numbers), length - 2 * PAYLOAD), BLANK)
    return np.concatenate((payload, blanks, np.full((len(numbers), 1), QUERY), payload), axis=1)


def build_selective_copy(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """s1 .. s4 in this order at random places among random noise tokens, QUERY, s1 .. s4."""
    num_noise = length - 2 * PAYLOAD
    noise = FIRST_LABEL + (numbers[:, :num_noise] * NUM_NOISE).astype(np.int64)
    payload = (numbers[:, num_noise : num_noise + PAYLOAD] * NUM_SYMBOLS).astype(np.int64)
    places = np.sort(drawn_place(numbers[:, num_noise + PAYLOAD :][:, :PAYLOAD], num_noise), axis=1)
    read = insert(noise, list(payload.T[:, :, None]), places)
    return np.concatenate((read, np.full((len(numbers), 1), QUERY), payload), axis=1)


def build_induction(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """.. a b .. a -> b: the last symbol read occurred once before, at its depth; the answer is the symbol behind that place."""
    asked = (numbers[:, :1] * NUM_SYMBOLS).astype(np.int64)
    others = (numbers[:, 1 : length - 1] * OTHERS).astype(np.int64)
    others += others >= asked  # every symbol but the one asked for
    last_place = length - 3  # one symbol at least follows
    places = drawn_place(numbers[:, length - 1], last_place) if depths is None else place(depths, last_place)
    read = insert(others, [asked], places[:, None])
    return np.concatenate((read, asked, others[np.arange(len(others)), places, None]), axis=1)


COPY = Problem("copy", build_copy, NUM_SYMBOLS, PAYLOAD, PAYLOAD, extra=0, min_length=2 * PAYLOAD, has_depth=False)
SELECTIVE_COPY = Problem(
    "selective_copy", build_selective_copy, NUM_SYMBOLS, PAYLOAD, PAYLOAD, extra=PAYLOAD, min_length=2 * PAYLOAD, has_depth=False
)
INDUCTION = Problem("induction", build_induction, OTHERS, answer=1, scored=1, extra=0, min_length=3)
