"""Counted bytes against closed forms."""

import torch
from torch import nn

from goatbench.bench.memory import measure, peak_bytes, saved_bytes

MIB = 2**20


class Square(nn.Module):
    """x * w, then a square: keeps x * w (squared) and neither x (the input) nor w (a parameter)."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1000))

    def forward(self, x):
        y = x * self.w
        return y * y + y.view(10, 100).pow(2).reshape(-1)  # the view is the same storage, counted once


def test_saved_counts_each_storage_once_and_neither_input_nor_parameters():
    x = torch.ones(1000, requires_grad=True)
    assert saved_bytes(Square(), x) == 4000


def test_peak_is_the_highest_level_not_the_sum():
    def step():
        a = torch.empty(3 * MIB, dtype=torch.uint8)
        del a
        b = torch.empty(1 * MIB, dtype=torch.uint8)
        c = torch.empty(4 * MIB, dtype=torch.uint8)
        del b, c

    step()
    assert abs(peak_bytes(step) - 5 * MIB) < 4096


def test_plain_attention_keeps_q_k_v_out_and_the_log_sum_exp():
    batch, tokens, heads = 2, 96, 6
    unit = batch * tokens * 384 * 4
    counted = measure("plain", batch, tokens)
    assert counted["unit"] == unit
    assert counted["saved"] == 4 * unit + batch * heads * tokens * 4


def test_goat_and_rope_keep_hardly_more_than_plain_attention():
    """The merged heads must not be a copy, nor the projections alive beside what the kernel keeps: 5.0 units instead of 4."""
    plain, goat, rope = (measure(name, 8, 197) for name in ("plain", "goat", "rope"))
    assert goat["saved"] <= 1.01 * plain["saved"]
    assert goat["peak"] <= 1.02 * plain["peak"]
    assert rope["saved"] == plain["saved"]  # its tables belong to the positions


def test_goat_at_batch_1_too_where_its_lanes_weigh_most():
    plain, goat = (measure(name, 1, 512) for name in ("plain", "goat"))
    assert goat["saved"] <= 1.01 * plain["saved"]
