"""The CUDA allocator's levels by phase."""

from __future__ import annotations

import pytest
import torch

from goatbench.training.memory import cuda_levels

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
MIB = 2**20


def test_levels_of_phases():
    device, kept = torch.device("cuda"), []
    before = torch.cuda.memory_allocated(device)

    def first():
        kept.append(torch.zeros(32 * MIB, dtype=torch.uint8, device=device))
        torch.zeros(64 * MIB, dtype=torch.uint8, device=device)

    levels = cuda_levels({"first": first, "second": kept.clear}, device)
    found = {name: ((level.peak - before) // MIB, (level.end - before) // MIB) for name, level in levels.items()}
    assert found == {"first": (96, 32), "second": (32, 0)}
