"""Scoring of the needle: teacher forcing against real generation, and the numbers of a record by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import OPTIONS

from goatbench.data.text.problems import NEEDLE, PASSKEY, multi_needle
from goatbench.models import Decoder
from goatbench.models.generate import generate
from goatbench.tasks import retrieval
from goatbench.training.evaluate_lm import evaluate_lm


@pytest.mark.parametrize("attention", ["goat", "rope", "alibi"])
def test_exact_match_is_what_greedy_generation_writes(attention):
    """Answers that are what the model writes, and answers with the first, the second or both symbols changed."""
    torch.manual_seed(0)
    net = Decoder(attention, OPTIONS.get(attention), vocab_size=32, num_scored=24, seq_len=16, embed_dim=32, depth=2, num_heads=1)
    with torch.no_grad():
        net.head.weight.mul_(20)
    prompts = torch.randint(24, (80, 29))
    written = generate(net, prompts, 2, temperature=0, allowed=32)
    assert written.unique(dim=0).shape[0] > 10
    answers = written.clone()
    answers[20:60, 0] = (answers[20:60, 0] + 1) % 24
    answers[40:, 1] = (answers[40:, 1] + 1) % 24
    tokens = torch.cat((prompts, answers), dim=1)
    result = evaluate_lm(net, [(tokens, torch.arange(80))], num_scored=24, num_windows=80, device="cpu", last=2)
    is_exact = result.window_correct == NEEDLE.scored
    again = generate(net, prompts, 2, temperature=0, allowed=32)
    assert is_exact.tolist() == (again == answers).all(1).tolist() == [True] * 20 + [False] * 60
    assert result.position_correct[0] == (written[:, 0] == answers[:, 0]).sum()


@pytest.mark.parametrize(
    ("task", "problem"), [(retrieval.NEEDLE, NEEDLE), (retrieval.PASSKEY, PASSKEY), (retrieval.MULTI_NEEDLE, multi_needle(4, 2))]
)
def test_the_chance_of_a_card_is_that_of_the_problem(task, problem):
    assert task.card.metric("exact_match").chance == pytest.approx(problem.alphabet**-problem.scored)
    assert task.card.metric("token_accuracy").chance == pytest.approx(1 / problem.alphabet)


def test_the_grid_counts_whole_answers():
    correct = np.array([2, 2, 1, 0, 2, 2, 2, 2, 1, 1, 0, 0])
    assert retrieval.exact_by_depth(correct, 2, 3) == [2, 4, 0]
