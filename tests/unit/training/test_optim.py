"""Who is decayed, and the learning rate of each step against its closed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from goatbench.spec import TrainingSpec
from goatbench.training.optim import make_optimizer, make_schedule, parameter_groups

LEARNING_RATE, DECAY = 0.1, 0.5


class Net(nn.Module):
    """One parameter of each kind; the log-prior's are matrices, which a rule by dimension alone would decay."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.pos_embed = nn.Parameter(torch.ones(1, 4, 3))
        self.scheme = nn.Module()
        self.scheme.amplitudes = nn.Parameter(torch.ones(2, 5))
        self.scheme.gain = nn.Parameter(torch.ones(2, 1))
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)

    def no_weight_decay(self) -> set[str]:
        return {"pos_embed", "scheme.*"}


def names(net: nn.Module, group: dict) -> set[str]:
    return {name for name, p in net.named_parameters() if any(p is q for q in group["params"])}


def test_groups():
    net = Net()
    decayed, plain = parameter_groups(net, DECAY)
    assert names(net, decayed) == {"fc.weight"} and decayed["weight_decay"] == DECAY
    assert names(net, plain) == {"fc.bias", "norm.weight", "norm.bias", "pos_embed", "scheme.amplitudes", "scheme.gain"}
    assert plain["weight_decay"] == 0


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_prior_parameters_are_not_decayed(optimizer):
    """With zero gradients only decay moves a parameter: AdamW shrinks the matrix by 1 - lr * decay, and nothing else moves.

    LAMB steps by the trust ratio |w| / |decay * w| times decay * w, so that its matrix shrinks by 1 - lr.
    """
    net = Net()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    for p in net.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    recipe = TrainingSpec(epochs=1, batch_size=1, default_learning_rate=1, weight_decay=DECAY, optimizer=optimizer)
    make_optimizer(net, recipe, LEARNING_RATE).step()
    factor = 1 - LEARNING_RATE * (DECAY if optimizer == "adamw" else 1.0)
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.detach(), before[name] * (factor if name == "fc.weight" else 1.0), msg=name)


def test_the_vision_model_exempts_every_position_parameter():
    from goatbench.models.vit import GoatViT

    options = dict(img_size=12, patch_size=2, in_chans=1, num_classes=10, embed_dim=64, depth=2, num_heads=2)
    net = GoatViT("goat", {"num_frequencies": 3, "min_period": 3.0}, **options)
    decayed, plain = parameter_groups(net, DECAY)
    prior = {name for name in dict(net.named_parameters()) if ".scheme." in name}
    assert prior and prior <= names(net, plain)
    assert "blocks.0.attn.proj.weight" in names(net, decayed)


def test_schedule_is_linear_then_cosine():
    recipe = TrainingSpec(epochs=1, batch_size=1, default_learning_rate=1, warmup_fraction=0.2, min_learning_rate_ratio=0.1)
    optimizer = make_optimizer(nn.Linear(2, 2), recipe, 3.0)
    schedule = make_schedule(optimizer, recipe, total_steps=20)
    rates = []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:4] == pytest.approx([0.75, 1.5, 2.25, 3.0])
    assert rates[4:] == pytest.approx([0.3 + 2.7 * math.cos(math.pi * t / 32) ** 2 for t in range(16)])  # (1 + cos x) / 2 = cos^2(x / 2)


def test_schedule_without_warmup_begins_at_the_peak():
    recipe = TrainingSpec(epochs=1, batch_size=1, default_learning_rate=1, warmup_fraction=0.0, min_learning_rate_ratio=0.0)
    optimizer = make_optimizer(nn.Linear(2, 2), recipe, 1.0)
    schedule = make_schedule(optimizer, recipe, total_steps=1)
    assert schedule.get_last_lr() == [1.0, 1.0]
