"""BABILong's rule for whether a generated text answers a question. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable


def is_single_label(output: str, target: str, question: str, labels: Iterable[str]) -> bool:
    """True if the target is the only label that the output names, labels that the question names left aside.

    The output counts in lower case and up to its first full stop, so that neither an echo of the question nor what is written after
    the answer helps or harms; a label is named where its letters occur. Naming two labels is wrong. Source: the scorer of
    booydar/babilong, whose cut at a generated 'Question' we leave out: it looks for a capital after lower-casing and never fires.
    """
    if isinstance(labels, str):
        raise ValueError(f"labels is a list of words, not the text '{labels}'")
    said, asked = output.lower().split(".")[0], question.lower()
    named = {label for label in labels if label in said} - {label for label in labels if label in asked}
    return named == {target.lower()}
