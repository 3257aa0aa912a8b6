"""Faults that others reported of their language-model evaluations, tried on ours. Packing (levanter 860): attention/test_packing.py."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from goatbench.data.order import Draw
from goatbench.data.text.shards import load_shards
from goatbench.data.text.tokenizers import Bytes
from goatbench.data.text.windows import TextTrainingWindows, tiling
from goatbench.tasks.lm_length import LM_LENGTH, _measurements
from goatbench.training.evaluate_lm import evaluate_lm

RNG = np.random.default_rng(0)
DOCUMENTS = [(f"d{i}", bytes(RNG.choice(list(b"abc"), 90 + 7 * i).tolist())) for i in range(24)]


class Runs(Bytes):
    """A token is a run of one to three equal letters: as with any byte-pair encoding, tokens differ in bytes."""

    vocab_size, unit, fingerprint = 3 * 26 + 1, "tokens", "runs"
    num_bytes = np.array([1, 2, 3] * 26 + [0])

    def encode(self, text):
        runs = [(letter, len(list(run))) for letter, run in groupby(text)]
        parts = [(letter, min(3, n - start)) for letter, n in runs for start in range(0, n, 3)]
        return np.array([3 * (letter - ord("a")) + n - 1 for letter, n in parts], "<u2")

    def decode(self, ids):
        return b"".join(bytes([ord("a") + i // 3]) * (i % 3 + 1) for i in np.asarray(ids).tolist() if i != self.bos)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return load_shards("key", DOCUMENTS, tmp_path_factory.mktemp("cache"), Runs())


class Uniform(nn.Module):
    """The same probability for every token."""

    vocab_size = Runs.vocab_size

    def hidden(self, tokens):
        return torch.zeros(*tokens.shape, 1)

    def head(self, hidden):
        return torch.zeros(*hidden.shape[:-1], self.vocab_size)


def score(windows, last=None):
    batches = DataLoader(windows, batch_size=3)
    return evaluate_lm(Uniform(), batches, num_scored=Runs().num_scored, num_windows=len(windows), device="cpu", last=last)


def test_evaluation_begins_with_the_token_of_training(shards):
    """lm-evaluation-harness 1586: a prefix that training had never seen made perplexity 1.8e7 where the right one gave 39.

    BOS is token 0 of a training window wherever it starts, of the first window of a document and of those further in.
    """
    training = TextTrainingWindows(shards["train"], 12, seed=0, num_windows_per_epoch=64)
    draws = [Draw(0, index) for index in range(64)]
    assert len(set(training.starts(draws)) - set(shards["train"].offsets.tolist())) > 32
    evaluation = tiling(shards["test"], 12, 12, None, "test")
    begins = evaluation.ends - evaluation.context - 1
    assert set(shards["test"].offsets[:-1].tolist()) < set(begins.tolist())
    firsts = [tokens[0].item() for windows in (training.__getitems__(draws), evaluation) for tokens, _ in windows]
    assert set(firsts) == {Runs().bos} and len(firsts) > 64 + 6


def test_bos_once_in_a_scored_window_and_never_a_target(shards):
    """lm-evaluation-harness 3333 and 2382: BOS twice, or in the first rolling window only."""
    spans = tiling(shards["test"], 32, 32, None, "test")
    for windows in (spans, spans.with_context(8), spans.cut_into(8)):
        tokens = torch.stack([tokens for tokens, _ in windows])
        assert (tokens[:, 0] == Runs().bos).all() and ((tokens == Runs().bos).sum(1) == 1).all()
        result = score(windows)
        assert result.window_count.tolist() == [windows.context] * len(windows)  # every target but BOS, which is none
        assert result.nll_nats == pytest.approx(math.log(Runs.vocab_size), rel=1e-6)


def test_the_same_targets_at_every_length_and_what_was_scored_below_the_line(shards):
    """lm-evaluation-harness 2467, lingua 46: perplexity moved with max_length; the sum over a cut text was divided by its full length.

    A uniform model has ln V nats a token and log2 V * tokens / bytes bits a byte, over the tokens and bytes that were scored.
    """
    blocks = tiling(shards["test"], 32, 5, 6, "test")
    texts = [text for i, (_, text) in enumerate(DOCUMENTS) if i % 8 == 4]
    found, at_base = [], None
    for context in (8, 16, 32):
        windows = blocks.with_context(context)
        scored = [Runs().decode(tokens[-5:]) for tokens, _ in windows]
        assert scored == [Runs().decode(tokens[-5:]) for tokens, _ in blocks] and all(any(s in text for text in texts) for s in scored)
        result = score(windows, last=5)
        at_base = at_base or result
        num_bytes = windows.scored_bytes(Runs.num_bytes, 5)
        assert num_bytes.tolist() == [len(s) for s in scored] and len(set(num_bytes.tolist())) > 1
        measurements = _measurements(result, num_bytes, {"context": context}, at_base, Runs.unit)
        by_name = {m.metric: m for m in measurements}
        total = sum(map(len, scored))
        assert by_name["nll_nats"].n == 30 and by_name["bits_per_byte"].n == total
        assert by_name["bits_per_byte"].value == pytest.approx(math.log2(Runs.vocab_size) * 30 / total, rel=1e-6)
        assert by_name["perplexity"].value == pytest.approx(Runs.vocab_size, rel=1e-5) and by_name["bits_change"].value == 0
        found += measurements
    assert not list(LM_LENGTH.contradictions(found))
    wrong = [m.model_copy(update={"value": m.value * 1.01}) if m.metric == "bits_per_byte" else m for m in found]
    assert len(list(LM_LENGTH.contradictions(wrong))) == 3


def test_a_byte_model_divides_by_what_it_always_did(tmp_path):
    """Bits a byte of bytes are nats / ln 2 to the last bit, and the standard errors agree."""
    windows = tiling(load_shards("key", DOCUMENTS, tmp_path)["test"], 32, 16, None, "test")
    rng = np.random.default_rng(1)
    assert (windows.scored_bytes(Bytes.num_bytes) == 32).all() and (windows.scored_bytes(Bytes.num_bytes, 7) == 7).all()
    result = evaluate_lm(_Noise(rng), DataLoader(windows, batch_size=4), num_scored=256, num_windows=len(windows), device="cpu")
    by_name = {m.metric: m for m in _measurements(result, windows.scored_bytes(Bytes.num_bytes), {}, None, Bytes.unit)}
    assert by_name["bits_per_byte"].value == result.nll_nats / math.log(2)
    assert by_name["bits_per_byte"].stderr == result.nll_stderr * (1 / math.log(2)) > 0


class _Noise(nn.Module):
    vocab_size = 257

    def __init__(self, rng):
        super().__init__()
        self.rng = rng

    def hidden(self, tokens):
        return torch.zeros(*tokens.shape, 1)

    def head(self, hidden):
        return torch.from_numpy(self.rng.normal(size=(*hidden.shape[:-1], 257))).float()


def test_no_bos_comes_out_of_encoding(tmp_path):
    """KVCache-Factory 62, skylight-research 90: encoding a needle put BOS inside it, or three into one prompt.

    A tokenizer.json whose post-processor puts <s> before every text must not do so here: prompts are joined as ids.
    """
    tokenizers = pytest.importorskip("tokenizers")
    from test_tokenizers import load, trained

    path = trained(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(path))
    library.no_truncation()
    library.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    library.save(str(path))
    found = load("file", path)
    assert library.encode("the cat").ids[0] == 0
    parts = [found.encode(text) for text in ("the dog ", "<s>cat 7<s>", " and the cat")]
    prompt = np.concatenate(([found.bos], *parts))
    assert (prompt == found.bos).sum() == 1
    assert found.decode(prompt) == b"the dog <s>cat 7<s> and the cat"
    size = len(parts[1])
    places = [i for i in range(len(prompt) - size + 1) if (prompt[i : i + size] == parts[1]).all()]
    assert places == [1 + len(parts[0])]
