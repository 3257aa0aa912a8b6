"""Byte-pair encodings by hand: made-up files of GPT-2's layout, a tokenizer.json that is trained here, and what cannot be used."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from goatbench.data.text.shards import load_shards
from goatbench.data.text.tokenizers import BYTES, check_vocabulary, load_tokenizer
from goatbench.errors import UsageError
from goatbench.spec import DecoderSpec, TextDataSpec

tokenizers = pytest.importorskip("tokenizers")
MERGES = ["t h", "th e", "\u0120 the"]  # GPT-2 writes a space as U+0120
TEXTS = [f"the cat {i} and the dog \N{SNOWMAN}\n" * (i + 1) for i in range(10)]


def gpt2_folder(folder, names=("encoder.json", "vocab.bpe")):
    """256 bytes in GPT-2's order (first those that print), the merges, and <|endoftext|> last."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    vocabulary = [*letters, *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
    (folder / names[0]).write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}))
    (folder / names[1]).write_text("\n".join(["#version: 0.2", *MERGES, ""]))
    return folder


def trained(path, special=("<s>", "</s>"), **byte_level):
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **byte_level})
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(TEXTS, trainer)
    library.enable_truncation(4)
    library.save(str(path))
    return path


def load(kind, path):
    return load_tokenizer(TextDataSpec(kind="text", name="x", tokenizer=kind, tokenizer_file=str(path)))


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2_by_hand(names, tmp_path):
    found = load("gpt2", gpt2_folder(tmp_path, names))
    assert (found.vocab_size, found.bos, found.num_scored) == (260, 259, 259)
    # "the" is id 257 (256 bytes, "th", "the", " the"); "!" is the first printable byte; the new line 10 is the 11th that does not print
    assert found.encode("the the!\n").tolist() == [257, 258, 0, 188 + 10]
    assert found.num_bytes[[256, 257, 258, 0, 259]].tolist() == [2, 3, 4, 1, 0]
    text = "the \N{SNOWMAN} <|endoftext|>".encode()
    ids = found.encode(text)
    assert found.decode(ids) == text and 259 not in ids and found.num_bytes[ids].sum() == len(text)  # the name of BOS is plain text


def test_a_trained_file(tmp_path):
    found = load("file", trained(tmp_path / "tokenizer.json"))
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    size = library.get_vocab_size()
    assert (found.vocab_size, found.bos) == (size, size - 1) and library.token_to_id("<s>") == 0
    for text in (*TEXTS, "<s> is text", ""):
        ids = found.encode(text)
        assert found.decode(ids) == text.encode() and (ids < found.num_scored).all() and found.num_bytes[ids].sum() == len(text.encode())
    assert len(found.encode(TEXTS[3])) > 4  # the truncation of the file is off
    library.no_truncation()
    last = library.id_to_token(size - 1)  # gives its place to <s>, and takes 0
    assert found.decode([0]) == last.replace("\u0120", " ").encode() and found.decode([found.bos]) == b""
    expected = [0 if i == size - 1 else i for i in library.encode(TEXTS[3]).ids]
    assert found.encode(TEXTS[3]).tolist() == expected
    without = load("file", trained(tmp_path / "plain.json", special=()))
    assert without.bos == tokenizers.Tokenizer.from_file(str(tmp_path / "plain.json")).get_vocab_size()  # one id beyond


def test_shards_of_another_tokenizer(tmp_path):
    found = load("file", trained(tmp_path / "tokenizer.json"))
    documents = [(f"d{i}", text.encode()) for i, text in enumerate(TEXTS)]
    shards, plain = load_shards("key", documents, tmp_path, found), load_shards("key", documents, tmp_path)
    for split, indices in {"validation": (0, 8), "test": (4,), "train": (1, 2, 3, 5, 6, 7, 9)}.items():
        shard, texts = shards[split], [TEXTS[i].encode() for i in indices]
        ends = shard.offsets[1:].tolist()
        assert [found.decode(shard.tokens[a:b]) for a, b in zip([0, *ends], ends, strict=False)] == texts
        assert (shard.tokens[shard.offsets[:-1]] == found.bos).all() and (shard.tokens == found.bos).sum() == len(texts)
        assert shard.lengths.tolist() == [len(text) for text in texts] == plain[split].lengths.tolist()
        assert shard.sha256 != plain[split].sha256 and shard.folder != plain[split].folder and shard.num_tokens < plain[split].num_tokens


def test_many_ids_need_four_bytes(tmp_path):
    class Wide(type(BYTES)):
        vocab_size, fingerprint = 70_001, "wide"

        def encode_batch(self, texts):
            return [np.frombuffer(text, np.uint8).astype("<u4") + 65_000 for text in texts]

        def decode(self, ids):
            return (np.asarray(ids) - 65_000).astype(np.uint8).tobytes()

    shard = load_shards("key", [(f"d{i}", b"\xff\xfe") for i in range(8)], tmp_path, Wide())["test"]
    assert shard.tokens.tolist() == [70_000, 65_255, 65_254] and shard.tokens.dtype == np.uint32


@pytest.mark.parametrize(
    ("text", "options"), [(b"the cat", {"add_prefix_space": True}), (b"bad \xff byte", {})], ids=["prefix space", "no UTF-8"]
)
def test_what_does_not_come_back_is_refused(text, options, tmp_path):
    found = load("file", trained(tmp_path / "tokenizer.json", **options))
    with pytest.raises(UsageError, match=r"document d0: decoding its tokens does not give it back .*data.tokenizer=bytes"):
        load_shards("key", [(f"d{i}", text) for i in range(8)], tmp_path, found)


def test_mistakes_are_one_line(tmp_path, monkeypatch):
    model = DecoderSpec(
        kind="decoder", name="m", vocab_size=257, num_scored=256, seq_len=8, embed_dim=8, depth=1, num_heads=1, mlp_ratio=1
    )
    check_vocabulary(BYTES, model)
    with pytest.raises(UsageError, match=r"set model.vocab_size=260 model.num_scored=259$"):
        check_vocabulary(load("gpt2", gpt2_folder(tmp_path)), model)
    (tmp_path / "broken.json").write_text("{}")
    cases = {"gpt2": (tmp_path / "absent", "encoder.json and vocab.bpe or"), "file": (tmp_path / "broken.json", "cannot be read")}
    for kind, (path, says) in [*cases.items(), ("file", (tmp_path / "absent.json", "No such file"))]:
        with pytest.raises(UsageError, match=says) as raised:
            load(kind, path)
        assert "\n" not in str(raised.value)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"pip install 'goatbench\[bpe\]'"):
        load("file", tmp_path / "other.json")
