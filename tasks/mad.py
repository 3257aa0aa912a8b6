"""The six tasks of Mechanistic Architecture Design (arXiv 2403.17844), small enough for a minute on a CPU: what a mechanism can hold,
find, tell from noise, put in order, squeeze together and learn by heart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .toy_recall import SCORING, TABLE, TRAINING, Recall, card

if TYPE_CHECKING:
    from goatbench.models.decoder import Decoder

PROBLEMS = "goatbench.data.text.mad_problems"
SOURCE = "arXiv 2403.17844 (Mechanistic Architecture Design), its {} task, generated anew"
DIFFERS = (
    "Differs from the published set-up: sequences drawn anew instead of 12,800 kept ones, the loss on the answers only where theirs takes "
    "every token of a recall, one setting instead of a range of sizes, one learning rate instead of the best of six recipes; {}."
)
_RECALL = (
    "Pairs of a key and its value, of {keys}, each pair's key drawn again and again; the value of a key that was there before is to be "
    "predicted, and the last pair always has one. "
)


@dataclass(frozen=True, slots=True)
class Compression(Recall):
    """`goatbench run task=mad_compression`: a model that answers from the state of its last token."""

    def family(self) -> type[Decoder]:
        from goatbench.models.compressor import Compressor

        return Compressor


def _task(problem: str, summary: str, asks: str, differs: str, values: int, of: str, task: type[Recall] = Recall) -> Recall:
    """problem: a name of mad_problems. asks: what is read and what is to be predicted. differs: from the source, beside what all six
    differ in. values: what an answer is one of. of: the source's name of the task."""
    protocol = TRAINING + asks + SCORING + TABLE + DIFFERS.format(differs)
    return task(card(f"mad_{problem.lower()}", summary, protocol, values, SOURCE.format(of)), f"{PROBLEMS}:{problem}")


MAD_RECALL = _task(
    "RECALL",
    "names the value that a key had before",
    _RECALL.format(keys="8 keys and 8 values"),
    "32 tokens instead of 128",
    8,
    "in-context recall",
)
MAD_FUZZY_RECALL = _task(
    "FUZZY_RECALL",
    "names the value that a key had before, where keys and values are several tokens long",
    _RECALL.format(keys="keys of 1 or 2 different tokens of 8 and values of 1 or 2 of another 8")
    + "Every token of the value is an answer, and the ones before it are read. ",
    "32 tokens instead of 128, keys and values of at most 2 tokens instead of 3, and tests with keys of any length instead of the full one",
    8,
    "fuzzy in-context recall",
)
MAD_NOISY_RECALL = _task(
    "NOISY_RECALL",
    "names the value that a key had before, among noise",
    _RECALL.format(keys="8 keys and 8 values") + "A pair in five is two tokens of noise, of a vocabulary of their own. ",
    "32 tokens instead of 128",
    8,
    "noisy in-context recall",
)
MAD_SELECTIVE_COPY = _task(
    "SELECTIVE_COPY",
    "writes the symbols among blanks again, in order, without reading what it has written",
    "Symbols of 16 at random places among blanks, one for every 16 tokens of the sequence, a mark, and blanks: at each of these "
    "one symbol is to be predicted, in order. What was answered is not read, so that only its place tells a blank from the next. ",
    "32 tokens with 2 symbols instead of 256 with 16",
    16,
    "selective copying",
)
MAD_COMPRESSION = _task(
    "COMPRESSION",
    "tells all that it has read from the state of one token",
    "Symbols of 16 and a last token; from the state of that token and a sinusoid of the place, two layers of the model's width "
    "must tell the symbol at every place. Attention reaches nothing behind that state. ",
    "4 symbols instead of 31",
    16,
    "compression",
    Compression,
)
MAD_MEMORISATION = _task(
    "MEMORISATION",
    "knows by heart the value of the key before a mark",
    "Keys of 48, each followed by a mark: there the key's value of 16 is to be predicted, by one mapping that is the same in all "
    "sequences, trainings and tests. Nothing in the sequence tells it. ",
    "48 keys for 16 values, three to each, instead of 127 for 127",
    16,
    "memorisation",
)
