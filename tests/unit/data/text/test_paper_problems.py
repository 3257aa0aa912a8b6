"""The paper's passkey and needle: the layout by a regular expression, the places by the published distances."""

from __future__ import annotations

import re

import numpy as np
import pytest

from goatbench.compose import compose
from goatbench.data.text.paper_problems import CHARACTERS, NIAH_PAPER, NUM_SPECIAL, PASSKEY_PAPER
from goatbench.data.text.problems import assert_once
from goatbench.data.text.synthetic import SyntheticTest

PASSKEY = re.compile(r"^ system log: ([a-z ]*)passkey: (\d{8}) ([a-z ]*) q: what is the passkey\? a: (\d{8})$")
NEEDLE = re.compile(r"^ doc: ([abcd ]*)needle: ([abcd]{12}) ([abcd ]*) q: what is the needle\? a: ([abcd]{12})$")


def texts(problem, length, depths, each):
    return [
        "".join(CHARACTERS[token - NUM_SPECIAL] for token in row) for row in SyntheticTest(problem, length, depths, each).tokens.tolist()
    ]


def test_passkeys():
    assert PASSKEY_PAPER.num_scored == PASSKEY_PAPER.vocab_size == 70
    keys = []
    for i, text in enumerate(texts(PASSKEY_PAPER, 166, (0.0, 0.4, 0.8), 30)):
        before, key, after, answer = PASSKEY.match(text).groups()
        assert key == answer and len(text) == 167 and len(before) == (0, 40, 80)[i // 30] and len(before + after) == 100
        keys.append(key)
    assert len(set(keys)) == 90 and {digit for key in keys for digit in key} == set("0123456789")
    drawn = [len(PASSKEY.match(text).group(1)) for text in texts(PASSKEY_PAPER, 166, None, 2000)]
    assert min(drawn) == 0 and max(drawn) == 79  # 0 .. 0.8 of 100
    assert np.mean(drawn) == pytest.approx(39.5, abs=2.6)  # five standard deviations of the mean of 0 .. 79


def test_needles_lie_where_they_were_published_to_lie():
    """Sequences of 16,384 characters, from the needle's first letter to the answer's."""
    found = texts(NIAH_PAPER, 16383, (0.1, 0.3, 0.5, 0.7, 0.9), 1)
    assert {len(text) for text in found} == {16384}
    assert [len(text) - 12 - NEEDLE.match(text).start(2) for text in found] == [14730, 11461, 8192, 4923, 1654]


def test_needles():
    for text in texts(NIAH_PAPER, 165, None, 500):
        before, needle, after, answer = NEEDLE.match(text).groups()
        assert needle == answer and text.count(f"needle: {needle}") == 1 and len(before + after) == 100
        assert 0.1 * 127 - 7 <= len(before) <= 0.9 * 127 - 6  # a share of what precedes the question, behind a header of 6
    shortest = texts(NIAH_PAPER, NIAH_PAPER.min_length, (0.1, 0.9), 1)
    assert all(NEEDLE.match(text).group(1) == NEEDLE.match(text).group(3) == "" for text in shortest)


def test_a_phrase_that_is_missing_or_twice_is_found():
    assert_once(np.array([[1, 2, 1, 3], [1, 3, 0, 1]]), np.array([[1, 2], [1, 3]]))
    for text in ([1, 2, 1, 2], [2, 1, 3, 1]):
        with pytest.raises(AssertionError):
            assert_once(np.array([[1, 2, 0, 0], text]), np.array([[1, 2], [1, 2]]))


@pytest.mark.parametrize(("data", "depths"), [("passkey_paper", [0, 0.2, 0.4, 0.6, 0.8]), ("niah_paper", [0.1, 0.3, 0.5, 0.7, 0.9])])
def test_presets_name_their_problem_and_depths(data, depths):
    from goatbench.tasks.retrieval import PASSKEY as TASK

    spec = compose(["task=passkey", f"data={data}", f"evaluation={data}", "model=decoder_toy_chars"]).spec
    problem = TASK.problem_of(spec)
    assert problem.name == data and spec.evaluation.depths == depths and spec.data.num_test >= 100
    assert spec.model.num_scored == problem.num_scored and spec.model.vocab_size == problem.vocab_size
