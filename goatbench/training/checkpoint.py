"""One file for trained weights: a plain dict {"state_dict": tensors, "meta": plain Python}, written atomically, read with weights_only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..records.files import replacing

KEPT = "what was saved before is kept: make room, or let the folder be written, and give the same command again"


def save_checkpoint(path: Path, state_dict: Mapping[str, Tensor], meta: dict[str, Any]) -> None:
    """Writes all or nothing. UsageError in one line where the disk refuses."""
    write_atomic(path, {"state_dict": {name: tensor.detach().cpu() for name, tensor in state_dict.items()}, "meta": meta})


def write_atomic(path: Path, content: dict[str, Any]) -> None:
    """Writes all or nothing, makes the folder first. UsageError in one line where the disk refuses; what lay at `path` is still there."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; {KEPT}") from None
    with replacing(path, advice=KEPT) as file:
        _save(content, file)


def _save(content: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(content, file)
    except RuntimeError as error:  # torch's own words when its writer was left half-way by an OSError
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(state_dict on the CPU, meta). UsageError in one line where the file is missing or is not such a checkpoint."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"checkpoint {path} does not exist")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        state_dict, meta = content["state_dict"], content["meta"]
    except Exception as error:  # a damaged file can fail anywhere in the zip, the unpickler or the layout
        raise UsageError(
            f"checkpoint {path} is damaged or not a goatbench checkpoint ({type(error).__name__}): train again with retrain=true"
        ) from error
    return state_dict, meta


def load_checkpoint(path: Path, net: nn.Module) -> dict[str, Any]:
    """Loads the weights into `net`, all of them or none, and returns meta."""
    state_dict, meta = read_checkpoint(path)
    own = net.state_dict()
    missing, unexpected = sorted(own.keys() - state_dict.keys()), sorted(state_dict.keys() - own.keys())
    unequal = sorted(name for name in own.keys() & state_dict.keys() if own[name].shape != state_dict[name].shape)
    for problem, names in (("lacks", missing), ("has the unknown", unexpected), ("has another shape of", unequal)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UsageError(
                f"checkpoint {path} does not fit the model: it {problem} {', '.join(names[:3])}{more}; train again with retrain=true"
            )
    net.load_state_dict(state_dict)
    return meta
