"""What went wrong elsewhere with long-context scores, tried on ours. Each test names its public report.

NVIDIA/RULER issues 15, 30 and 54 (scorers that are given a string for a list, "any" that is not any) do not apply as they stand: the
scorers here compare tokens, and babilong's compares one word, which test_single_label tries. What remains of them is that an answer of
several values needs them all. Decoding token by token (fla-org/flame issue 27) is in test_retrieval.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from goatbench.compose import compose
from goatbench.data.text import toy_problems
from goatbench.data.text.paper_problems import NIAH_PAPER, PASSKEY_PAPER
from goatbench.data.text.problems import MARK, NEEDLE, PASSKEY, QUERY, multi_needle
from goatbench.data.text.synthetic import SyntheticTest
from goatbench.errors import UsageError
from goatbench.registry import tasks
from goatbench.tasks.retrieval import MULTI_NEEDLE, exact_by_depth
from goatbench.tasks.retrieval import NEEDLE as TASK
from goatbench.training.evaluate_lm import evaluate_lm

PROBLEMS = [
    NEEDLE, PASSKEY, multi_needle(4, 2), toy_problems.COPY, toy_problems.SELECTIVE_COPY, toy_problems.INDUCTION, PASSKEY_PAPER, NIAH_PAPER,
]  # fmt: skip


class Oracle(nn.Module):
    """Reads the answers that it is given: symbols right, marks always wrong. Keeps what it was asked to read."""

    vocab_size = 32

    def __init__(self, tokens: torch.Tensor) -> None:
        super().__init__()
        self.tokens, self.read = tokens, []

    def hidden(self, tokens):
        self.read.append(tokens.clone())
        targets = self.tokens[:, 1:]
        return nn.functional.one_hot(torch.where(targets < 24, targets, 0), 32).float()

    def head(self, hidden):
        return 9 * hidden


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_length_works_or_the_smallest_is_named(problem):
    """EleutherAI/lm-evaluation-harness issue 2963: short lengths searched for ever."""
    for length in range(problem.min_length, problem.min_length + 20):
        assert SyntheticTest(problem, length, (0.0, 1.0), each=1).tokens.shape == (2, length + 1)


def test_a_length_without_room_is_one_line():
    """The same report: the message names the smallest length."""
    spec = compose(["task=multi_needle", "scale=smoke", "model.seq_len=22", "data.min_length=null"]).spec
    with pytest.raises(UsageError, match=r"model\.seq_len=22: multi_needle_4_2 takes 23 tokens or more"):
        MULTI_NEEDLE.data(spec)


@pytest.mark.parametrize("problem", [NEEDLE, multi_needle(4, 2)], ids=lambda problem: problem.name)
def test_the_model_reads_the_whole_sequence(problem):
    """lm-evaluation-harness issues 3115 and 1642, and THUDM/LongBench issue 25: contexts were cut, from the left or in the middle.

    At 16 times the training length the first tokens are the needle, and they reach the model.
    """
    windows = SyntheticTest(problem, 512, (0.0,), each=4)
    net = Oracle(windows.tokens)
    result = evaluate_lm(net, [(windows.tokens, torch.arange(4))], num_scored=24, num_windows=4, device="cpu", last=problem.answer)
    (read,) = net.read
    assert torch.equal(read, windows.tokens[:, :-1]) and read.shape == (4, 512)
    assert problem is not NEEDLE or (read[:, 0] == MARK).all()
    assert result.context == 512


def test_every_mechanism_reads_the_same_sequences():
    """THUDM/LongBench issue 25: models of different limits were given different text."""
    made = []
    for attention in ("goat", "rope", "learned_absolute"):
        spec = compose(["task=needle", f"attention={attention}", "scale=smoke"]).spec
        made.append((TASK.fingerprint(spec), TASK.data(spec).windows("test", 512).tokens))
    assert len({fingerprint for fingerprint, _ in made}) == 1
    assert all(torch.equal(tokens, made[0][1]) for _, tokens in made)


@pytest.mark.parametrize("name", ["needle", "passkey", "multi_needle", "copy", "selective_copy", "induction"])
def test_the_protocol_is_in_the_record(name):
    """ofirpress/attention_with_linear_biases issue 16: readers could not tell how a number was made. (lm_length has window and stride
    beside every number.)"""
    task = tasks.get(name)
    spec = compose([f"task={name}", "evaluation.depths=[0,0.5]"]).spec
    protocol = task.protocol(spec)
    assert protocol["depths"] == "0 0.5" and protocol["train_context"] == 32 and protocol["problem"].startswith(name)
    assert "exact_match: every symbol" in task.card.protocol and "1, 2, 4, 8 and 16 training lengths" in task.card.protocol


def test_an_answer_of_several_values_needs_them_all():
    """NVIDIA/RULER issues 15, 30 and 54: one value of several was counted as an answer."""
    correct = np.array([4, 3, 2, 0, 4, 4])
    assert exact_by_depth(correct, multi_needle(4, 2).scored, 2) == [1, 2]


@pytest.mark.parametrize("length", [23, 24, 64, 512])
def test_needles_are_whole_and_there_is_no_start_token(length):
    """Zefan-Cai/KVCache-Factory issue 62 and skylight-org/skylight-research pull request 90: a trip through text put start tokens into
    the needle. Here the needle's ids occur once, and no token is there that the task does not name."""
    for row in SyntheticTest(NEEDLE, length, (0.0, 0.3, 1.0), each=20).tokens.tolist():
        piece = [MARK, *row[-2:]]
        assert sum(row[i : i + 3] == piece for i in range(len(row) - 2)) == 1
        assert sorted(token for token in row if token >= 24) == [MARK, QUERY]


def test_only_values_are_compared():
    """Neroued/ninfer issue 171: a whole sentence was demanded, so that scores measured the length of answers.

    A model that gets each value right and each mark wrong is exact, and one symbol too few is not.
    """
    problem = multi_needle(4, 2)
    tokens = SyntheticTest(problem, 64, None, each=8).tokens
    told = tokens.clone()
    told[0, -1] = (told[0, -1] + 1) % 24
    net = Oracle(told)
    result = evaluate_lm(net, [(tokens, torch.arange(8))], num_scored=24, num_windows=8, device="cpu", last=problem.answer)
    assert result.window_correct.tolist() == [3] + [4] * 7
