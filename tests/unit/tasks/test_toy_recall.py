"""Toys with answers anywhere: training and scoring at their places, records at scale smoke, who can and who cannot."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from goatbench.compose import Composer, compose
from goatbench.data.philox import SEQUENCES, uniforms
from goatbench.data.text.mad_problems import COMPRESSION, FUZZY_RECALL, MEMORISATION, NOISY_RECALL, RECALL, SELECTIVE_COPY
from goatbench.data.text.mixture_problem import COPY_MIXTURE
from goatbench.data.text.recall_problems import MQAR, mqar
from goatbench.data.text.synthetic import SyntheticTest, SyntheticTraining
from goatbench.errors import UsageError
from goatbench.execute import execute
from goatbench.metrics.token_nll import token_nll
from goatbench.models import Decoder
from goatbench.models.compressor import Compressor
from goatbench.registry import tasks
from goatbench.spec import TrainingSpec
from goatbench.training.causal_lm import CausalLM
from goatbench.training.evaluate_lm import evaluate_lm
from goatbench.training.targets import read_and_targets

PROBLEMS = {
    "toy_mqar": MQAR, "mad_recall": RECALL, "mad_fuzzy_recall": FUZZY_RECALL, "mad_noisy_recall": NOISY_RECALL,
    "mad_selective_copy": SELECTIVE_COPY, "mad_compression": COMPRESSION, "mad_memorisation": MEMORISATION,
}  # fmt: skip
COMPOSER = Composer()  # reads the files once


def test_targets_that_come_along_are_taken_as_they_stand():
    tokens = torch.arange(6).reshape(1, 6)
    assert [t.tolist() for t in read_and_targets(tokens)] == [[[0, 1, 2, 3, 4]], [[1, 2, 3, 4, 5]]]
    assert [t.tolist() for t in read_and_targets(tokens.reshape(1, 2, 3))] == [[[0, 1, 2]], [[3, 4, 5]]]


def small(attention: str, depth: int = 1, vocab_size: int = 96, num_scored: int = 16, width: int = 32, seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    sizes = dict(vocab_size=vocab_size, num_scored=num_scored, seq_len=32, embed_dim=width, depth=depth, num_heads=1, mlp_ratio=2)
    return Decoder(attention, **sizes, weight_std=0.05, embedding_std=1.0)


def test_loss_and_accuracy_are_those_of_the_answers_alone():
    """By hand: over the places whose target is a value, whatever stands at the others; whole sequences of them for exact match."""
    net = small("rope")
    data = SyntheticTest(NOISY_RECALL, 20, (0.0,), each=30)
    with torch.no_grad():
        net.head.weight.mul_(30)
    with torch.inference_mode():
        logits = net(data.tokens[:, 0]).double()
    targets = data.tokens[:, 1]
    places = targets < 16
    nll = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0][places]
    right = (logits.argmax(-1) == targets) & places
    recipe = TrainingSpec(epochs=1, batch_size=2, default_learning_rate=1e-3)
    loss = CausalLM(net, recipe, 1e-2, 10, 16).training_step((data.tokens, torch.arange(30)), 0)
    assert loss.item() == pytest.approx(nll.mean().item(), rel=1e-4)
    batches = [(data.tokens[i : i + 7], torch.arange(30)[i : i + 7]) for i in range(0, 30, 7)]
    result = evaluate_lm(net, batches, num_scored=16, num_windows=30, device="cpu")
    assert result.nll_nats == pytest.approx(nll.mean().item(), rel=1e-4) and result.context == 20
    assert result.window_count.tolist() == places.sum(1).tolist() and len(set(result.window_count.tolist())) > 3
    assert result.window_correct.tolist() == right.sum(1).tolist()


def test_an_answer_that_is_not_read_changes_nothing_before_or_behind():
    """Values of the second part of associative recall are targets only: with others there the same is read."""
    one = SyntheticTest(mqar((4,)), 32, None, each=20).tokens
    assert not ((one[:, 0, 8:] < 64).any() or (one[:, 1, :8] < 64).any())
    assert ((one[:, 1] < 64).sum(1) == 4).all()


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_cards_name_the_chance_of_their_problem(name):
    task, problem = tasks.get(name), PROBLEMS[name]
    assert task.card.metric("token_accuracy").chance == pytest.approx(1 / problem.alphabet)
    assert task.card.metric("nll_nats").chance == pytest.approx(math.log(problem.alphabet))
    for scale in ("embedded", "paper"):
        spec = COMPOSER.compose([f"task={name}", "attention=rope", f"scale={scale}"]).spec
        data = task.data(spec)  # which refuses a model whose vocabulary does not fit
        assert data.problem is problem and task.protocol(spec)["problem"] == problem.name and task.answer_tokens(spec) is None
        assert task.card.protocol.count("ublished") >= 1


def test_training_sequences_are_new_in_every_epoch_and_of_one_length():
    from goatbench.data.order import Draw

    training = SyntheticTraining(RECALL, 32, None, seed=0, num_samples=16, batch_size=8)
    first, later = (training.__getitems__([Draw(epoch, i) for i in range(8)]) for epoch in (0, 1))
    assert all(row.shape == (2, 32) for row, _ in (*first, *later))
    assert not any(torch.equal(a, b) for (a, _), (b, _) in zip(first, later, strict=True))


def far(attention: str, vocab_size: int, num_scored: int) -> Decoder:
    """float64, far from uniform."""
    net = small(attention, vocab_size=vocab_size, num_scored=num_scored).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3)
    return net.eval()


@pytest.mark.parametrize(
    ("problem", "vocab_size", "num_scored", "a", "b"),
    [(mqar((4,)), 136, 64, 1, 3), (MEMORISATION, 96, 16, 28, 30), (COPY_MIXTURE, 24, 24, 0, 30)],
    ids=["mqar", "facts", "mixture"],
)
def test_one_layer_without_positions_sees_a_set(problem, vocab_size, num_scored, a, b):
    """Two values (two keys of facts; the first token and the one before the latest) change places, and with them the answers: its logits
    at the last answer stay, those of rope move."""
    tokens = SyntheticTest(problem, 32, None, each=20).tokens
    read, other = tokens[:, 0], tokens[:, 0].clone()
    other[:, a], other[:, b] = read[:, b], read[:, a]
    differs = (other != read).any(1)
    assert differs.sum() > 15
    place = (tokens[:, 1] < num_scored).int().mul(torch.arange(1, 33)).argmax(1)  # of the last answer
    rows = torch.arange(20)
    with torch.inference_mode():
        moved = {
            name: (net(read)[rows, place] - net(other)[rows, place]).abs().amax(1)[differs].max().item()
            for name in ("nope", "rope")
            for net in [far(name, vocab_size, num_scored)]
        }
    assert moved["nope"] < 1e-9 and moved["rope"] > 1e-2


def train(net, problem, length: int, steps: int, rate: float = 3e-3) -> float:
    """Accuracy over 500 new sequences after `steps` of 64."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20, (steps - step) / 40)
        read, targets = drawn(problem, range(64 * step, 64 * step + 64), length, seed=0)
        nll, is_scored = token_nll(net(read), targets, problem.num_scored)
        optimizer.zero_grad()
        (nll.sum() / is_scored.sum()).backward()
        optimizer.step()
    read, targets = drawn(problem, range(500), length, seed=1)
    with torch.inference_mode():
        right, places = net(read).argmax(-1) == targets, targets < problem.num_scored
    return (right & places).sum().item() / places.sum().item()


