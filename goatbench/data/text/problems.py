"""Made-up sequences with an answer at their end that can only be read off what came before: needles of several kinds.

n sequences, L tokens that the model reads, F of them filler. A sequence has L + 1 tokens: the last one is only predicted. Filler is
drawn from the alphabet of the answers, so that no symbol gives its place away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...spec import ToyDataSpec

NUM_SYMBOLS, KEY_SYMBOLS = 24, 5
MARK, QUERY = 24, 25  # token ids of the marks, behind all symbols
FIRST_LABEL = 26  # multi_needle: what needles are called; needle and passkey: marks of distractors
VOCAB_SIZE = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of sequence.

    build:       (numbers [n, numbers_per_token * L + extra] in [0, 1), L, depths [n] or None) -> tokens int64 [n, L + 1], or [n, 2, L]:
                 what is read and what is to be predicted. depths: where the (first asked) needle lies, 0 the start of the filler and 1
                 its end; None: drawn.
    alphabet:    different symbols that an answer is made of.
    answer:      the last so many tokens hold the answer; scored of them are symbols of it, the others marks. Both None: answers lie
                 anywhere, and every target that is a symbol is scored.
    extra:       numbers beyond those of the tokens; min_length: the smallest L.
    num_scored, vocab_size: what a model must have: symbols lie below num_scored, all tokens below vocab_size.
    has_depth:   False where there is no place to choose, and `depths` change nothing.
    """

    name: str
    build: Callable[[np.ndarray, int, np.ndarray | None], np.ndarray]
    alphabet: int
    answer: int | None
    scored: int | None
    extra: int
    min_length: int
    num_scored: int = NUM_SYMBOLS
    vocab_size: int = VOCAB_SIZE
    has_depth: bool = True
    numbers_per_token: int = 1


def insert(filler: np.ndarray, pieces: list[np.ndarray], places: np.ndarray) -> np.ndarray:
    """filler [n, F] with pieces [n, P] put before filler token places[:, i] (F: behind all); pieces of one place keep their order."""
    num_rows, num_filler = filler.shape
    keys = [np.repeat(2 * places[:, i, None], piece.shape[1], axis=1) for i, piece in enumerate(pieces)]
    keys.append(np.broadcast_to(2 * np.arange(num_filler) + 1, (num_rows, num_filler)))
    order = np.argsort(np.concatenate(keys, axis=1), axis=1, kind="stable")
    return np.take_along_axis(np.concatenate([*pieces, filler], axis=1), order, axis=1)


def place(depths: np.ndarray, num_filler: int) -> np.ndarray:
    """int64: the filler token before which a needle at this depth goes; 0 .. num_filler."""
    return np.floor(depths * num_filler + 0.5).astype(np.int64)


def drawn_place(numbers: np.ndarray, num_filler: int) -> np.ndarray:
    """int64, uniform in 0 .. num_filler."""
    return np.minimum((numbers * (num_filler + 1)).astype(np.int64), num_filler)


def draw_distinct(numbers: np.ndarray, size: int) -> np.ndarray:
    """int64 [..., size] permutations whose first P are drawn: different, every choice and order as likely; numbers [..., P]."""
    drawn = np.broadcast_to(np.arange(size), (*numbers.shape[:-1], size)).copy()
    for i in range(numbers.shape[-1]):  # Fisher and Yates: entry i changes places with one from i on
        other = i + (numbers[..., i, None] * (size - i)).astype(np.int64)
        taken = np.take_along_axis(drawn, other, axis=-1)
        np.put_along_axis(drawn, other, drawn[..., i, None], axis=-1)
        drawn[..., i] = taken[..., 0]
    return drawn


def assert_once(text: np.ndarray, phrase: np.ndarray) -> None:
    """AssertionError unless phrase[i] [P] occurs in text[i] exactly once, for each row i."""
    size = phrase.shape[1]
    rows, starts = np.nonzero(text[:, : text.shape[1] - size + 1] == phrase[:, :1])
    found = (text[rows[:, None], starts[:, None] + np.arange(size)] == phrase[rows]).all(1)
    assert (np.bincount(rows[found], minlength=len(text)) == 1).all()


