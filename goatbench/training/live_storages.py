"""Memory of a computation that is not carried out: fake tensors know their shapes, and their storages are counted while they live.

Works without a GPU and for any length. What a kernel allocates inside itself is not seen; the kernels are those of the CPU.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .memory import Level, Phases


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of all storages that operators return, from then until their last tensor is gone. `level`, `peak`: bytes.

    Enter it inside a FakeTensorMode, or around real tensors. Storages of tensors made before are counted once `add` is given them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.level = self.peak = 0
        self._alive: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.add(out)
        return out

    def add(self, values: Any) -> None:
        """Counts the storages of all tensors in nested lists, tuples and dicts."""
        for value in tree_leaves(values):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def release(_: Any) -> None:
            del self._alive[key]
            self.level -= size

        self._alive[key] = weakref.ref(storage, release)
        self.level += size
        self.peak = max(self.peak, self.level)

    def levels(self, phases: Phases) -> dict[str, Level]:
        """Runs the phases; levels of each."""
        found = {}
        for name, run in phases.items():
            self.peak = self.level
            run()
            found[name] = Level(self.peak, self.level)
        return found


def fake_copy(net: nn.Module, mode: Any) -> nn.Module:
    """The net with fake tensors of `mode` (a FakeTensorMode) for parameters and buffers; shared ones stay shared."""
    import copy

    from torch._subclasses.fake_tensor import FakeCopyMode

    with FakeCopyMode(mode):
        return copy.deepcopy(net)
