"""The text of a run as a LightningDataModule."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...records.record import DataInfo
from ...spec import DecoderSpec, TextDataSpec, TextEvaluationSpec
from ..causal import CausalData
from .sources import fingerprint_of, load_text
from .tokenizers import Tokenizer, check_vocabulary, load_tokenizer
from .windows import TextTrainingWindows, TextWindows, tiling

TRAINING_SPLITS = ("train", "validation")


class TextData(CausalData):
    """Batches are (tokens int64 [B, L + 1], ids [B]); arguments: see CausalData. UsageError for text that is unreadable or too short."""

    def __init__(
        self, data: TextDataSpec, model: DecoderSpec, evaluation: TextEvaluationSpec, *, seed: int, batch_size: int, **machine: int
    ) -> None:
        super().__init__(data, model, evaluation, seed=seed, batch_size=batch_size, **machine)
        check_vocabulary(load_tokenizer(data), model)  # before the text is encoded, which may take hours
        self.corpus = load_text(data)
        self.check_batch_size()

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of(self.data)

    @cached_property
    def training_fingerprint(self) -> str:
        """Of what can change trained weights: the test documents are left out."""
        return fingerprint_of(self.data, TRAINING_SPLITS)

    @cached_property
    def info(self) -> DataInfo:
        shards = self.corpus.shards
        counts = {"train windows": self.num_train, "validation windows": len(self.validation_windows)}
        counts |= {f"{split} documents": shard.num_documents for split, shard in shards.items()}
        counts["train bytes"] = shards["train"].num_bytes
        if self.data.tokenizer != "bytes":
            counts["train tokens"] = shards["train"].num_tokens - shards["train"].num_documents  # without BOS
        return DataInfo(name=self.data.name, fingerprint=self.fingerprint, counts=counts, source=self.corpus.origin)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.corpus.tokenizer

    @property
    def num_train(self) -> int:
        """Windows an epoch."""
        return self.data.num_train or max(1, self.corpus.shards["train"].num_tokens // self.model.seq_len)

    @cached_property
    def training_set(self) -> TextTrainingWindows:
        return TextTrainingWindows(self.corpus.shards["train"], self.model.seq_len, self.seed, self.num_train)

    @cached_property
    def validation_windows(self) -> TextWindows:
        return self.tiling("validation", self.model.seq_len, self.model.seq_len, self.data.num_validation)

    def tiling(self, split: str, context: int, stride: int, num_windows: int | None) -> TextWindows:
        """Windows of documents that have at least `context` tokens; see windows.tiling."""
        return tiling(self.corpus.shards[split], context, stride, num_windows, split)

    def scored_bytes(self, windows: TextWindows, last: int | None = None) -> np.ndarray:
        """int64 [n], bytes of text that the last `last` targets of each window stand for (None: all targets)."""
        return windows.scored_bytes(self.tokenizer.num_bytes, last)
