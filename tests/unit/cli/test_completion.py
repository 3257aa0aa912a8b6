"""Tab completion, as bash (which breaks words at '=') and other shells ask for it."""

import os
import subprocess
import sys

import pytest

from goatbench.completion import candidates
from goatbench.config_tree import ConfigTree


@pytest.mark.parametrize(
    ("args", "incomplete", "expected"),
    [
        ([], "task=vit_res3", ["task=vit_res320", "task=vit_res384"]),
        (["task", "="], "vit_res3", ["vit_res320", "vit_res384"]),
        (["seed=1"], "attention=rope_ax", ["attention=rope_axial", "attention=rope_axial_ape"]),
        ([], "attention=goat,lear", ["attention=goat,learned_absolute"]),
        ([], "kernel=f", ["kernel=flash", "kernel=flex"]),
        ([], "sc", ["scale="]),
        ([], "seed=", []),
        ([], "nothing", []),
    ],
)
def test_candidates(args, incomplete, expected):
    assert candidates(args, incomplete) == expected


def test_all_values_after_the_equals_sign():
    assert candidates(["task"], "=") == candidates(["task"], "") == ConfigTree.find().options("task")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("goatbench run attention = rope_ax", "rope_axial\nrope_axial_ape"),
        ("goatbench leaderboard task = vit_reso", "vit_resolution"),
        ("goatbench leaderboard vit_reso", "vit_resolution"),
        ("goatbench show sink_s", "sink_scalar"),
        ("goatbench compare goat sink_s", "sink_scalar"),
        ("goatbench compare goat rope --task vit_reso", "vit_resolution"),
        ("goatbench leaderboard genome_nll --against sink_s", "sink_scalar"),
        ("goatbench leaderboard genome_nll --scale pap", "paper"),
        ("goatbench leaderboard genome_nll --metric perp", "perplexity"),
        ("goatbench check --only needle/go", "needle/goat\nneedle/goat_sink"),
        ("goatbench plan attention = rope_ax", "rope_axial\nrope_axial_ape"),
        ("goatbench data check genome_e", "genome_embedded"),
        ("goatbench lea", "leaderboard"),
    ],
)
def test_bash(words, expected):
    """The variables that the script of `goatbench --show-completion` sets."""
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_GOATBENCH_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-m", "goatbench"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == expected