def drawn(problem, ids: range, length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    count = (problem.numbers_per_token * length + problem.extra + 3) // 4 * 4
    tokens = torch.from_numpy(problem.build(uniforms(seed, 0, np.array(ids), count, SEQUENCES), length, None))
    return read_and_targets(tokens)


def test_one_layer_learns_facts_by_heart_with_positions_and_cannot_without():
    """8 facts a sequence. Without positions the m-th mark knows m keys and not which is the latest: if they differ, right in at most 1 of
    m, and by the keys that share a value (3 of 48) or come again a little more."""
    ceiling = sum(1 / m for m in range(1, 9)) / 8 + 0.1
    assert train(small("rope"), MEMORISATION, 16, 160, rate=1e-2) > 0.95
    assert train(small("nope"), MEMORISATION, 16, 160, rate=1e-2) < ceiling


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recall")
    return lambda *overrides: (execute(compose([*overrides, "scale=smoke", f"runs_dir={folder}"])), folder)


def cells(record, metric, **conditions):
    chosen = [m for m in record.measurements if m.metric == metric and conditions.items() <= m.conditions.items()]
    return {(m.conditions["multiple"], m.conditions.get("pairs")): m for m in chosen}


def test_associative_recall_by_length_and_pairs(run):
    record, _ = run("task=toy_mqar", "attention=learned_absolute", "model.embed_dim=16", "task.multiples=[1,2]")
    assert record.status == "ok", record.error
    accuracy = cells(record, "token_accuracy")
    assert list(accuracy) == [(1, 4), (1, 8), (2, 4), (2, 8), (2, 16)]
    assert {pairs: m.n for (multiple, pairs), m in accuracy.items() if multiple == 1} == {4: 80, 8: 160}  # 20 sequences
    assert all((m.value is None) == (multiple == 2) for (multiple, _), m in accuracy.items())  # a table ends where it ends
    assert record.row.variant["model.embed_dim"] == 16


def test_the_copy_mixture_draws_what_was_learned(run):
    record, folder = run("task=toy_copy_mixture", "attention=goat", "task.multiples=[1,2]")
    assert record.status == "ok", record.error
    assert record.artifacts == ["prior_parts.png", "prior_parts.svg"]
    made = folder / record.run_id
    assert all((made / name).stat().st_size > 10_000 for name in record.artifacts)
    assert "curve-1-off" in (made / "prior_parts.svg").read_text()
    kept = json.loads((made / "record.json").read_text())
    curves = {(c["name"], c["conditions"]["of"]): c["y"] for c in kept["curves"]}
    assert set(curves) == {(term, of) for term in ("sink_term", "relative_term") for of in ("true", "prior", "attention")}
    assert curves["sink_term", "true"][0] > 3 and np.argmax(curves["relative_term", "true"]) == 1  # the truth is known
    excess, nll = (cells(record, metric) for metric in ("excess_nats", "nll_nats"))
    best = cells(record, "nll_nats", reference="best possible")
    own = {m.conditions["multiple"]: m.value for m in record.measurements if m.metric == "nll_nats" and "reference" not in m.conditions}
    gap = {m.conditions["multiple"]: m.value for m in record.measurements if m.metric == "excess_nats" and "reference" not in m.conditions}
    assert gap[1] == pytest.approx(own[1] - best[1, None].value, abs=1e-12) and set(excess) == set(nll)
    errors = {name: cells(record, f"{name}_error") for name in ("prior", "attention")}
    assert all(0 < m.value < 1 for found in errors.values() for m in found.values())


@pytest.mark.parametrize(("length", "notes"), [(32, []), (3, ["chance at 3 tokens: excess 1.9304 nats, prior and attention error 33.3 %"])])
def test_another_chance_than_the_copy_mixtures_card_has_is_noted(length, notes):
    """At 3 tokens the true rows 1 and 2 are 9/10 1/10 and 17/30 11/30 2/30: 2/5 and 4/15 off rows of halves and thirds, 1/3 on average."""
    wanted = ["task=toy_copy_mixture", "scale=smoke", "attention=nope", f"model.seq_len={length}", "task.multiples=[1]"]
    task, spec = tasks.get("toy_copy_mixture"), COMPOSER.compose(wanted).spec
    assert task.measure(spec, task.model(spec), task.data(spec), None).notes == notes


def test_a_mechanism_without_a_prior_has_its_attention_measured(run):
    record, _ = run("task=toy_copy_mixture", "attention=rope", "task.multiples=[1]")
    assert record.status == "ok", record.error
    (prior,) = cells(record, "prior_error").values()
    assert prior.value is None and "no prior" in prior.reason and cells(record, "attention_error")[1, None].value > 0


@pytest.mark.parametrize(
    ("overrides", "says"),
    [(["attention=goat", "model.depth=2"], "set model.depth=1"), (["attention=mta", "model.num_heads=2"], "MultiToken")],
)
def test_what_the_copy_mixture_cannot_read_is_refused_in_one_line(run, overrides, says):
    with pytest.raises(UsageError, match=says):
        run("task=toy_copy_mixture", *overrides)


@pytest.mark.parametrize("name", ["mad_fuzzy_recall", "mad_compression"])
def test_mad_tasks_at_scale_smoke(run, name):
    record, _ = run(f"task={name}", "attention=goat")
    assert record.status == "ok", record.error
    accuracy = cells(record, "token_accuracy")[1, None]
    assert 0 <= accuracy.value < 0.6 and accuracy.n >= 20
    assert 1 < cells(record, "nll_nats")[1, None].value < 4  # eight steps: near ln 16 = 2.8


def test_compression_is_asked_of_the_model_that_compresses():
    spec = compose(["task=mad_compression", "scale=smoke"]).spec
    net = tasks.get("mad_compression").model(spec)
    assert isinstance(net, Compressor) and not isinstance(tasks.get("mad_recall").model(spec), Compressor)
    assert F.linear(torch.zeros(1, 32), net.head.weight).shape == (1, 96)
