"""`goatbench export RUN --out DIR`: a run's weights as a folder that timm and plain torch load again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .boards import Places
from .errors import UsageError
from .records.record import RunRecord, Status
from .registry import image_sources, load_plugins
from .show_run import load_run
from .spec import AttentionSpec, DecoderSpec, VitSpec, sides
from .weights import CHECKPOINTS, WEIGHTS


def export(run: str, out: str, runs_dir: str = "runs") -> list[str]:
    """Writes the folder and says how to load it. UsageError if there are no weights, if they do not fit, or if `out` exists."""
    folder = Path(out)
    _check_new(folder)
    path, record = load_run(run, Places(runs_dir, None))
    weights = _weights(path, record, runs_dir)
    model, attention = _specs(record)
    from .models import build_decoder, build_vit  # seconds of imports, after all that can be refused without them
    from .models.exported import write_exported
    from .training.checkpoint import load_checkpoint

    load_plugins()
    is_vit = isinstance(model, VitSpec)
    try:
        net = (build_vit if is_vit else build_decoder)(model, attention)
    except ValueError as error:
        raise UsageError(f"the model of run {record.run_id} cannot be built by this version of goatbench: {error}") from None
    load_checkpoint(weights, net)
    write_exported(folder, net.state_dict(), _vit_config(record, model, attention) if is_vit else _config(record, model, attention))
    load = f'timm.create_model("local-dir:{out}", pretrained=True)' if is_vit else f'load_exported("{out}")'
    start = "import timm, goatbench.models" if is_vit else "from goatbench.models.exported import load_exported"
    params = sum(parameter.numel() for parameter in net.parameters())
    return [f"{folder}: {model.name} with {attention.name}, {params:,} parameters", f"load it: {start}; net = {load}"]


def _check_new(folder: Path) -> None:
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists and is not overwritten: name a new folder")
    if not folder.parent.is_dir():
        raise UsageError(f"--out {folder}: the folder '{folder.parent}' does not exist; make it first")


def _weights(path: Path, record: RunRecord, runs_dir: str) -> Path:
    """The checkpoint of the record's training hash, beside the run or in runs_dir."""
    if record.status is not Status.OK or record.training is None:
        why = "it trained nothing" if record.status is Status.OK else f"it ended as {record.status}"
        raise UsageError(f"run {record.run_id} has no weights to export: {why}")
    places = [Path(root) / CHECKPOINTS / record.training.training_hash / WEIGHTS for root in (path.parent.parent, runs_dir)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(
            f"the weights of run {record.run_id} are not in {runs_dir} (a published record holds none): "
            f"train them with goatbench show {record.run_id} --repro, and export that run"
        )
    return found


def _specs(record: RunRecord) -> tuple[VitSpec | DecoderSpec, AttentionSpec]:
    model, attention = _part(record, "model"), _part(record, "attention")
    kind = VitSpec if model.get("kind") == "vit" else DecoderSpec
    try:
        return kind.model_validate(model), AttentionSpec.model_validate(attention)
    except ValidationError as error:
        raise UsageError(f"the configuration in record {record.run_id} is not valid: {error.errors()[0]['msg']}") from None


def _config(record: RunRecord, model: DecoderSpec, attention: AttentionSpec) -> dict[str, Any]:
    """Arguments of `models.Decoder`, and what the weights are."""
    arguments = model.model_dump(mode="json", exclude={"kind", "name"}) | _mechanism(attention, attention.options_1d)
    return {"architecture": model.name, "model_args": arguments, "goatbench": _origin(record, "Decoder")}


def _vit_config(record: RunRecord, model: VitSpec, attention: AttentionSpec) -> dict[str, Any]:
    """In timm's layout: its factory's arguments, and a pretrained_cfg with the normalisation of the training data."""
    from .models.exported import FACTORY

    names = {"image_size": "img_size", "drop_path": "drop_path_rate"}
    arguments = {names.get(key, key): value for key, value in model.model_dump(mode="json", exclude={"kind", "name"}).items()}
    arguments |= _mechanism(attention, attention.options_2d)
    size, evaluation = [model.in_chans, *sides(model.image_size)], _part(record, "evaluation")
    pretrained = {
        "num_classes": model.num_classes, "input_size": size, "fixed_input_size": False, "first_conv": "patch_embed.proj",
        "classifier": "head", "crop_pct": evaluation.get("crop_pct", 1.0), "interpolation": evaluation.get("interpolation", "bicubic"),
        **_normalisation(str(_part(record, "data").get("name")), model.in_chans),
    }  # fmt: skip
    origin = {"model_args": arguments, "goatbench": _origin(record, "GoatViT")}
    return {"architecture": FACTORY, "num_classes": model.num_classes, "pretrained_cfg": pretrained, **origin}


def _part(record: RunRecord, name: str) -> dict[str, Any]:
    """A part of the configuration, which is free-form in a record."""
    part = record.config.get(name)
    return part if isinstance(part, dict) else {}


def _mechanism(attention: AttentionSpec, by_axes: dict[str, Any]) -> dict[str, Any]:
    return {
        "position": attention.position or attention.name, "options": {**attention.options, **by_axes}, "lanes": attention.lanes,
        "gate": attention.gate, "inner": attention.inner, "inner_options": attention.inner_options,
    }  # fmt: skip


def _normalisation(source: str, channels: int) -> dict[str, list[float]]:
    """Mean and standard deviation by channel, as data.images takes them: repeated for grey images, averaged for colour ones."""
    if source not in image_sources:
        return {}
    found = {name: list(getattr(image_sources.get(source), name)) for name in ("mean", "std")}
    return {name: values if len(values) == channels else [sum(values) / len(values)] * channels for name, values in found.items()}


def _origin(record: RunRecord, model_class: str) -> dict[str, Any]:
    assert record.training is not None
    return {
        "format": 1, "model_class": model_class, "run_id": record.run_id, "task": record.task.name, "task_version": record.task.version,
        "tokenizer": _part(record, "data").get("tokenizer"),
        "scale": record.scale, "attention": record.row.attention, "seed": record.seed, "training_hash": record.training.training_hash,
        "data": record.data and {"name": record.data.name, "fingerprint": record.data.fingerprint},
    }  # fmt: skip
