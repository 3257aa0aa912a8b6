"""The block tasks: every sequence counts, no seed is averaged away, and nothing is dropped in training or evaluation."""

from __future__ import annotations

import pytest
import torch

from goatbench.compose import compose
from goatbench.data.text import block_problem
from goatbench.execute import execute
from goatbench.records.leaderboard import build_boards
from goatbench.registry import tasks

TASKS = {  # task -> its problem, letters of a block
    "toy_blocks": (block_problem.BLOCKS, 5), "toy_blocks_first": (block_problem.BLOCKS_FIRST, 5),
    "toy_blocks_last": (block_problem.BLOCKS_LAST, 5), "toy_blocks8": (block_problem.BLOCKS_8, 8),
    "toy_blocks8_first": (block_problem.BLOCKS_8_FIRST, 8), "toy_blocks8_last": (block_problem.BLOCKS_8_LAST, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_cards_are_those_of_their_problem(name):
    """And the model of scale embedded reads twelve blocks of the task's size."""
    card, (problem, size) = tasks.get(name).card, TASKS[name]
    assert tasks.get(name).problem == f"{block_problem.__name__}:{next(k for k, v in vars(block_problem).items() if v is problem)}"
    assert card.metric("exact_match").chance == pytest.approx(26.0**-problem.scored) and card.per_seed
    assert f"blocks of {size} different letters" in card.protocol and ("1 of 8" in card.protocol) == (name.startswith("toy_blocks8_"))
    spec = compose([f"task={name}", "scale=embedded", "attention=rope"]).spec
    assert block_problem.num_blocks(spec.model.seq_len, size, problem.answer) == 12


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """35 sequences in batches of eight: three are left over."""
    overrides = ["task=toy_blocks", "attention=mta_conv", "scale=smoke", "data.num_test=7", f"evaluation.batch_tokens={8 * 36}"]
    return execute(compose([*overrides, f"runs_dir={tmp_path_factory.mktemp('blocks')}"]))


def test_every_test_sequence_is_scored(record):
    """The published batches drop the rest: of 1,000 sequences 960 count."""
    assert record.status == "ok", record.error
    n = {m.metric: m.n for m in record.measurements}
    assert n == {"exact_match": 35, "token_accuracy": 35 * 5, "first_token_accuracy": 35, "nll_nats": 35 * 5}
    (batch,) = {cost.value for cost in record.costs if cost.name == "eval_batch_size"}
    assert batch == 8  # which does not divide 35


def test_the_board_shows_every_seed(record):
    other = record.model_copy(update={"seed": 1, "run_id": record.run_id[:-1] + ("0" if record.run_id[-1] != "0" else "1")})
    (board,) = build_boards(tasks.get("toy_blocks").card, [record, other])
    (row,) = board.rows
    assert len(row.cells["by_seed"].text.split()) == 2


@pytest.mark.parametrize("attention", ["rope", "mta_conv"])
def test_nothing_is_dropped(attention):
    """The published plain model is evaluated with a tenth of its attention dropped; here training and evaluation are one function."""
    spec = compose(["task=toy_blocks", "scale=smoke", f"attention={attention}"]).spec
    net, tokens = tasks.get("toy_blocks").model(spec), torch.randint(26, (4, 30))
    with torch.no_grad():
        training, evaluation = net.train()(tokens), net.eval()(tokens)
    assert torch.equal(training, evaluation)
    assert not [m for m in net.modules() if isinstance(m, torch.nn.modules.dropout._DropoutNd)]


def test_scale_paper_is_the_published_setting():
    """arXiv 2504.00927, section 4.1, and its released configuration; the base is that of the command in the scale's file."""
    spec = compose(["task=toy_blocks", "scale=paper", "attention=mta_conv", "attention.options.base=1.0e+5"]).spec
    model, training = spec.model, spec.training
    assert (model.depth, model.num_heads, model.embed_dim, model.tie_embeddings) == (4, 2, 256, True)
    assert model.seq_len == 52 * 6 + 2 + 5 - 1 and spec.attention.options["base"] == 1e5
    assert (training.batch_size, training.epochs * spec.data.num_train) == (64, 100_000 * 64)
    assert (training.default_learning_rate, training.betas[1], training.weight_decay, training.warmup_fraction) == (1e-4, 0.98, 0, 0.01)
