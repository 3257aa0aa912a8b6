"""A training that begins with an earlier stage: another size, another recipe, then the weights go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from ..spec import RunSpec
from .checkpoint import load_checkpoint, read_checkpoint


def begin_with(
    first: RunSpec,
    net: nn.Module,
    checkpoint: Path,
    run_id: str,
    build: Callable[[RunSpec], nn.Module],
    train: Callable[[RunSpec, nn.Module, Path], None],
) -> dict[str, Any]:
    """Gives `net` the weights of the stage `first`, which lie below those of `checkpoint`, and returns their meta (as of fit.fit).

    Weights of a stage that an earlier start has finished are taken as they are; of another run than run_id not if first.retrain is set.
    build: the net of a stage (drop path has a rate of its own); it begins with the weights of `net`. train: writes the best weights.
    """
    done = checkpoint.parent / "first_stage" / checkpoint.name
    if not done.exists() or (first.retrain and read_checkpoint(done)[1].get("run_id") != run_id):
        earlier = build(first)
        earlier.load_state_dict(net.state_dict())
        train(first, earlier, done)
    return load_checkpoint(done, net)
