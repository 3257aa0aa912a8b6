"""A folder with a trained model: weights as safetensors, and what it takes to build the model again, as JSON.

    DIR/model.safetensors      every tensor of the state dict; one that several names share is stored under each
    DIR/config.json            of a ViT in the layout that timm reads: timm.create_model("local-dir:DIR", pretrained=True)

`load_exported(DIR)` gives either model back, without timm's factory.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import UsageError
from ..registry import attentions, inner_attentions, load_plugins, unknown
from .decoder import Decoder
from .vit import GoatViT

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FACTORY = "goatvit_small_patch16_224"  # of timm's registry; every size of it is given
CLASSES: dict[str, type[nn.Module]] = {"GoatViT": GoatViT, "Decoder": Decoder}
MAX_CONFIG_BYTES = 2**20


def write_exported(folder: Path, state_dict: dict[str, Tensor], config: dict[str, Any]) -> None:
    """All or nothing: a folder beside it that is renamed. UsageError if `folder` exists or cannot be written."""
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists and is not overwritten: name a new folder")
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir()
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state_dict.items()}
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        (temporary / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        for file in (WEIGHTS, CONFIG):
            os.chmod(temporary / file, 0o644)  # safetensors writes for its owner alone
            with open(temporary / file, "rb") as written:
                os.fsync(written.fileno())
        os.rename(temporary, folder)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}; nothing was left there") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_config(folder: Path | str) -> dict[str, Any]:
    """The JSON of an exported model. UsageError in one line where it is missing or is not one."""
    path = Path(folder) / CONFIG
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(MAX_CONFIG_BYTES))
        known = content["goatbench"]["model_class"] in CLASSES and isinstance(content["model_args"], dict)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is no exported model's {CONFIG} ({type(error).__name__}): write one with goatbench export RUN") from None
    if not known:
        raise UsageError(f"{path}: its model_class is none of {', '.join(CLASSES)}")
    return content


def load_exported(folder: Path | str) -> nn.Module:
    """The model (`Decoder` or `GoatViT`) with its weights, in evaluation mode, on the CPU. UsageError for a folder that is none."""
    config, path = read_config(folder), Path(folder) / WEIGHTS
    load_plugins()
    arguments = config["model_args"]
    for registry, key, names in ((attentions, "position", str(arguments.get("position")).split("+")), (inner_attentions, "inner", None)):
        for name in names or [str(arguments.get(key, "softmax"))]:
            if name not in registry:
                raise UsageError(f"{folder}: {unknown(registry.kind, name, registry.names())}")
    try:
        net = CLASSES[config["goatbench"]["model_class"]](**arguments)
        state_dict = load_file(path)
        net.load_state_dict(state_dict)
    except (OSError, SafetensorError, RuntimeError, TypeError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"{folder} cannot be loaded: {said}; export the run again") from None
    return net.eval()
