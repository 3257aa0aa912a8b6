"""Building a model without drawing its large weights: only their sizes matter, and their memory is never touched."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

DRAWING = {"kaiming_uniform_", "normal_", "uniform_", "zero_", "fill_", "mul_", "div_", "add_", "erfinv_", "clamp_"}
SMALL = 65_536  # numbers; what is smaller is drawn, as a constructor may look at it


class Undrawn(TorchFunctionMode):
    """A with-block in which filling a large tensor in place does nothing."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")  # torch.nn.init passes it by name
        if getattr(func, "__name__", "") in DRAWING and isinstance(target, Tensor) and target.numel() > SMALL:
            return target
        return func(*args, **kwargs)
