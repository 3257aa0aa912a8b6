"""Stories as tokens for a DataLoader: facts in their order among sentences of noise, the question, and the answer.

    noise fact noise noise fact .. QUESTION words ? ANSWER | answer

The model reads L tokens, to ANSWER, and predicts the one behind. As in BABILong (Kuratov et al., arXiv 2406.10149) the length is
counted in the model's tokens and filled to the last one; facts go into slots between sentences that are drawn with replacement and
sorted, and the last sentence of noise is cut to fit. The facts' number does not depend on the length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..order import Draw
from ..philox import SEQUENCES, TESTS, uniforms
from .facts import KINDS, MAX_FACTS, MAX_WORDS, NUM_NUMBERS, Dice, Story
from .words import Noise, Vocabulary

MIN_LENGTH = MAX_WORDS + 2  # and the two marks
NUMBERS = 48  # a sample: kind, place in the noise, slots, story


def tell(numbers: Sequence[float], questions: Sequence[str]) -> Story:
    """The story of these numbers (of NUMBERS) with one of these questions."""
    kind = questions[int(numbers[0] * len(questions))]
    return KINDS[kind](Dice(numbers[2 + MAX_FACTS :]))


def assemble(story: Story, numbers: Sequence[float], length: int, vocabulary: Vocabulary, noise: Noise) -> list[int]:
    """length + 1 tokens."""
    facts = [vocabulary.ids(fact) for fact in story.facts]
    end = [vocabulary.question, *vocabulary.ids(story.question), vocabulary.answer]
    num_filler = length - len(end) - sum(map(len, facts))
    assert num_filler >= 0
    filler, places = noise.stretch(numbers[1], num_filler)
    slots = sorted(int(number * len(places)) for number in numbers[2 : 2 + len(facts)])
    tokens, done = [], 0
    for fact, slot in zip(facts, slots, strict=True):
        tokens += filler[done : places[slot]] + fact
        done = places[slot]
    return tokens + filler[done:] + end + vocabulary.ids([story.answer])


class StoryTraining(Dataset):
    """Samples (tokens int64 [length + 1], index int), asked for with order.Draw(epoch, index): all kinds of questions mixed."""

    def __init__(self, vocabulary: Vocabulary, noise: Noise, questions: Sequence[str], length: int, seed: int, num_samples: int) -> None:
        self.vocabulary, self.noise, self.questions = vocabulary, noise, questions
        self.length, self.seed, self.num_samples = length, seed, num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw]) -> list[tuple[Tensor, int]]:
        epoch = draws[0].epoch
        assert {draw.epoch for draw in draws} == {epoch}
        rows = uniforms(self.seed, epoch, np.array([draw.index for draw in draws]), NUMBERS, SEQUENCES).tolist()
        built = [assemble(tell(row, self.questions), row, self.length, self.vocabulary, self.noise) for row in rows]
        return [(row, draw.index) for row, draw in zip(torch.tensor(built), draws, strict=True)]


class StoryTest(Dataset):
    """Samples (tokens int64 [context + 1], index int): `each` stories of every kind of question, the same for every seed of a run and,
    but for the noise, at every length. part: 0 for tests, 1 for validation.

    kinds, questions, answers, read: of each sample, its kind, question and answer in words, and the words of its facts.
    """

    last = 1  # one target, behind all that is read

    def __init__(self, vocabulary: Vocabulary, noise: Noise, questions: Sequence[str], context: int, each: int, part: int = 0) -> None:
        self.context = context
        rows = []
        for kind in questions:
            ids = each * list(KINDS).index(kind) + np.arange(each)
            rows += uniforms(part, 0, ids, NUMBERS, TESTS).tolist()
        self.kinds = [kind for kind in questions for _ in range(each)]
        stories = [tell(row, [kind]) for row, kind in zip(rows, self.kinds, strict=True)]
        self.questions = [" ".join(story.question) for story in stories]
        self.answers = [story.answer for story in stories]
        self.read = [[word for fact in story.facts for word in fact] for story in stories]
        built = [assemble(story, row, context, vocabulary, noise) for story, row in zip(stories, rows, strict=True)]
        self.tokens = torch.tensor(built)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.tokens[index], index


class RealStories(Dataset):
    """Samples (tokens int64 [context + 1], index int, mask bool [context]) of the real BABILong, whose lengths differ: shorter ones are
    filled up behind the answer, where nothing causal can see it, with a mark that is never a target; the mask marks the answer.

    rows: (kind, input, question, target).
    """

    last = None

    def __init__(self, rows: Sequence[tuple[str, str, str, str]], vocabulary: Vocabulary, words: Sequence[tuple[list[str], list[str]]]):
        self.kinds = [kind for kind, *_ in rows]
        self.questions, self.answers = [question for _, _, question, _ in rows], [target for *_, target in rows]
        self.read = [read for read, _ in words]
        self._fill = vocabulary.question
        self._rows = [
            [*vocabulary.ids(read), vocabulary.question, *vocabulary.ids(question), vocabulary.answer, *vocabulary.ids([target])]
            for (read, question), target in zip(words, self.answers, strict=True)
        ]
        self.context = max(map(len, self._rows)) - 1

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int, Tensor]:
        row = self._rows[index]
        tokens, mask = torch.full((self.context + 1,), self._fill), torch.zeros(self.context, dtype=torch.bool)
        tokens[: len(row)] = torch.tensor(row)
        mask[len(row) - 2] = True
        return tokens, index, mask


assert NUMBERS >= 2 + MAX_FACTS + NUM_NUMBERS
