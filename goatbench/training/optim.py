"""The optimizer and the learning-rate schedule: one recipe for every attention."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase

import torch
from torch import nn

from ..spec import TrainingSpec


def parameter_groups(net: nn.Module, weight_decay: float) -> list[dict]:
    """Two groups: decayed matrices; and everything that is not decayed: biases, norms and all other 1-D parameters, and whatever
    `net.no_weight_decay()` names (names or fnmatch patterns of parameters: position tables and every log-prior parameter)."""
    patterns = tuple(net.no_weight_decay()) if hasattr(net, "no_weight_decay") else ()
    decayed, plain = [], []
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            continue
        is_exempt = any(fnmatchcase(name, pattern) for pattern in patterns)
        (plain if parameter.ndim < 2 or is_exempt else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def make_optimizer(net: nn.Module, recipe: TrainingSpec, learning_rate: float) -> torch.optim.Optimizer:
    groups = parameter_groups(net, recipe.weight_decay)
    if recipe.optimizer == "lamb":
        from timm.optim import Lamb

        # gradients are clipped once, by the trainer: timm's own clipping is turned off
        return Lamb(groups, lr=learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay, max_grad_norm=None)
    # one fused kernel a step; on a CPU, too, several times faster than a loop over small parameters
    return torch.optim.AdamW(groups, lr=learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True)


def warmup_steps(recipe: TrainingSpec, total_steps: int) -> int:
    return round(recipe.warmup_fraction * total_steps)


def learning_rate_factor(step: int, total_steps: int, num_warmup: int, floor: float) -> float:
    """Factor of the peak learning rate in optimizer step `step` = 0, 1, ...: linear warm-up (t + 1) / W for t < W, then
    floor + (1 - floor) * (1 + cos(pi (t - W) / (T - W))) / 2, which begins at 1 and would reach `floor` at t = T."""
    if step < num_warmup:
        return (step + 1) / num_warmup
    progress = min(1.0, (step - num_warmup) / max(1, total_steps - num_warmup))
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


def make_schedule(optimizer: torch.optim.Optimizer, recipe: TrainingSpec, total_steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    num_warmup = warmup_steps(recipe, total_steps)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, total_steps, num_warmup, recipe.min_learning_rate_ratio)
    )
