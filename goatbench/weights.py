"""The weights of a run: those of an equal training before it, or trained now."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import rank_decision
from .errors import UsageError
from .records.files import lock
from .records.grouping import hardware_class
from .records.record import Budget, Cost, TrainingInfo
from .spec import RunSpec

CHECKPOINTS = "checkpoints"
WEIGHTS = "weights.pt"
HARDWARE = "hardware"  # in the meta of weights: what they were trained on
SUMS = ("steps", "samples", "train_cpu_seconds", "train_wall_seconds", "train_wait_seconds")  # of a training, over its stages


def trained(spec: RunSpec, task: Any, net: Any, data: Any, record: dict[str, Any], training_hash: str, rank: int) -> list[Cost]:
    """Puts the weights of this training hash into `net`, from its checkpoint or trained now, and into `record` what training did.

    Returns what the training cost, whichever run paid for it; nothing if that was on another kind of machine, whose costs are not to be
    compared with this one's. Of several ranks the first one holds the lock and decides for all.
    """
    here = hardware_class(record["environment"])
    checkpoint = Path(spec.runs_dir) / CHECKPOINTS / training_hash / WEIGHTS
    with _locked(checkpoint.parent) if rank == 0 else contextlib.nullcontext():
        meta, reused = _load_or_train(spec, task, net, data, checkpoint, {"run_id": record["run_id"], HARDWARE: here}, rank)
    if spec.trainer.precision == "bf16-true":
        net.bfloat16()  # as it was trained, wherever that was done: weights that are found again come into a float32 net
    fit, first = meta["fit"], meta.get("first_fit")
    total = {name: fit[name] + (first or {}).get(name, 0) for name in SUMS}
    if not reused and rank == 0:
        from .training.waiting import loader_notice

        if notice := loader_notice(spec, fit["train_wait_seconds"], fit["train_wall_seconds"]):
            print(f"goatbench: note: {notice}", file=sys.stderr, flush=True)
    record["training"] = TrainingInfo(
        training_hash=training_hash,
        reused=reused,
        from_run=meta["run_id"],
        selected_epoch=fit["selected_epoch"],
        selected_on=fit["selected_on"],
        selected_value=fit["selected_value"],
        learning_rate=spec.learning_rate,
        learning_rate_source=spec.learning_rate_source,
    )
    record["budget"] = Budget(
        epochs=spec.training.epochs, steps=total["steps"], samples=total["samples"], batch_size=spec.training.batch_size
    )
    if fit.get("resumed_at_steps"):
        record["notes"] = [f"training went on from a checkpoint after {', '.join(map(str, fit['resumed_at_steps']))} steps"]
    if first is not None:
        said = f"first stage: {first['steps']:,} steps, {first['samples']:,} samples, learning rate {meta['first_learning_rate']:g}, "
        said += f"{first['selected_on']} {first['selected_value']:.4f} in epoch {first['selected_epoch']}"
        record["notes"] = [*record.get("notes", []), f"{said}; steps, samples and costs hold it too, epochs are those of the last stage"]
    record["data"] = data.info.model_copy(update={"skipped": len(meta.get("unreadable", []))})
    if (there := meta.get(HARDWARE, here)) != here:
        record["notes"] = [*record.get("notes", []), f"trained on {there}: what training cost there is left out"]
        return []
    peak = max(fit["peak_memory_bytes"], first["peak_memory_bytes"] if first else 0)
    return [
        Cost(name="train_cpu_seconds", value=total["train_cpu_seconds"], unit="s", method="process CPU time, rank 0"),
        Cost(name="train_wall_seconds", value=total["train_wall_seconds"], unit="s", method="wall clock"),
        Cost(name="train_wait_seconds", value=total["train_wait_seconds"], unit="s", method="wall clock between batches, rank 0"),
        Cost(name="train_peak_memory_bytes", value=peak, unit="bytes", method=fit["peak_memory_method"]),
    ]


def _load_or_train(
    spec: RunSpec, task: Any, net: Any, data: Any, checkpoint: Path, its_meta: dict[str, str], rank: int
) -> tuple[dict[str, Any], bool]:
    """(meta, reused). Runs that need the same weights train them once. its_meta: for the weights, if this run trains them."""
    from .training.checkpoint import load_checkpoint

    run_id = its_meta["run_id"]
    folder = Path(spec.runs_dir) / run_id
    is_one_of_several = spec.trainer.devices * spec.trainer.num_nodes > 1
    if is_one_of_several and rank > 0:
        is_there = rank_decision.decided(folder, checkpoint.parent.name) == rank_decision.REUSE
    else:
        is_there = checkpoint.exists() and (not spec.retrain or _trained_by(checkpoint) == run_id)
    if is_one_of_several and rank == 0:
        rank_decision.decide(folder, rank_decision.REUSE if is_there else rank_decision.TRAIN, checkpoint.parent.name)
    if is_there:
        meta = load_checkpoint(checkpoint, net)
        return meta, meta["run_id"] != run_id  # its own: the run was stopped in its evaluation and has been started again
    task.train(spec, net, data, checkpoint, meta=its_meta)
    return load_checkpoint(checkpoint, net), False


def _trained_by(checkpoint: Path) -> str | None:
    """The run whose weights these are; None if they are damaged, which a new training puts right."""
    from .training.checkpoint import read_checkpoint

    try:
        return read_checkpoint(checkpoint)[1].get("run_id")
    except UsageError:
        return None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time per training hash; the lock falls with its holder, however that one ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "w")  # noqa: SIM115 (held for the length of the block)
    except OSError as error:
        hint = "set runs_dir=PATH to a folder you can write"
        raise UsageError(f"cannot write checkpoints under {folder.parent}: {error.strerror}; {hint}") from None
    with file:
        lock(file)
        yield
