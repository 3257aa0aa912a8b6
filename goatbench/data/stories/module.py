"""The stories of a run as a LightningDataModule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ... import registry
from ...errors import UsageError
from ...records.canonical import digest
from ...records.record import DataInfo
from ...spec import DecoderSpec, StoryDataSpec, StoryEvaluationSpec
from ..causal import CausalData
from ..text import sources as text_sources
from ..text.module import TRAINING_SPLITS
from .sources import Tests, fingerprint_of, text_of
from .windows import MIN_LENGTH, StoryTest, StoryTraining
from .words import load_words


class StoryData(CausalData):
    """Batches are (tokens int64 [B, L + 1], ids [B]), of real stories with a mask [B, L]; arguments: see CausalData."""

    is_shuffled = False  # each sample is drawn anew in each epoch

    def __init__(
        self, data: StoryDataSpec, model: DecoderSpec, evaluation: StoryEvaluationSpec, *, seed: int, batch_size: int, **machine: int
    ) -> None:
        super().__init__(data, model, evaluation, seed=seed, batch_size=batch_size, **machine)
        self.source = registry.story_sources.get(data.name)(data.path)
        self.check_batch_size()
        if model.seq_len < MIN_LENGTH:
            raise UsageError(f"model.seq_len={model.seq_len}: the longest story with its question takes {MIN_LENGTH} tokens")
        self.words = load_words(data.text, data.text_path, model.vocab_size)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of(self.data)

    @cached_property
    def training_fingerprint(self) -> str:
        """Of what can change trained weights: the tests are left out."""
        return digest(["stories-1", text_sources.fingerprint_of(text_of(self.data), TRAINING_SPLITS)])

    @cached_property
    def info(self) -> DataInfo:
        counts = {"train stories": self.num_train, "validation stories": len(self.validation_windows)}
        counts |= {"test stories of each question and length": self.data.num_test} if self.data.name == "stories" else {}
        text = text_sources.load_text(text_of(self.data)).origin
        return DataInfo(name=self.data.name, fingerprint=self.fingerprint, counts=counts, source=f"{self.source.origin}; noise {text}")

    @property
    def num_train(self) -> int:
        """Stories an epoch."""
        return self.data.num_train

    @cached_property
    def training_set(self) -> StoryTraining:
        noise = self.words.noise("train")
        return StoryTraining(self.words.vocabulary, noise, self.data.questions, self.model.seq_len, self.seed, self.num_train)

    @cached_property
    def validation_windows(self) -> StoryTest:
        each = max(1, self.data.num_validation // len(self.data.questions))
        return StoryTest(self.words.vocabulary, self.words.noise("validation"), self.data.questions, self.model.seq_len, each, part=1)

    def tests(self, split: str, multiples: Sequence[int]) -> Tests:
        """(conditions, windows), each built when it is asked for."""
        return self.source.tests(self.words, self.data, split, self.model.seq_len, multiples)
