"""Finding a block by two of its letters: one attention map cannot ask for two letters at once, so plain attention learns it by luck.

The outcome has two modes, learned or not, by seed: the board shows every seed beside the mean.
"""

from __future__ import annotations

from goatbench.records.record import TaskCard

from .retrieval import Retrieval, metrics

PROBLEMS = "goatbench.data.text.block_problem"
SOURCE = "the block task of arXiv 2504.00927 (Multi-Token Attention), section 4.1, generated anew"
_TASK = (
    "A causal decoder reads blocks of {size} different letters of 26, separated by dots, a hash and two letters that stand together in "
    "exactly one of the blocks, in any order; it writes {target}. Other blocks may hold one of the two letters. The target is always "
    "there and whole. "
)
_SCORING = (
    "Loss on the answer only, sequences drawn anew in every epoch, no dropout. Every test sequence is scored: exact_match is all letters "
    "right under teacher forcing. Depth is the place of the target among the blocks. Published: 50 blocks, 100,000 steps of 64, 4 layers "
    "of 256 with 2 heads, and a test set of which 960 of 1,000 count; ours: 12 blocks, a smaller model and 9,600 steps of 32, so that "
    "a seed takes under 15 minutes on two cores; in the submitted runs RoPE's base is 1e6 (published 1e5) and the kernel of multi-token "
    "attention has three queries (published two). Outcomes have two modes: read the seeds, not the mean."
)
_GUESS = "Naming one of the two letters is right in 1 of 5. "
_GUESS8 = "Naming one of the two letters is right in 1 of 8. "


def card(name: str, summary: str, size: int, target: str, scored: int, note: str = "") -> TaskCard:
    return TaskCard(
        name=name,
        version=1,
        domain="toy",
        summary=summary,
        protocol=_TASK.format(size=size, target=target) + note + _SCORING,
        metrics=metrics(26, scored),
        primary_metric="exact_match",
        primary_conditions={"multiple": 1, "split": "test"},
        column_condition="multiple",
        column_label="length",
        per_seed=True,
        expected_time={"smoke": "under 20 s", "embedded": "20 minutes on one CPU core, 12 on two", "paper": "hours on a GPU"},
        source=SOURCE,
    )


TOY_BLOCKS = Retrieval(
    card("toy_blocks", "writes the block of 5 letters in which two given letters stand", 5, "the letters of that block in order", 5),
    f"{PROBLEMS}:BLOCKS",
)
TOY_BLOCKS_FIRST = Retrieval(
    card("toy_blocks_first", "names the first letter of the block in which two given letters stand", 5, "its first letter", 1, _GUESS),
    f"{PROBLEMS}:BLOCKS_FIRST",
)
TOY_BLOCKS_LAST = Retrieval(
    card("toy_blocks_last", "names the last letter of the block in which two given letters stand", 5, "its last letter", 1, _GUESS),
    f"{PROBLEMS}:BLOCKS_LAST",
)
TOY_BLOCKS8 = Retrieval(
    card("toy_blocks8", "writes the block of 8 letters in which two given letters stand", 8, "the letters of that block in order", 8),
    f"{PROBLEMS}:BLOCKS_8",
)
TOY_BLOCKS8_FIRST = Retrieval(
    card("toy_blocks8_first", "names the first letter of the block of 8 in which two letters stand", 8, "its first letter", 1, _GUESS8),
    f"{PROBLEMS}:BLOCKS_8_FIRST",
)
TOY_BLOCKS8_LAST = Retrieval(
    card("toy_blocks8_last", "names the last letter of the block of 8 in which two letters stand", 8, "its last letter", 1, _GUESS8),
    f"{PROBLEMS}:BLOCKS_8_LAST",
)
