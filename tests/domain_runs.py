"""One small run of every domain: four steps an epoch, two epochs. Random draws in training where the domain has any."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from goatbench.compose import compose
from goatbench.registry import tasks
from goatbench.spec import RunSpec
from goatbench.training.checkpoint import read_checkpoint

SMALL = ["scale=smoke", "training.epochs=2", "training.batch_size=4", "data.num_train=18", "data.num_validation=8"]
RUNS = {
    "vision": ["task=vit_res224", "attention=goat", "data.num_test=16", "model.drop_path=0.2", "data.augmentation.mixup=0.8", *SMALL],
    "genome": ["task=genome_length", "attention=rope", "task.multiples=[1]", "data.reverse_complement=true", "data.num_test=8", *SMALL],
    "text": ["task=lm_length", "attention=alibi", "task.multiples=[1]", *SMALL],
    "toy": ["task=needle", "attention=goat", "task.multiples=[1]", *SMALL],
    "stories": ["task=babilong", "attention=nope", "data.num_test=2", *SMALL],
}


def overridden(domain: str, *more: str) -> list[str]:
    """The run's overrides with `more` in place of those of the same key: a key given twice is refused."""
    keys = {line.partition("=")[0] for line in more}
    return [*(line for line in RUNS[domain] if line.partition("=")[0] not in keys), *more]


@cache
def spec_of(domain: str, *more: str) -> RunSpec:
    return compose(overridden(domain, *more)).spec


def train(spec: RunSpec, checkpoint: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights and what training did, as goatbench.execute has it done."""
    task = tasks.get(spec.task.name)
    torch.manual_seed(spec.seed)
    task.train(spec, task.model(spec), task.data(spec), checkpoint, meta={"run_id": "20260131t120000-0123abcd-45ef67"})
    weights, meta = read_checkpoint(checkpoint)
    return weights, meta["fit"]