def single_needle(num_symbols: int, size: int, num_distractors: int = 0) -> Callable[[np.ndarray, int, np.ndarray | None], np.ndarray]:
    """... filler MARK a b .. filler ... QUERY a b ..: `size` symbols behind the mark, asked for at the end. Each distractor is as many
    symbols behind a mark of its own, at a drawn place, and never asked for."""

    def build(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
        # MARK, the needle, QUERY and all of the answer but its last symbol are read too
        num_filler = length - 2 * size - 1 - num_distractors * (size + 1)
        assert num_filler >= 0
        count = num_filler + size * (1 + num_distractors)
        symbols = (numbers[:, :count] * num_symbols).astype(np.int64)
        filler, needles = symbols[:, :num_filler], np.split(symbols[:, num_filler:], 1 + num_distractors, axis=1)
        places = drawn_place(numbers[:, count : count + 1 + num_distractors], num_filler)
        if depths is not None:
            places[:, 0] = place(depths, num_filler)
        mark = np.ones((len(numbers), 1), np.int64)
        marks = [MARK, *range(FIRST_LABEL, FIRST_LABEL + num_distractors)]
        pieces = [np.concatenate((token * mark, needle), axis=1) for token, needle in zip(marks, needles, strict=True)]
        read = insert(filler, pieces, places)
        assert_once(read, pieces[0])
        return np.concatenate((read, QUERY * mark, needles[0]), axis=1)

    return build


def needle_of(data: ToyDataSpec) -> Problem:
    return _single("needle", 2, data.num_distractors)


def passkey_of(data: ToyDataSpec) -> Problem:
    return _single("passkey", KEY_SYMBOLS, data.num_distractors)


def _single(name: str, size: int, num_distractors: int) -> Problem:
    return Problem(
        f"{name}_{num_distractors}" if num_distractors else name, single_needle(NUM_SYMBOLS, size, num_distractors), NUM_SYMBOLS,
        answer=size, scored=size, extra=4, min_length=2 * size + 1 + num_distractors * (size + 1),
    )  # fmt: skip


def multi_needle_of(data: ToyDataSpec) -> Problem:
    return multi_needle(data.num_needles, data.num_asked)


def multi_needle(num_needles: int, num_asked: int, size: int = 2) -> Problem:
    """`num_needles` needles with labels, MARK label a b, of which `num_asked` are asked for by label, in an order of their own."""

    def build(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
        num_filler = length + 1 - num_needles * (size + 2) - num_asked * (size + 2)
        assert num_filler >= 0
        n, count = len(numbers), num_filler + num_needles * size
        symbols = (numbers[:, :count] * NUM_SYMBOLS).astype(np.int64)
        filler, values = symbols[:, :num_filler], symbols[:, num_filler:].reshape(n, num_needles, size)
        rest = numbers[:, count:]
        places = drawn_place(rest[:, :num_needles], num_filler)
        labels = FIRST_LABEL + np.argsort(rest[:, num_needles : 2 * num_needles], axis=1)
        asked = np.argsort(rest[:, 2 * num_needles : 3 * num_needles], axis=1)[:, :num_asked]
        if depths is not None:
            places[np.arange(n), asked[:, 0]] = place(depths, num_filler)
        mark, query = (np.full((n, 1), token) for token in (MARK, QUERY))
        pieces = [np.concatenate((mark, labels[:, i, None], values[:, i]), axis=1) for i in range(num_needles)]
        parts = [insert(filler, pieces, places)]
        for piece in pieces:
            assert_once(parts[0], piece)
        rows = np.arange(n)
        for i in asked.T:
            parts += [query, labels[rows, i, None], values[rows, i]]
        return np.concatenate(parts, axis=1)

    answer = num_asked * (size + 2) - 2  # the first QUERY and its label are no answer
    least = (num_needles + num_asked) * (size + 2) - 1
    name = f"multi_needle_{num_needles}_{num_asked}"
    return Problem(name, build, NUM_SYMBOLS, answer, num_asked * size, 4 * num_needles, least)


NEEDLE, PASSKEY = _single("needle", 2, 0), _single("passkey", KEY_SYMBOLS, 0)
