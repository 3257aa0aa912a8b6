"""lm_length where a token is no byte: a tokenizer.json that is trained here, units, chance levels, and bits a byte counted again."""

from __future__ import annotations

import math
import random

import pytest
import torch
import torch.nn.functional as F

from goatbench.compose import compose
from goatbench.execute import execute
from goatbench.records.leaderboard import build_boards
from goatbench.registry import tasks
from goatbench.training.checkpoint import read_checkpoint
from goatbench.verify import verify

tokenizers = pytest.importorskip("tokenizers")
WORDS = ["the", "country", "president", "of", "congress", "nation", "it", "was", "shall", "be", "peace", "commerce", "which", "great"]
TASK = tasks.get("lm_length")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(record, spec, tokenizer of the library, folder of the run)."""
    folder = tmp_path_factory.mktemp("tokens")
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=800)) for _ in range(24)]
    (folder / "texts").mkdir()
    for number, text in enumerate(texts):
        (folder / "texts" / f"{number:02}.txt").write_text(text)
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        texts, tokenizers.trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
    )
    library.save(str(folder / "tokenizer.json"))
    size = library.get_vocab_size()
    own = [f"model.vocab_size={size + 1}", f"model.num_scored={size}", "data=text_files", f"data.path={folder / 'texts'}"]
    own += ["data.tokenizer=file", f"data.tokenizer_file={folder / 'tokenizer.json'}", "task.multiples=[1,2,16]"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOATBENCH_CACHE", str(folder / "cache"))
        composed = compose(["task=lm_length", "attention=alibi", "scale=smoke", f"runs_dir={folder / 'runs'}", *own])
        yield execute(composed), composed.spec, library, folder


def value(record, metric, protocol, multiple):
    (found,) = [
        m for m in record.measurements if (m.metric, m.conditions["protocol"], m.conditions["multiple"]) == (metric, protocol, multiple)
    ]
    return found


@pytest.mark.parametrize("multiple", [1, 2])
def test_bits_a_byte_are_the_nats_over_the_bytes_that_the_targets_spell(made, multiple):
    """Logits of the plain forward pass over windows of ids, bytes of what the library itself decodes."""
    record, spec, library, folder = made
    assert record.status == "ok", record.error
    (weights,) = (folder / "runs").glob("checkpoints/*/weights.pt")
    net, data, last = TASK.model(spec).eval(), TASK.data(spec), spec.evaluation.num_targets
    net.load_state_dict(read_checkpoint(weights)[0])
    blocks = TASK._tilings(spec, data)[0].with_context(64 * multiple)
    tokens = torch.stack([torch.as_tensor(window) for window, _ in blocks]).long()
    with torch.no_grad():
        logits = net(tokens[:, :-1])[:, -last:].double()
    targets = tokens[:, -last:]
    nats = float(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
    num_bytes = sum(len(library.decode(row).encode()) for row in targets.tolist())
    bits, token_nats, perplexity = (value(record, name, "same_target", multiple) for name in ("bits_per_byte", "nll_nats", "perplexity"))
    assert (bits.n, token_nats.n) == (num_bytes, targets.numel()) and num_bytes > 1.5 * targets.numel()
    assert bits.value == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-4)
    assert token_nats.value == pytest.approx(nats / targets.numel(), rel=1e-4)
    assert (perplexity.unit, perplexity.value) == ("tokens", pytest.approx(math.exp(token_nats.value)))


def test_units_chance_and_protocol_are_of_the_tokenizer(made):
    record = made[0]
    verify(record)
    assert record.protocol["tokens"] == "file" and record.protocol["tokenizer"].startswith("file-")
    for metric in TASK.card.metrics:
        (board,) = build_boards(TASK.card, [record], metric=metric.name)
        assert board.facts["chance"] is None and board.facts["unit"] == ("tokens" if metric.name == "perplexity" else metric.unit)


def test_bytes_keep_the_units_and_chance_levels_of_the_card(made):
    bytes_, other = TASK.metrics_of({"tokens": "bytes"}), TASK.metrics_of(made[0].protocol)
    assert bytes_ == TASK.card.metrics and [m.unit for m in bytes_] == ["bits", "nats", "bytes", "bits"]
    assert [m.unit for m in other] == ["bits", "nats", "tokens", "bits"]
    spelled = made[0].model_copy(update={"protocol": {**made[0].protocol, "tokens": "bytes"}})
    (board,) = build_boards(TASK.card, [spelled], metric="nll_nats")
    assert board.facts["chance"] == pytest.approx(math.log(256))
