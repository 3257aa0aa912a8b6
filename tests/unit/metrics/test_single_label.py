"""BABILong's rule by worked examples. Reports NVIDIA/RULER 15, 30, 54: scorers that were given a text for a list of texts, or counted
any answer for all; each scorer has its own types and its own cases.
"""

from __future__ import annotations

import pytest

from goatbench.data.stories.facts import LABELS
from goatbench.metrics.single_label import is_single_label

ROOMS = LABELS["qa1"]


@pytest.mark.parametrize(
    ("output", "target", "question", "is_right"),
    [
        ("kitchen", "kitchen", "where is mary ?", True),
        ("The most recent location of Mary is Kitchen. Question: garden", "kitchen", "Where is Mary?", True),  # only up to the stop
        ("kitchen or garden", "kitchen", "where is mary ?", False),  # two labels name none
        ("garden", "kitchen", "where is mary ?", False),
        ("", "kitchen", "where is mary ?", False),
        ("the garden, before it the kitchen", "kitchen", "where was the apple before the garden ?", True),  # the question's is left aside
        ("garden", "garden", "where was the apple before the garden ?", False),
        ("kitchens", "kitchen", "where is mary ?", True),  # letters, not words: the published rule
        (". kitchen", "kitchen", "where is mary ?", False),
        ("kitchen\ngarden", "kitchen", "where is mary ?", False),  # a line break ends nothing
    ],
)
def test_worked_examples(output, target, question, is_right):
    assert is_single_label(output, target, question, ROOMS) is is_right


def test_names_and_things_of_qa5():
    labels = LABELS["qa5"]
    assert is_single_label("Fred gave it to Bill", "fred", "who gave the milk to bill ?", labels)
    assert not is_single_label("Fred gave it to Jeff", "fred", "who gave the milk to bill ?", labels)
    assert is_single_label("milk", "milk", "what did fred give to bill ?", labels)


def test_the_sets_of_labels_are_the_published_ones():
    assert {len(set(LABELS[kind])) for kind in ("qa1", "qa2", "qa3", "qa4")} == {6} and len(set(LABELS["qa5"])) == 7
    assert "bathroom" in ROOMS and "football" in LABELS["qa5"]


def test_a_text_is_no_list_of_labels():
    with pytest.raises(ValueError, match="not the text 'kitchen'"):
        is_single_label("kitchen", "kitchen", "where is mary ?", "kitchen")
