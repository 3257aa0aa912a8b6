"""A row that cannot tell patches apart by their places is a control of the vision tasks: it is never ranked among position mechanisms."""

from __future__ import annotations

import torch
from attention_cases import AXES, GRIDS, TRAIN_GRID, make_layer, run, tokens

from goatbench.attention.positions import Positions
from tasks.vit_resolution import VIT_RESOLUTION


def is_blind(name: str) -> bool:
    """Whether patches in another order give the same outputs in that order."""
    layer, positions = make_layer(name, "grid"), Positions.grid(*TRAIN_GRID, num_prefix=1)
    x = tokens(positions.num_tokens)
    order = torch.cat((torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(positions.num_tokens - 1)))
    with torch.no_grad():
        return torch.allclose(run(layer, x[:, order], positions), run(layer, x, positions)[:, order], rtol=0, atol=1e-9)


def test_rows_without_positions_are_controls():
    blind = {name for name in GRIDS if name in AXES and is_blind(name)}
    assert blind >= {"nope", "sink_scalar", "softmax1"} and not blind & {"goat", "rpb", "learned_absolute", "sinusoidal", "rope_axial"}
    assert blind <= set(VIT_RESOLUTION.card.controls)
