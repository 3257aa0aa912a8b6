"""Toys whose answer is known beforehand: which mechanism cannot learn them, and which must.

One attention layer without positions sees its past as a set, so order is out of its reach: the protocols name the best it can do.
"""

from __future__ import annotations

from .retrieval import Retrieval, card

PROBLEMS = "goatbench.data.text.toy_problems"
VERSION = 2  # 1 had 400 steps, from 10 tokens on
TRAINING = (
    "A causal decoder is trained on made-up sequences, every second step shorter than the training length, down to the shortest that the "
    "task has; the loss is on the answer's symbols only. "
)
SCORING = (
    "Evaluated on sequences of 1, 2, 4, 8 and 16 training lengths. exact_match: every symbol of the answer has the highest logit, under "
    "teacher forcing, which is what greedy generation writes. A mechanism below 95 % at 1x has not learned the task and is not ranked. "
    "A table of learned positions has no entries beyond the training length: n/a, never clamped."
)
_COPY = (
    "Four random symbols of 24 at the start, blanks, a query mark, and the four symbols again, in order. One layer without positions "
    "knows how often each symbol occurred but not in which order: 5.3 % at most. "
)
_SELECTIVE_COPY = (
    "Four random symbols of 24 at random places among noise tokens that are no symbols, a query mark, and the four symbols again, in "
    "order. One layer without positions knows how often each symbol occurred but not in which order: 5.3 % at most. "
)
_INDUCTION = (
    "Random symbols of 24; the last one read occurred once before, and the answer is the symbol that followed it there. Depth is the "
    "place of that first occurrence, 0 the start. Chance is 1 in 23, the answer being another symbol than the one asked for. One layer "
    "without positions can only name the symbol that occurred most often. "
)

COPY = Retrieval(
    card(
        "copy", "writes four symbols again, in order, at 1x to 16x the training length", TRAINING + _COPY + SCORING, 24, 4,
        "own form of the copy task of Hochreiter and Schmidhuber 1997; Arjovsky et al., arXiv 1511.06464",
        version=VERSION,
    ),
    f"{PROBLEMS}:COPY",
)  # fmt: skip
SELECTIVE_COPY = Retrieval(
    card(
        "selective_copy", "writes the four symbols among noise again, in order, at 1x to 16x the training length",
        TRAINING + _SELECTIVE_COPY + SCORING, 24, 4, "own form of the selective copying of arXiv 2312.00752 (Mamba)",
        version=VERSION,
    ),
    f"{PROBLEMS}:SELECTIVE_COPY",
)  # fmt: skip
INDUCTION = Retrieval(
    card(
        "induction", "names the symbol that followed the last one where it occurred before, at 1x to 16x the training length",
        TRAINING + _INDUCTION + SCORING, 23, 1, "own form of the induction heads task of arXiv 2209.11895; arXiv 2312.00752 (Mamba)",
        version=VERSION,
    ),
    f"{PROBLEMS}:INDUCTION",
)  # fmt: skip
