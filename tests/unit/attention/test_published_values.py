"""Options and starting values that the rows ship with are those of their sources: a wrong one would move a score, and no formula."""

from __future__ import annotations

from math import pi
from typing import Any

import pytest
import torch
from attention_cases import CONFIGS

from goatbench.attention.scheme import ModelShape
from goatbench.registry import attentions

BY_NAME = {config["name"]: config for config in CONFIGS}
ROPE = {"base": 10_000.0}  # RoFormer, arXiv 2104.09864, section 3.3
LINE = {
    "num_frequencies": 2,
    "min_period": 2 * pi,
    "max_period": 62_831.85307179586,
}  # arXiv 2601.15380: base 10,000, two waves
GRID = {"num_frequencies": 8, "min_period": 2.0, "max_period": None}  # ours: the paper has none for images; None: 4 training grids
GOAT = {"options_1d": LINE, "options_2d": GRID}
AXIAL, MIXED = {"base": 100.0}, {"base": 10.0}  # RoPE for vision transformers, arXiv 2403.13298: naver-ai/rope-vit
FULL_MTA = {  # facebookresearch/RAM, projects/mta: 830M_mta.yaml, but for `every`, which is 4 there
    "query_kernel": 6, "key_kernel": 11, "convolve": "both", "every": 1, "mix": "both", "heads_per_group": None, "norm": "gate",
}  # fmt: skip
BLOCK_MTA = {  # arXiv 2504.00927, section 4.1: keys 2 N - 1 for blocks of N = 5
    "query_kernel": 2, "key_kernel": 9, "convolve": "before", "every": 1, "mix": "none", "heads_per_group": None, "norm": "none",
}  # fmt: skip

PUBLISHED: dict[str, dict[str, Any]] = {
    **{key: {} for key in ("alibi", "alibi_2d", "alibi_learned", "cable", "fox", "kerple_log", "kerple_power", "learned_absolute")},
    **{key: {} for key in ("nope", "rpb", "sink_scalar", "softmax1")},
    **dict.fromkeys(("goat", "goat_learned_freqs", "goat_sink", "goat_spectral"), GOAT),
    "alibi_sink_scalar": {"position": "alibi+sink_scalar"},
    "bam": {"options": {"ssmax": True, "shared": True}},  # arXiv 2505.22842; one prior for all layers: their code's default
    "cope": {"position": "nope", "inner": "contextual", "inner_options": {"num_positions": 64}},  # arXiv 2405.18719: p_max 64
    "diff_v1": {"position": "rope", "inner": "differential_v1", "options": ROPE},
    "diff_v2": {"position": "rope", "inner": "differential_v2", "options": ROPE},
    "fire": {"options": {"threshold": 512.0}},  # arXiv 2310.04418: initial L
    "fire_2d": {"options": {"threshold": None}},  # ours
    "fope": {"options": {**ROPE, "init_gain": 0.3, "learned": False}},  # arXiv 2412.17739: sigma 0.3, coefficients fixed
    "gated_elementwise": {"position": "rope", "gate": "elementwise", "options": ROPE},
    "gated_headwise": {"position": "rope", "gate": "headwise", "options": ROPE},
    "goat_diff": {"position": "goat", "inner": "differential_v1", **GOAT},
    "goat_mixed": {"options_2d": GRID},
    "goat_no_slope": {"options_1d": LINE},
    "goat_reference": {  # their genome model, and their vision module at head_dim 64
        "options_1d": {"pos_rank": 2, "abs_rank": 4, "init": "seeded"},
        "options_2d": {"pos_rank": None, "abs_rank": 2, "init": "uniform"},
    },
    "goat_rope": {"position": "goat+rope", "options": ROPE, "options_1d": LINE},
    "goat_sink_scalar": {"position": "goat+sink_scalar", **GOAT},
    "lookhere": {"options": {"field_of_view": 90, "slope": 1.0}},  # arXiv 2405.13985: LookHere-90, global slope 1
    "mta": {"position": "rope", "inner": "multi_token", "inner_options": FULL_MTA, "options": ROPE},
    "mta_conv": {"position": "rope", "inner": "multi_token", "inner_options": BLOCK_MTA, "options": ROPE},
    "rope": {"options": ROPE},
    **{key: {"options": AXIAL} for key in ("rope_axial", "rope_axial_ape")},
    **{key: {"options": MIXED} for key in ("rope_mixed", "rope_mixed_ape")},
    "rope_randomised": {
        "options": {**ROPE, "max_length": None, "draw_at_evaluation": False}
    },  # arXiv 2305.16843
    "rope_sink_scalar": {"position": "rope+sink_scalar", "options": ROPE},
    "rope_xpos": {"options": {**ROPE, "scale_base": 512.0}},  # arXiv 2212.10554: torchscale
    "sink_token": {"position": "rope+sink_token", "options": ROPE},
    "sinusoidal": {"options": {"base": 10_000.0}},  # arXiv 1706.03762
    "t5": {"options": {"num_buckets": 32, "max_distance": 128}},  # arXiv 1910.10683
    "talking_heads": {"position": "rope", "inner": "talking_heads", "options": ROPE},
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_row_has_the_options_of_its_source_and_no_others(name):
    kinds = ("position", "inner", "gate", "options", "options_1d", "options_2d", "inner_options")
    assert {kind: value for kind in kinds if (value := BY_NAME[name].get(kind))} == PUBLISHED[name]


def test_every_row_stands_here():
    assert PUBLISHED.keys() == BY_NAME.keys()


SPREADS = {  # (row, parameter) -> standard deviation around 0
    ("t5", "table"): 64**-0.5,  # T5: embed_dim**-0.5
    ("sink_token", "token"): 0.02,  # as every token embedding here
    ("rpb", "table"): 0.02,  # Swin, BEiT
    ("rpb", "prefix_rows"): 0.02,
}


@pytest.mark.parametrize(("name", "parameter"), SPREADS)
def test_tables_start_with_the_spread_of_their_source(name, parameter):
    torch.manual_seed(0)
    line, grid = ModelShape(1, True, 64, 2, 256, 256, 64, (64,)), ModelShape(2, False, 64, 2, 256, 256, 64, (8, 8), num_prefix=1)
    schemes = [attentions.get(name)(grid if name == "rpb" else line) for _ in range(30)]
    values = torch.cat([scheme.get_parameter(parameter).detach().flatten() for scheme in schemes])
    assert len(values) > 1500 and values.std().item() == pytest.approx(SPREADS[name, parameter], rel=0.1)
    assert abs(values.mean().item()) < 0.1 * SPREADS[name, parameter]


def test_bams_scale_starts_at_one():
    """SSMax: s = 1, so that logits grow with the logarithm of the visible keys from the first step (arXiv 2501.19399)."""
    gain = attentions.get("bam")(ModelShape(1, True, 64, 2, 4, 4, 16, (64,))).gain
    assert torch.equal(gain, torch.ones(4))
