"""Which block holds these two letters? The block task of Multi-Token Attention (arXiv 2504.00927, section 4.1), generated anew.

    ..abcde.fghij. ... .vwxyz#iv -> the block in which both letters stand: all of its N letters, or its first or last one

One letter alone does not tell: other blocks may hold one of the two, never both. Every sequence is whole: as many blocks as fit, and
what is left over is separators in front. The published generator cuts its text instead, and with N = 8 the target too in 2.9 % of cases.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .problems import Problem, draw_distinct, drawn_place

NUM_LETTERS = 26
SEPARATOR, QUESTION = 26, 27  # '.' and '#'
NUM_ASKED = 2  # letters asked for, in any order


def num_blocks(length: int, size: int, answer: int) -> int:
    """Blocks of a sequence of which `length` tokens are read: block and separator, '#' in place of the last separator, 2 letters."""
    return (length + 1 - NUM_ASKED - answer) // (size + 1)


def draw_blocks(numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """numbers [n, B, size] -> (blocks [n, B, size] of different letters, the letters that are left [n, B, 26 - size])."""
    letters = draw_distinct(numbers, NUM_LETTERS)
    return letters[..., :size], letters[..., size:]


def blocks(size: int, target: str) -> Problem:
    """size: letters of a block, N; target: 'all' its letters in order, or its 'first' or 'last' one. Depth: place among the blocks."""
    parts = {"all": slice(None), "first": slice(0, 1), "last": slice(size - 1, size)}
    answer = size if target == "all" else 1
    build = build_blocks(size, answer, parts[target])
    least = 2 * (size + 1) + NUM_ASKED + answer - 1
    return Problem(f"blocks_{size}_{target}", build, NUM_LETTERS, answer, answer, extra=4, min_length=least, num_scored=NUM_LETTERS)


def build_blocks(size: int, answer: int, part: slice) -> Callable[[np.ndarray, int, np.ndarray | None], np.ndarray]:
    def build(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
        count, n = num_blocks(length, size, answer), len(numbers)
        assert count >= 2
        drawn, left = draw_blocks(numbers[:, : count * size].reshape(n, count, size), size)
        spare = numbers[:, count * size : count * (size + 1)]
        where, first, second = numbers[:, count * (size + 1) :][:, :3].T
        rows = np.arange(n)
        places = drawn_place(where, count - 1) if depths is None else np.floor(depths * (count - 1) + 0.5).astype(np.int64)
        a = (first * size).astype(np.int64)
        b = (second * (size - 1)).astype(np.int64)
        b += b >= a
        chosen = drawn[rows, places].copy()
        asked = np.stack((chosen[rows, a], chosen[rows, b]), axis=1)
        # A block that holds both letters gets another in place of the second: no other block may answer the question.
        holds_both = ((drawn[..., None] == asked[:, None, None]).any(2)).all(-1)
        holds_both[rows, places] = False
        substitute = np.take_along_axis(left, (spare[..., None] * left.shape[2]).astype(np.int64), axis=2)
        swapped = holds_both[..., None] & (drawn == asked[:, 1, None, None])
        drawn = np.where(swapped, substitute, drawn)
        separated = np.concatenate((drawn, np.full((n, count, 1), SEPARATOR)), axis=2).reshape(n, -1)
        separated[:, -1] = QUESTION
        front = np.full((n, length + 1 - separated.shape[1] - NUM_ASKED - answer), SEPARATOR)
        return np.concatenate((front, separated, asked, chosen[:, part]), axis=1)

    return build


BLOCKS = blocks(5, "all")
BLOCKS_FIRST = blocks(5, "first")
BLOCKS_LAST = blocks(5, "last")
BLOCKS_8 = blocks(8, "all")
BLOCKS_8_FIRST = blocks(8, "first")
BLOCKS_8_LAST = blocks(8, "last")
