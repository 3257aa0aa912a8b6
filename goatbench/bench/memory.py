"""Memory of one training step of a layer, counted, not sampled: the same number on every run.

saved: bytes that autograd keeps from forward to backward (saved-tensor hooks, each storage once). Not counted are parameters and
       the input, to which belong features of the positions alone (cos, sin): a model has them once, not once a layer.
       saved_with_features counts them as if the model had this one layer.
peak:  most bytes that were allocated at one time during forward and backward beyond what stood before, from the profiler's
       record of every allocation and release, temporaries inside kernels included.

    python -m goatbench.bench.memory goat 8 197     prints one JSON object; the benchmark calls it, so that each is a fresh process
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor, nn

from ..attention.positions import Positions
from ..training.memory import allocation_levels
from .variants import EMBED_DIM, build, training_step

SAVED_METHOD = "saved_tensors_hooks, storages counted once, without parameters, input and features of the positions"
PEAK_METHOD = "torch.profiler record of CPU allocations, forward and backward after one unmeasured step"


def saved_bytes(module: nn.Module, *inputs: Tensor | Positions, features: bool = False) -> int:
    """Bytes kept alive for the backward pass of module(*inputs); features: count those of the positions too."""
    with torch.no_grad():
        module(*inputs)  # positions and modules remember features
    resident = [*module.parameters(), *module.buffers()]
    for value in inputs:
        if isinstance(value, Tensor):
            resident.append(value)
        elif not features:
            resident += _tensors((value.order, value.coords, value.is_prefix, value.known))
    counted = {t.untyped_storage().data_ptr() for t in resident}
    total = 0

    def pack(t: Tensor) -> Tensor:
        nonlocal total
        storage = t.untyped_storage()
        if storage.data_ptr() not in counted:
            counted.add(storage.data_ptr())
            total += storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = module(*inputs)
    del out  # until here the graph held every storage, so that no address was used twice
    return total


def _tensors(value: object) -> list[Tensor]:
    """All tensors in nested tuples, dicts and dataclasses."""
    if isinstance(value, Tensor):
        return [value]
    if is_dataclass(value):
        value = [getattr(value, f.name) for f in fields(value)]
    elif isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [t for part in value for t in _tensors(part)]


def peak_bytes(step: Callable[[], None]) -> int:
    """Most bytes allocated at one time while step() runs, above the level at its start."""
    return allocation_levels({"step": step})["step"].peak


def measure(name: str, batch: int, tokens: int) -> dict[str, int]:
    module = build(name, tokens)
    step = training_step(module, batch, tokens)
    step()
    x = torch.zeros(batch, tokens, EMBED_DIM).requires_grad_()
    positions = Positions.line(tokens)
    return {
        "saved": saved_bytes(module, x, positions),
        "saved_with_features": saved_bytes(module, x, positions, features=True),
        "peak": peak_bytes(step),
        "unit": x.untyped_storage().nbytes(),
    }


def measure_in_fresh_process(name: str, batch: int, tokens: int) -> dict[str, int]:
    command = [sys.executable, "-m", "goatbench.bench.memory", name, str(batch), str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
