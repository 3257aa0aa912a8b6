"""How fast one device trains: given, or measured by records of the same model."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..records.grouping import environment_of, hardware_class
from ..records.record import RunRecord, Status
from ..spec import AttentionSpec

SECONDS = "train_wall_seconds"


@dataclass(frozen=True, slots=True)
class Throughput:
    """samples_per_second: of one device. source: where the number comes from, in words."""

    samples_per_second: float
    source: str


def measured(spec: Any, records: Iterable[RunRecord]) -> Throughput | None:
    """Median over finished records that trained this very model on this kind of device (CPU or GPU): of the same attention if there
    are any, else of the attention with the most; of the hardware with the most records. None if no record fits."""
    wants_gpu = spec.trainer.accelerator == "gpu"
    model, mechanism = spec.model.model_dump(mode="json"), _mechanism(spec.attention.model_dump(mode="json"))
    found: dict[tuple[bool, str, str], list[float]] = defaultdict(list)
    for record in records:
        rate = _rate(record, model)
        if rate is not None and wants_gpu == bool(record.environment.get("gpu")):
            is_same = _mechanism(record.config.get("attention")) == mechanism
            found[is_same, record.row.attention, hardware_class(environment_of(record))].append(rate)
    if not found:
        return None
    key = max(found, key=lambda key: (key[0], len(found[key]), key[1:]))
    count = len(found[key])
    return Throughput(statistics.median(found[key]), f"median of {count} record{'s' if count > 1 else ''} of {key[1]} on {key[2]}")


def _mechanism(attention: Any) -> dict[str, Any]:
    """What of an attention's configuration its speed may depend on; older records lack keys that have a default now."""
    try:
        return AttentionSpec.model_validate(attention).model_dump(exclude={"axes", "tuned"})
    except ValidationError:
        return {}


def _rate(record: RunRecord, model: dict[str, Any]) -> float | None:
    """Samples a second of one device, or None if the record says nothing about this model's training."""
    if record.status is not Status.OK or record.training is None or record.training.reused or record.budget is None:
        return None
    theirs, trainer = record.config.get("model"), record.config.get("trainer")
    if not isinstance(theirs, dict) or not isinstance(trainer, dict) or any(model.get(key) != value for key, value in theirs.items()):
        return None
    seconds = next((cost.value for cost in record.costs if cost.name == SECONDS), 0)
    devices = trainer.get("devices", 1) * trainer.get("num_nodes", 1)
    return record.budget.samples / seconds / devices if seconds > 0 else None
