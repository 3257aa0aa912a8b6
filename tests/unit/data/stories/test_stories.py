"""Stories among noise: facts whole and in their order, noise from the right documents, every length filled to the last token."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from goatbench.data.order import Draw
from goatbench.data.stories.facts import KINDS, LABELS, WORDS
from goatbench.data.stories.sources import BabilongFolder, GeneratedStories, read_rows
from goatbench.data.stories.windows import MIN_LENGTH, StoryTest, StoryTraining, assemble, tell
from goatbench.data.stories.words import MARKS, Noise, Vocabulary, Words, sentences, words_of
from goatbench.data.text.shards import load_shards
from goatbench.errors import UsageError
from goatbench.spec import StoryDataSpec

ONE = b"We hold one two three four five six seven eight of these. Short one! And 42 more words than anybody could ever want to count? "
SIZE = 128


def data(**values):
    base = dict(kind="stories", name="stories", text="text_embedded", questions=list(KINDS), num_train=64, num_validation=10, num_test=20)
    return StoryDataSpec(**base | values)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Every split has a word of its own in each sentence."""
    texts = {0: b"validation ", 4: b"testing "}
    documents = [(f"{i}", (texts.get(i % 8, b"training ") + ONE) * 40) for i in range(8)]
    return Words(load_shards("k", documents, tmp_path_factory.mktemp("cache")), SIZE)


def test_words_and_sentences():
    assert words_of(b"It's 1790, Sir! Why?") == ["it's", "1790", "sir", ".", "why", "?"]
    assert [" ".join(sentence) for sentence in sentences(ONE)] == [
        "we hold one two three four five six seven eight of these .",
        "and 42 more words than anybody could ever want to count ?",
    ]


def test_the_vocabulary_holds_the_stories_and_the_most_frequent_words(words):
    vocabulary = words.vocabulary
    assert vocabulary.words[: len(WORDS)] == WORDS and len(set(vocabulary.words)) == len(vocabulary.words) <= SIZE - len(MARKS)
    assert "training" in vocabulary.words and "testing" not in vocabulary.words
    assert vocabulary.ids([".", "testing", "?"]) == [SIZE - 4, SIZE - 5, SIZE - 3] and vocabulary.unknown == SIZE - 5
    assert [vocabulary.word(t) for t in (0, SIZE - 1)] == [WORDS[0], ""]
    small = Vocabulary(["the", "zebra", "yak"], len(WORDS) + 1 + len(MARKS))
    assert small.words == (*WORDS, "zebra")  # "the" is there already, and there is room for one


def test_noise_begins_with_a_sentence_and_is_cut_to_fit():
    noise = Noise([[1, 2, 3], [4, 5], [6, 7, 8, 9]])
    assert noise.stretch(0.0, 4) == ([1, 2, 3, 4], [0, 3, 4])
    assert noise.stretch(0.99, 4) == ([6, 7, 8, 9], [0, 4])
    assert noise.stretch(0.5, 5) == ([4, 5, 6, 7, 8], [0, 2, 5]) and noise.stretch(0.7, 0) == ([], [0])
    with pytest.raises(UsageError, match=r"9 words .* 10 are needed"):
        noise.stretch(0.0, 10)


def taken_apart(tokens: list[int], story, vocabulary) -> tuple[list[int], list[int]]:
    """(noise, places of the facts in it); the facts, whole and in their order, the question and the answer must be where they belong."""
    end = [vocabulary.question, *vocabulary.ids(story.question), vocabulary.answer, *vocabulary.ids([story.answer])]
    assert tokens[-len(end) :] == end
    rest, noise, places = tokens[: -len(end)], [], []
    facts = [vocabulary.ids(fact) for fact in story.facts]
    while rest:
        if facts and rest[: len(facts[0])] == facts[0]:
            places.append(len(noise))
            rest = rest[len(facts.pop(0)) :]
        else:
            noise.append(rest.pop(0))
    assert not facts
    return noise, places


def test_facts_lie_between_sentences_of_noise_in_their_order(words):
    vocabulary, noise = words.vocabulary, words.noise("test")
    rng, seen = np.random.default_rng(0), set()
    for row in rng.random((200, 48)).tolist():
        story = tell(row, list(KINDS))
        tokens = assemble(story, row, 150, vocabulary, noise)
        assert len(tokens) == 151
        found, places = taken_apart(tokens, story, vocabulary)
        borders = {i + 1 for i, token in enumerate(found) if vocabulary.ids([".", "?"]).count(token)} | {0, len(found)}
        assert set(places) <= borders and places == sorted(places)
        seen |= {0 if place == 0 else 2 if place == len(found) else 1 for place in places}
    assert seen == {0, 1, 2}


def test_each_split_has_its_own_noise(words):
    unknown = words.vocabulary.unknown
    marked = words.vocabulary.ids(["training"])[0]
    splits = {split: words.noise(split).tokens for split in ("train", "validation", "test")}
    assert (splits["train"] == marked).sum() == 6 * 40 and not any((splits[s] == marked).any() for s in ("validation", "test"))
    assert (splits["test"] == unknown).sum() == 40


