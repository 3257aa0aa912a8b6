"""Windows of text, byte by byte against the documents they come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goatbench.data.order import Draw
from goatbench.data.text import module, sources
from goatbench.data.text.module import TextData
from goatbench.data.text.shards import BOS, load_shards
from goatbench.data.text.windows import TextTrainingWindows, tiling
from goatbench.errors import UsageError
from goatbench.spec import DecoderSpec, TextDataSpec, TextEvaluationSpec

RNG = np.random.default_rng(0)
DOCUMENTS = [(f"d{i}", RNG.integers(0, 256, 40 + 37 * i, np.uint8).tobytes()) for i in range(16)]
TEST = [DOCUMENTS[4][1], DOCUMENTS[12][1]]  # 188 and 484 bytes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return load_shards("key", DOCUMENTS, tmp_path_factory.mktemp("cache"))


def text_of(window: torch.Tensor) -> bytes:
    """The bytes behind BOS, which must be there once and first."""
    assert window[0] == BOS and (window == BOS).sum() == 1
    return bytes(window[1:].tolist())


def test_training_windows_come_from_the_documents_one_after_the_other(found):
    stream = [token for i, (_, text) in enumerate(DOCUMENTS) if i % 8 not in (0, 4) for token in (BOS, *text)]
    windows = TextTrainingWindows(found["train"], 50, seed=3, num_windows_per_epoch=400)
    draws = [Draw(epoch, index) for epoch in (0, 1) for index in range(400)]
    starts = windows.starts(draws).tolist()
    assert min(starts) < 30 and max(starts) > len(stream) - 51 - 30 and max(starts) + 51 <= len(stream) and len(set(starts)) > 600
    crossing = 0
    for (tokens, index), draw, start in zip(windows.__getitems__(draws), draws, starts, strict=True):
        assert index == draw.index and tokens.tolist() == [BOS, *stream[start + 1 : start + 51]]
        crossing += BOS in tokens[1:].tolist()
    assert crossing > 10
    whole, alone = windows.__getitems__(draws), windows[draws[555]]
    assert torch.equal(whole[555][0], alone[0])  # whatever else is in the batch


def test_windows_lie_within_one_document(found):
    windows = tiling(found["test"], 150, 30, None, "test")
    expected = [text[end - 150 : end] for text in TEST for end in range(150, len(text) + 1, 30)]
    assert [text_of(windows[i][0]) for i in range(len(windows))] == expected and len(expected) == 2 + 12


def test_every_context_has_the_same_last_bytes(found):
    longest = tiling(found["test"], 160, 10, 5, "test")
    for context in (10, 40, 160):
        shorter = longest.with_context(context)
        assert len(shorter) == 5
        for i in range(5):
            assert text_of(shorter[i][0]) == text_of(longest[i][0])[-context:]


def test_cut_windows_cover_the_same_bytes_once(found):
    spans = tiling(found["test"], 160, 160, None, "test")
    assert len(spans) == 1 + 3
    for context in (20, 40, 160):
        cut = spans.cut_into(context)
        assert len(cut) == 4 * 160 // context
        assert b"".join(text_of(cut[i][0]) for i in range(len(cut))) == b"".join(text_of(spans[i][0]) for i in range(4))


def test_what_does_not_fit_is_said(found):
    with pytest.raises(UsageError, match=r"no test document has 485 bytes \(the longest has 484\)"):
        tiling(found["test"], 485, 10, None, "test")
    with pytest.raises(UsageError, match="have 1 windows of 484 bytes; ask for at most that, not 2"):
        tiling(found["test"], 484, 10, 2, "test")


@pytest.fixture
def make(found, monkeypatch):
    for place in (module, sources):
        monkeypatch.setattr(place, "load_text", lambda data: sources.Corpus(found, "made up"))
    size = dict(embed_dim=8, depth=1, num_heads=1, mlp_ratio=1)
    model = DecoderSpec(kind="decoder", name="m", vocab_size=257, num_scored=256, seq_len=20, **size)
    evaluation = TextEvaluationSpec(kind="text", preset="p", num_targets=5, num_blocks=5, num_spans=1)

    def make(seed=0, batch_size=8, num_train=40, **machine):
        data = TextDataSpec(kind="text", name="text_files", num_train=num_train, num_validation=6)
        return TextData(data, model, evaluation, seed=seed, batch_size=batch_size, **machine)

    return make


def test_a_step_has_the_same_samples_for_every_number_of_processes(make):
    alone = [sorted(batch[0].tolist()) for batch in make().train_loader(1)]
    ranks = [list(make(rank=rank, world_size=2).train_loader(1)) for rank in (0, 1)]
    together = [sorted(a[0].tolist() + b[0].tolist()) for a, b in zip(*ranks, strict=True)]
    assert alone == together and len(alone) == 5
    later = [sorted(batch[0].tolist()) for batch in make().train_loader(1, start_step=3)]
    assert later == alone[3:]
    others = ([sorted(batch[0].tolist()) for batch in data.train_loader(epoch)] for data, epoch in ((make(), 0), (make(seed=1), 1)))
    assert all(other != alone for other in others)


@pytest.mark.parametrize(("world_size", "accumulate"), [(2, 1), (4, 1), (1, 2), (2, 2), (4, 2)])
def test_a_step_has_the_same_samples_however_it_is_divided(make, world_size, accumulate):
    """Every optimizer step: the windows of all ranks and all batches that are accumulated are those of one process, as a multiset."""
    alone = [sorted(batch[0].tolist()) for batch in make().train_loader(2)]
    ranks = [list(make(rank=r, world_size=world_size, accumulate=accumulate).train_loader(2)) for r in range(world_size)]
    assert [len(batches) for batches in ranks] == [5 * accumulate] * world_size
    for step, expected in enumerate(alone):
        parts = [batch[0].tolist() for batches in ranks for batch in batches[step * accumulate : (step + 1) * accumulate]]
        assert sorted(window for part in parts for window in part) == expected
        assert {len(part) for part in parts} == {8 // (world_size * accumulate)}


def test_what_the_data_say_of_themselves(make):
    data = make()
    assert data.info.counts == {
        "train windows": 40, "validation windows": 6, "train documents": 12, "validation documents": 2, "test documents": 2,
        "train bytes": sum(len(text) for i, (_, text) in enumerate(DOCUMENTS) if i % 8 not in (0, 4)),
    }  # fmt: skip
    assert sum(len(batch[1]) for batch in data.val_dataloader()) == 6
    with pytest.raises(UsageError, match="an epoch has 4 windows"):
        make(num_train=4)
    assert make(num_train=None).num_train == (data.info.counts["train bytes"] + 12) // 20  # a BOS a document
