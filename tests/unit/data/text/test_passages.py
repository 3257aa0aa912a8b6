"""Passages and their last word: where they are cut, what is asked for, what is left out and said.

Report lm-evaluation-harness 356, 350 and pull request 531: a LAMBADA score of the last BPE token is not one of the last word, and a
rule about the leading blank made every answer wrong.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from attention_cases import OPTIONS

from goatbench.data.text.passage_files import read_passages, split_last_word
from goatbench.data.text.passages import PassageWindows, as_tokens, held_out_words
from goatbench.data.text.shards import load_shards
from goatbench.data.text.tokenizers import BOS, BYTES
from goatbench.errors import UsageError
from goatbench.models import Decoder
from goatbench.models.generate import generate
from goatbench.tasks.lambada import measurements_of
from goatbench.training.evaluate_lm import evaluate_lm

TEXT = b"The treaty was signed, and so the Senate read the treaty. A treatyx came; no such thing, said they of the Senate!"


def ids(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8).astype(np.int64)


def windows_of(*passages: tuple[bytes, bytes]) -> PassageWindows:
    return PassageWindows([(np.append(BOS, ids(context)), ids(word)) for context, word in passages], BOS)


@pytest.fixture
def shard(tmp_path):
    documents = [(f"{i}", TEXT if i % 8 == 4 else b"x" * 40) for i in range(16)]
    return load_shards("k", documents, tmp_path)["test"]


def test_a_held_out_word_ends_a_phrase_and_was_read_before(shard):
    """By eye: 'treaty.' after 'treaty was', 'Senate!' after 'Senate read'; 'signed,' and 'they' come once or before no mark."""
    found = held_out_words(shard, BYTES, 52, 52, 2, "test")
    assert found == [(TEXT[: TEXT.index(b" treaty.")][-52:], b" treaty")] * 2  # the first of each of two documents
    before, word = as_tokens(BYTES, found[0], 52)
    assert before[0] == BOS and bytes(before[1:].tolist()) == TEXT[: TEXT.index(b" treaty.")][-45:] and bytes(word.tolist()) == b" treaty"
    whole = held_out_words(shard, BYTES, 100, 100, 2, "test")  # only the last words have 100 bytes before them
    assert [word for _, word in whole] == [b" Senate"] * 2


def test_too_few_passages_is_one_line(shard):
    with pytest.raises(UsageError, match="num_passages=9, but the test documents have 2 passages of 100 bytes"):
        held_out_words(shard, BYTES, 100, 100, 9, "test")


def test_the_word_is_asked_for_with_its_blank_and_nothing_else():
    """Report lm-evaluation-harness 350: the blank belongs to the word, and the context ends before it."""
    assert split_last_word("He gave it to  Anna\n") == (b"He gave it to ", b" Anna")
    assert split_last_word("Anna") is None and split_last_word(" Anna ") is None
    tokens, index, mask = windows_of((b"a bc", b" de"), (b"a", b" b"))[1]
    assert (tokens.tolist(), index) == ([BOS, *b"a b", BOS, BOS, BOS, BOS], 1)
    assert tokens[1:][mask].tolist() == [*b" b"] and mask.tolist() == [False, True, True, False, False, False, False]


@pytest.mark.parametrize("attention", ["goat", "rope"])
def test_whole_words_are_what_generation_writes(attention):
    """Report lm-evaluation-harness 356: passages of four lengths, some words right, some in all but their first or last byte."""
    torch.manual_seed(0)
    net = Decoder(attention, OPTIONS.get(attention), vocab_size=257, num_scored=256, seq_len=32, embed_dim=32, depth=2, num_heads=1)
    with torch.no_grad():
        net.head.weight.mul_(20)
    passages, nll, is_right, is_last_right = [], [], [], []
    for i in range(12):
        context = torch.randint(97, 123, (1, 9 + i % 4))
        prompt = torch.cat((torch.tensor([[BOS]]), context), dim=1)
        word = generate(net, prompt, 3 + i % 3, temperature=0, allowed=256)[0].tolist()
        if i % 3:
            place = 0 if i % 3 == 1 else len(word) - 1
            word[place] = (word[place] + 1) % 256
        passages.append((bytes(context[0].tolist()), bytes(word)))
        with torch.no_grad():
            log_p = net(torch.cat((prompt, torch.tensor([word])), dim=1)[:, :-1]).double().log_softmax(-1)[0, -len(word) :]
        nll.append(-sum(log_p[j, token].item() for j, token in enumerate(word)))
        written = generate(net, prompt, len(word), temperature=0, allowed=256)[0].tolist()
        is_right.append(written == word)
        is_last_right.append(log_p[-1, :].argmax().item() == word[-1])
    assert is_right == [i % 3 == 0 for i in range(12)] and sum(is_last_right) > sum(is_right)
    windows = windows_of(*passages)
    batch = [torch.stack([torch.as_tensor(part) for part in column]) for column in zip(*(windows[i] for i in range(12)), strict=True)]
    result = evaluate_lm(net, [tuple(batch)], num_scored=256, num_windows=12, device="cpu")
    np.testing.assert_allclose(result.window_masked_nll, nll, rtol=1e-4)
    values = {m.metric: m.value for m in measurements_of(result, windows.last_tokens, {})}
    assert values["accuracy"] == 4 / 12 and values["last_token_accuracy"] == sum(is_last_right) / 12
    assert values["perplexity"] == pytest.approx(math.exp(sum(nll) / 12), rel=1e-4)


def test_files_of_both_forms_and_what_they_lack(tmp_path):
    jsonl, plain = tmp_path / "a.jsonl", tmp_path / "a.txt"
    texts = ["He saw Anna and waved to Anna", "Yes", "It was\nlate, \u201cvery\u201d late"]
    jsonl.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = read_passages(str(jsonl))
    assert found.passages[0] == (b"He saw Anna and waved to", b" Anna") and found.without_word == 1
    assert found.passages[1] == ("It was\nlate, \u201cvery\u201d".encode(), b" late")
    plain.write_text("one two\n\nthree\nfour five six\n")
    assert read_passages(str(plain)).passages == ((b"one", b" two"), (b"four five", b" six"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", '{"text": "a b"}\n{"word": "b"}\n', 'a.jsonl, line 2: wanted a JSON object with a string "text"'),
        ("a.jsonl", "[1]\n", "line 1"),
        ("a.txt", "one\ntwo\n", "holds no passage"),
        (".", "", "data.lambada="),
    ],
)
def test_files_that_cannot_be_used_are_one_line(tmp_path, name, content, says):
    if name != ".":
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError) as raised:
        read_passages(str(tmp_path / name))
    assert says in str(raised.value) and "\n" not in str(raised.value)