def test_a_sample_depends_on_seed_epoch_and_index_only(words):
    def sample(seed, epoch, index, batch):
        training = StoryTraining(words.vocabulary, words.noise("train"), list(KINDS), 64, seed, 640)
        return training.__getitems__([Draw(epoch, i) for i in batch])[list(batch).index(index)][0].tolist()

    alone = sample(0, 0, 14, [14])
    assert len(alone) == 65 and sample(0, 0, 14, range(10, 20)) == alone
    assert all(sample(*other, [other[2]]) != alone for other in ((1, 0, 14), (0, 1, 14), (0, 0, 15)))


def test_the_stories_are_the_same_at_every_length(words):
    source = GeneratedStories(None)
    found = dict((where["length"], windows) for where, windows in source.tests(words, data(), "test", MIN_LENGTH, [1, 2, 16]))
    assert list(found) == [45, 90, 720] and [windows.tokens.shape for windows in found.values()] == [(100, 46), (100, 91), (100, 721)]
    short, long = found[45], found[720]
    assert (short.questions, short.answers, short.read) == (long.questions, long.answers, long.read)
    assert [short.kinds.count(kind) for kind in KINDS] == [20] * 5
    assert all(answer in LABELS[kind] for kind, answer in zip(short.kinds, short.answers, strict=True))
    validation = StoryTest(words.vocabulary, words.noise("validation"), list(KINDS), 45, 20, part=1)
    assert validation.read != short.read


ROW = {
    "input": "Mary went to the kitchen. Zanzibar is far! John travelled to the hallway.",
    "question": "Where is Mary? ",
    "target": "kitchen",
}


@pytest.mark.parametrize(
    ("name", "form"), [("data/qa1/{}.json", "array"), ("{}/qa1-00000-of-00001.parquet", "parquet"), ("qa1_{}.jsonl", "lines")]
)
def test_a_folder_of_the_real_layout(tmp_path, words, name, form):
    long = {**ROW, "input": ROW["input"] * 3, "target": "Garden"}
    for length, rows in (("16k", [ROW]), ("2k", [ROW, long]), ("0k", [ROW])):
        path = tmp_path / name.format(length)
        path.parent.mkdir(parents=True, exist_ok=True)
        if form == "parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        else:
            path.write_text(json.dumps(rows) if form == "array" else "".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "README.md").write_text("qa1 0k")
    folder = BabilongFolder(str(tmp_path))
    found = list(folder.tests(words, data(questions=["qa2", "qa1"]), "test", 64, [1]))
    assert [where["multiple"] for where, _ in found] == ["0k", "2k", "16k"]
    windows = found[1][1]
    assert (windows.kinds, windows.answers) == (["qa1", "qa1"], ["kitchen", "garden"])
    vocabulary = words.vocabulary
    text = "mary went to the kitchen . zanzibar is far . john travelled to the hallway ."
    expected = vocabulary.ids([*text.split(), "QUESTION", "where", "is", "mary", "?", "ANSWER", "kitchen"])
    tokens, index, mask = windows[0]
    assert tokens[: len(expected)].tolist() == expected and index == 0 and expected.count(vocabulary.unknown) == 3
    assert set(tokens[len(expected) :].tolist()) == {vocabulary.question} and len(tokens) == windows.context + 1 == len(mask) + 1
    assert mask.sum() == 1 and tokens[1:][mask].tolist() == vocabulary.ids(["kitchen"])
    last, _, mask = windows[1]
    assert last[-1] == vocabulary.ids(["garden"])[0] and mask.tolist() == [False] * (len(mask) - 1) + [True]
    assert torch.equal(last[:-7], torch.tensor(vocabulary.ids(text.split() * 3)))
    key = folder.key
    (tmp_path / name.format("2k")).unlink()
    assert BabilongFolder(str(tmp_path)).key != key


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('[{"input": "a", "question": "b"}]', "a.json, row 1: wanted strings input, question and target"),
        ('[{"input": "a", "question": "b", "target": "cellar"}]', "'cellar' is no answer of qa1"),
        ("{", "a.json is no JSON"),
        ('[{"input": "caf\xe9"}]'.encode("latin-1"), "a.json is no JSON in UTF-8: wanted an array"),
    ],
)
def test_rows_that_cannot_be_used_are_one_line(tmp_path, content, says):
    (tmp_path / "a.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=says):
        read_rows(tmp_path / "a.json", "qa1")


def test_a_folder_without_the_layout_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="needs a folder"):
        BabilongFolder(None)
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(UsageError, match="holds no file of qa1 to qa5"):
        BabilongFolder(str(tmp_path))
    with pytest.raises(UsageError, match="data=babilong"):
        GeneratedStories(str(tmp_path))
