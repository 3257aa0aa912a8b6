"""Building a model without drawing its large weights: only their sizes matter, and their memory is never touched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DRAWING = {"kaiming_uniform_", "normal_", "uniform_", "zero_", "fill_", "mul_", "div_", "add_", "erfinv_", "clamp_"}
SMALL = 65_536  # numbers; what is smaller is drawn, as a constructor may look at it


class Undrawn(TorchFunctionMode):
    """A with-block in which filling a large tensor in place does nothing, and none of its numbers is said to be out of bounds: torch's
    truncated normal draws until that is so, and what lies in memory that nobody fills may never be within."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")  # torch.nn.init passes it by name
        name = getattr(func, "__name__", "")
        if (name in DRAWING or name == "any") and isinstance(target, Tensor) and target.numel() > SMALL:
            return target if name in DRAWING else torch.tensor(False)
        return func(*args, **kwargs)
