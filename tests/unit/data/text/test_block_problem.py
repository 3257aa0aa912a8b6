"""The block task: its definition checked sequence by sequence, in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from goatbench.data.philox import TESTS, uniforms
from goatbench.data.text.block_problem import BLOCKS, BLOCKS_8, BLOCKS_8_FIRST, BLOCKS_8_LAST, BLOCKS_FIRST, BLOCKS_LAST, draw_blocks

TEXT = "abcdefghijklmnopqrstuvwxyz.#"


def sequences(problem, length: int, n: int = 400, depths: np.ndarray | None = None) -> list[str]:
    count = (length + problem.extra + 3) // 4 * 4
    tokens = problem.build(uniforms(0, length, np.arange(n), count, TESTS), length, depths)
    assert tokens.shape == (n, length + 1) and tokens.dtype == np.int64
    return ["".join(TEXT[t] for t in row) for row in tokens]


@pytest.mark.parametrize(
    ("problem", "length", "num_blocks", "size", "part"),
    [
        (BLOCKS, 78, 12, 5, slice(0, 5)),
        (BLOCKS, 318, 52, 5, slice(0, 5)),  # the published length and number of blocks
        (BLOCKS_FIRST, 78, 12, 5, slice(0, 1)),  # four separators are left over
        (BLOCKS_LAST, 74, 12, 5, slice(4, 5)),
        (BLOCKS_8, 117, 12, 8, slice(0, 8)),
        (BLOCKS_8, 120, 12, 8, slice(0, 8)),
        (BLOCKS_8_FIRST, 118, 12, 8, slice(0, 1)),
        (BLOCKS_8_LAST, 111, 12, 8, slice(7, 8)),
    ],
)
def test_exactly_one_block_holds_both_letters_and_it_is_whole(problem, length, num_blocks, size, part):
    texts = sequences(problem, length)
    half = Counter()
    for text in texts:
        context, _, rest = text.partition("#")
        asked, answer = rest[:2], rest[2:]
        found = context.lstrip(".").split(".")
        assert len(found) == num_blocks
        assert all(len(block) == len(set(block)) == size and block.isalpha() for block in found)
        targets = [block for block in found if set(asked) <= set(block)]
        assert len(targets) == 1 and len(set(asked)) == 2
        assert answer == targets[0][part]
        half[len(set(asked) & {letter for block in found if block != targets[0] for letter in block})] += 1
    assert half[2] > 0.6 * len(texts)  # either letter alone points to other blocks as well
    assert len(set(texts)) == len(texts)


def test_the_target_lies_at_its_depth_and_anywhere_without_one():
    depths = np.repeat([0.0, 0.5, 1.0], 20)
    for text, depth in zip(sequences(BLOCKS, 78, 60, depths), depths, strict=True):
        assert text.partition("#")[0].split(".").index(text[-5:]) == round(11 * depth + 1e-9)  # 5.5 is 6
    places = Counter(text.partition("#")[0].split(".").index(text[-5:]) for text in sequences(BLOCKS, 78, 1200))
    assert set(places) == set(range(12)) and max(places.values()) < 150  # 100 each, sd 9.6


def test_letters_and_the_order_of_the_question_are_uniform():
    texts = sequences(BLOCKS, 78, 2000)
    counts = Counter(letter for text in texts for letter in text if letter.isalpha())
    assert len(counts) == 26 and max(counts.values()) < 1.06 * min(counts.values())
    in_order = sum(text[-5:].index(text[-7]) < text[-5:].index(text[-6]) for text in texts)
    assert in_order == pytest.approx(1000, abs=4 * 22.4)
    pairs = Counter(tuple(sorted(text[-5:].index(letter) for letter in text[-7:-5])) for text in texts)
    assert len(pairs) == 10 and max(pairs.values()) == pytest.approx(200, abs=5 * 13.4)


def test_drawn_blocks_are_prefixes_of_permutations():
    drawn, left = draw_blocks(np.random.default_rng(0).random((50, 3, 8)), 8)
    assert (np.sort(np.concatenate((drawn, left), axis=2), axis=2) == np.arange(26)).all()
    first = draw_blocks(np.zeros((1, 1, 5)), 5)[0]
    assert first.tolist() == [[[0, 1, 2, 3, 4]]]  # a number of 0 keeps every letter in its place
    last = draw_blocks(np.full((1, 1, 3), 1 - 2.0**-32), 3)[0]
    assert last.tolist() == [[[25, 0, 1]]]  # z first; then the last place, which holds a by then


def test_sequences_do_not_depend_on_the_hash_seed():
    code = (
        "import numpy as np; from goatbench.data.text.block_problem import BLOCKS; from goatbench.data.philox import uniforms;"
        "print(BLOCKS.build(uniforms(0, 1, np.arange(3), 84, 5), 78, None).tolist())"
    )
    runs = [subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": s}, capture_output=True) for s in "12"]
    assert runs[0].stdout == runs[1].stdout != b""
