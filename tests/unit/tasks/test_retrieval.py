"""Scoring of answers: teacher forcing against real generation, and the numbers of a record by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import OPTIONS

from goatbench.compose import compose
from goatbench.data.text import toy_problems
from goatbench.data.text.problems import FIRST_LABEL, NEEDLE, PASSKEY, QUERY, multi_needle
from goatbench.data.text.synthetic import SyntheticTest
from goatbench.models import Decoder
from goatbench.models.generate import generate
from goatbench.registry import tasks
from goatbench.tasks import retrieval, toys
from goatbench.training.evaluate_lm import evaluate_lm

ATTENTIONS = ["goat", "rope", "alibi", "nope", "sinusoidal", "sink_scalar", "goat_reference"]


def make(attention: str) -> Decoder:
    """With clear preferences, which positions do not drown."""
    torch.manual_seed(0)
    net = Decoder(attention, OPTIONS.get(attention), vocab_size=32, num_scored=24, seq_len=16, embed_dim=32, depth=2, num_heads=1)
    with torch.no_grad():
        net.head.weight.mul_(20)
        net.token_embedding.weight.mul_(50)
    return net


def changed(written: torch.Tensor, where: list[tuple[slice, int]]) -> torch.Tensor:
    """Answers [n, size] with another symbol in these rows and columns."""
    answers = written.clone()
    for rows, column in where:
        answers[rows, column] = (answers[rows, column] + 1) % 24
    return answers


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_exact_match_is_what_greedy_generation_writes(attention, size):
    """Answers that are what the model writes token by token through its cache, and answers with the first, the last or both changed.

    Report: flash-linear-attention's flame, issue 27 (a trained model could not decode token by token).
    """
    net, prompts = make(attention), torch.randint(24, (80, 29))
    written = generate(net, prompts, size, temperature=0, allowed=24)
    assert written.unique(dim=0).shape[0] > 5
    answers = changed(written, [(slice(20, 60), 0), (slice(40, 80), size - 1)])
    tokens = torch.cat((prompts, answers), dim=1)
    result = evaluate_lm(net, [(tokens, torch.arange(80))], num_scored=24, num_windows=80, device="cpu", last=size)
    assert (result.window_correct == size).tolist() == (written == answers).all(1).tolist() == [True] * 20 + [False] * 60
    assert result.position_correct[0] == (written[:, 0] == answers[:, 0]).sum()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_of_two_questions_only_the_values_count(attention):
    """Two values, the marks of the second question, two values: exact where both pairs are what the model writes after each question."""
    problem = multi_needle(4, 2)
    net, prompts = make(attention), torch.randint(24, (60, 29))
    first = generate(net, prompts, 2, temperature=0, allowed=24)
    answers = changed(first, [(slice(20, 40), 1)])
    asked = torch.cat((prompts, answers, torch.tensor([[QUERY, FIRST_LABEL]]).expand(60, 2)), dim=1)
    second = changed(generate(net, asked, 2, temperature=0, allowed=24), [(slice(40, 60), 0)])
    tokens = torch.cat((asked, second), dim=1)
    result = evaluate_lm(net, [(tokens, torch.arange(60))], num_scored=24, num_windows=60, device="cpu", last=problem.answer)
    assert result.count == 60 * problem.scored == 240
    assert (result.window_correct == problem.scored).tolist() == [True] * 20 + [False] * 40


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (retrieval.NEEDLE, NEEDLE),
        (retrieval.PASSKEY, PASSKEY),
        (retrieval.MULTI_NEEDLE, multi_needle(4, 2)),
        (toys.COPY, toy_problems.COPY),
        (toys.SELECTIVE_COPY, toy_problems.SELECTIVE_COPY),
        (toys.INDUCTION, toy_problems.INDUCTION),
    ],
)
def test_the_chance_of_a_card_is_that_of_the_problem(task, problem):
    assert task.card.metric("exact_match").chance == pytest.approx(problem.alphabet**-problem.scored)
    assert task.card.metric("token_accuracy").chance == pytest.approx(1 / problem.alphabet)


def test_the_grid_counts_whole_answers():
    correct = np.array([2, 2, 1, 0, 2, 2, 2, 2, 1, 1, 0, 0])
    assert retrieval.exact_by_depth(correct, 2, 3) == [2, 4, 0]


@pytest.mark.parametrize("task", ["needle", "passkey", "multi_needle", "induction"])
def test_a_cell_has_a_hundred_sequences(task):
    """At scale embedded, equally many at the start, the end and between."""
    spec = compose([f"task={task}", "scale=embedded"]).spec
    assert spec.data.num_test >= 100
    assert spec.evaluation.depths[0] == 0 and spec.evaluation.depths[-1] == 1 and len(set(spec.evaluation.depths)) >= 5


@pytest.mark.parametrize("task", ["needle", "passkey", "multi_needle", "copy", "selective_copy", "induction"])
def test_lengths_are_one_to_sixteen_times_that_of_training(task):
    for scale in ("smoke", "embedded", "paper"):
        assert compose([f"task={task}", f"scale={scale}"]).spec.task.multiples == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("name", ["needle", "toy_mqar", "mad_recall", "toy_copy_mixture", "attention_stats_needle"])
def test_validation_is_measured_on_its_own_sequences_at_every_length(name, monkeypatch):
    """It was on those of the training length, or of the test, under the name of validation at 2x to 16x."""
    spec = compose([f"task={name}", "scale=smoke", "attention=nope", "task.split=validation", "data.num_validation=7"]).spec
    made, task, make_windows = [], tasks.get(name), SyntheticTest.__init__

    def spy(self, problem, context, depths, each):
        made.append((context, depths, each))
        make_windows(self, problem, context, depths, each)

    monkeypatch.setattr(SyntheticTest, "__init__", spy)
    found = task.measure(spec, task.model(spec), task.data(spec), None).measurements
    assert set(made) == {(length, None, 7) for length in (spec.model.seq_len * m for m in (1, *spec.task.multiples))}
    assert {m.conditions["split"] for m in found} == {"validation"}
