"""Made-up sequences: the needle is where it should be, once, and every sequence depends on what it should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goatbench.compose import compose
from goatbench.data.order import Draw
from goatbench.data.text.problems import FIRST_LABEL, MARK, NEEDLE, PASSKEY, QUERY, multi_needle, needle_of, passkey_of
from goatbench.data.text.synthetic import SyntheticData, SyntheticTest, SyntheticTraining
from goatbench.errors import UsageError
from goatbench.records.canonical import digest
from goatbench.registry import tasks
from goatbench.spec import DecoderSpec, ToyDataSpec, ToyEvaluationSpec


def places(tokens: np.ndarray) -> list[int]:
    """Where the mark is; the rest of each row must be as the task says."""
    found = []
    for row in tokens.tolist():
        (place,) = [i for i, token in enumerate(row) if token == MARK]  # verbatim once
        assert row[-3] == QUERY and row.count(QUERY) == 1 and row[place + 1 : place + 3] == row[-2:]
        assert all(token < 24 for i, token in enumerate(row) if i not in (place, len(row) - 3))
        found.append(place)
    return found


def test_needles_lie_at_their_depths():
    test = SyntheticTest(NEEDLE, 45, (0.0, 0.25, 1.0), each=20)  # 45 tokens are read: 40 of filler, MARK a b, QUERY and a
    assert len(test) == 60 and test.tokens.shape == (60, 46)
    assert places(test.tokens.numpy()) == [0] * 20 + [10] * 20 + [40] * 20
    assert test.tokens[:20, 1:3].unique(dim=0).shape[0] > 15  # needles differ


def test_drawn_depths_and_symbols_are_uniform():
    tokens = SyntheticTest(NEEDLE, 32, None, each=8000).tokens.numpy()
    counts = np.bincount(places(tokens), minlength=28)
    assert len(counts) == 28 and abs(counts - 8000 / 28).max() < 5 * np.sqrt(8000 / 28)  # five standard deviations
    for column in (-2, -1):
        symbols = np.bincount(tokens[:, column], minlength=24)
        assert len(symbols) == 24 and abs(symbols - 8000 / 24).max() < 5 * np.sqrt(8000 / 24)
    assert abs(np.corrcoef(tokens[:, -2], tokens[:, -1])[0, 1]) < 5 / np.sqrt(8000)


def test_passkeys_lie_at_their_depths():
    test = SyntheticTest(PASSKEY, 51, (0.0, 0.5, 1.0), each=20)  # 40 of filler, MARK and five, QUERY and four
    found = [row.index(MARK) for row in test.tokens.tolist()]
    assert found == [0] * 20 + [20] * 20 + [40] * 20
    for row, at in zip(test.tokens.tolist(), found, strict=True):
        assert row[at + 1 : at + 6] == row[-5:] and row[-6] == QUERY
        assert row.count(MARK) == row.count(QUERY) == 1 and all(t < 24 for i, t in enumerate(row) if i not in (at, 46))


@pytest.mark.parametrize(("problem_of", "size"), [(needle_of, 2), (passkey_of, 5)])
def test_distractors_are_needles_behind_other_marks(problem_of, size):
    """Of the same alphabet, anywhere; the asked needle keeps its depth and every question asks for it."""
    data = ToyDataSpec(kind="toy", name="synthetic", num_train=1, num_validation=1, num_test=1, num_distractors=3)
    problem, length = problem_of(data), 40 + 2 * size + 1 + 3 * (size + 1)
    assert problem.min_length == length - 40 and (problem.answer, problem.scored) == (size, size)
    tokens = SyntheticTest(problem, length, (0.0, 1.0), each=200).tokens.tolist()
    before_the_needle, followers = [], []
    for i, row in enumerate(tokens):
        text, at = row[: -size - 1], row.index(MARK)
        marks = [FIRST_LABEL + k for k in range(3)]
        assert sorted(token for token in text if token >= 24) == [MARK, *marks] and row[-size - 1] == QUERY
        assert text[at + 1 : at + 1 + size] == row[-size:]
        others = [text[text.index(mark) + 1 : text.index(mark) + 1 + size] for mark in marks]
        assert all(len(other) == size and max(other) < 24 for other in others)
        followers += [tuple(other) for other in others]
        before_the_needle.append(sum(text.index(mark) < at for mark in marks))
        filler_before = at - before_the_needle[-1] * (size + 1)
        assert filler_before == (0 if i < 200 else 40)
    assert len(set(followers)) > len(set(map(tuple, ([row[-size:] for row in tokens]))))  # drawn for each, not copies of the answer
    places = [row.index(FIRST_LABEL) for row in tokens]
    assert min(places) < 5 and max(places) > length - size - 20


@pytest.mark.parametrize("task", ["needle", "passkey", "needle_tuning", "attention_stats_needle"])
def test_no_distractors_are_the_data_of_older_records(task):
    """0 is no part of a run's identity or of its data's; 3 are another problem, by a name of its own."""

    def composed(*more: str):
        spec = compose([f"task={task}", "scale=smoke", "attention=nope", *more]).spec
        return spec, tasks.get(task).data(spec)

    (plain, data), (zero, same), (three, other) = composed(), composed("data.num_distractors=0"), composed("data.num_distractors=3")
    assert "num_distractors" not in plain.identity["data"] and plain.config_hash == zero.config_hash != three.config_hash
    assert data.fingerprint == same.fingerprint != other.fingerprint and other.problem.name == data.problem.name + "_3"
    without = plain.data.model_dump(mode="json")
    del without["num_distractors"]
    assert data.fingerprint == digest(["synthetic-1", data.problem.name, data.problem.answer, without])


def test_multi_needles_answer_to_their_labels():
    """Each label once in the text, the asked ones in an order of their own, values where their label is, the first at its depth."""
    problem = multi_needle(4, 2)
    tokens = SyntheticTest(problem, 63, (0.0, 1.0), each=50).tokens.tolist()
    for i, row in enumerate(tokens):
        text, questions = row[:-8], row[-8:]
        needles = {text[at + 1]: (at, text[at + 2 : at + 4]) for at, token in enumerate(text) if token == MARK}
        assert sorted(needles) == [26, 27, 28, 29] and [t for t in text if t > MARK] == list(needles)
        assert questions[0] == questions[4] == QUERY and questions[1] != questions[5]
        assert [needles[questions[1]][1], needles[questions[5]][1]] == [questions[2:4], questions[6:8]]
        at = needles[questions[1]][0]
        before = sum(token < 24 for token in text[:at]) - sum(2 for place, _ in needles.values() if place < at)
        assert before == (0 if i < 50 else 40)  # of the 64 - 8 - 16 symbols of filler
    orders = {(row[-7] < row[-3]) for row in tokens}
    assert orders == {True, False}
    assert problem.answer == 6 and problem.scored == 4


def test_every_second_step_is_shorter_and_whole():
    training = SyntheticTraining(NEEDLE, 32, 10, seed=0, num_samples=640, batch_size=64)
    lengths = [training.length_of(0, step) for step in range(400)]
    assert set(lengths[::2]) == {32} and set(lengths[1::2]) == set(range(10, 33))
    short = next(step for step in range(1, 10, 2) if lengths[step] < 32)
    rows = training.__getitems__([Draw(0, 64 * short + i) for i in range(64)])
    assert {len(tokens) for tokens, _ in rows} == {lengths[short] + 1}
    places(torch.stack([tokens for tokens, _ in rows]).numpy())


def test_a_sample_depends_on_seed_epoch_and_index_only():
    def sample(seed, epoch, index, batch):
        training = SyntheticTraining(NEEDLE, 32, 10, seed, 640, 64)
        return training.__getitems__([Draw(epoch, i) for i in batch])[list(batch).index(index)][0].tolist()

    alone = sample(0, 0, 140, [140])
    assert sample(0, 0, 140, range(128, 192)) == alone
    assert all(sample(*other, [other[2]]) != alone for other in ((1, 0, 140), (0, 1, 140), (0, 0, 141)))


@pytest.fixture
def make():
    model = DecoderSpec(
        kind="decoder", name="m", vocab_size=32, num_scored=24, seq_len=32, embed_dim=8, depth=1, num_heads=1, mlp_ratio=1
    )
    evaluation = ToyEvaluationSpec(kind="toy", preset="p", depths=[0.0, 1.0])

    def make(seed=0, num_train=48, **machine):
        data = ToyDataSpec(kind="toy", name="synthetic", num_train=num_train, num_validation=6, num_test=3, min_length=10)
        return SyntheticData(NEEDLE, data, model, evaluation, seed=seed, batch_size=16, **machine)

    return make


def test_a_step_has_the_same_samples_for_every_number_of_processes(make):
    alone = [sorted(batch[0].tolist()) for batch in make().train_loader(1)]
    assert [len(batch) for batch in alone] == [16, 16, 16]
    for machine in ({"world_size": 2}, {"world_size": 2, "accumulate": 4}):
        ranks = [[row for batch in make(rank=r, **machine).train_loader(1) for row in batch[0].tolist()] for r in (0, 1)]
        together = [sorted(ranks[0][i : i + 8] + ranks[1][i : i + 8]) for i in (0, 8, 16)]
        assert together == alone


def test_tests_are_the_same_for_every_seed_and_unlike_training(make):
    one, other = make(seed=0).windows("test", 64), make(seed=1).windows("test", 64)
    assert torch.equal(one.tokens, other.tokens) and one.tokens.shape == (6, 65)
    assert make(seed=0).fingerprint == make(seed=1).fingerprint != make(num_train=64).fingerprint
    trained = {tuple(row) for batch in make().train_loader(0) for row in batch[0].tolist()}
    assert not trained & {tuple(row) for row in make().validation_windows.tokens.tolist()}


def test_an_epoch_without_a_step_is_said(make):
    with pytest.raises(UsageError, match="batch_size=16, but an epoch has 8"):
        make(num_train=8)
