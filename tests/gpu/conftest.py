"""Every test of this folder runs on a GPU where there is one (`pytest -m gpu tests/gpu`), and smaller on the CPU wherever that can do it,
so that nothing here is first run, and found broken, on the day that a GPU is there."""

from __future__ import annotations

import pytest
import torch

NEEDS_CUDA = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])
def device(request) -> torch.device:
    return torch.device(request.param)
