"""Training through Lightning: which epoch is kept, reproducibility, what stops it, and what it leaves behind."""

from __future__ import annotations

import math
import signal
import time

import pytest
import torch
from torch import nn

from goatbench.spec import TrainerSpec
from goatbench.training.checkpoint import load_checkpoint, read_checkpoint
from goatbench.training.classifier import Classifier
from goatbench.training.fit import TimeLimitError, fit


@pytest.fixture
def train(tmp_path, recipe, augmentation, made_up_data):
    """train(net, ...) -> (module, result); 4 steps an epoch unless the arguments say otherwise."""

    def run(net, *, epochs=2, data=None, spec=None, steps=None, seed=0, kind=Classifier, meta=None):
        module = kind(net, recipe, augmentation, 1e-2, steps or 4 * epochs, 4)
        spec = spec or TrainerSpec()
        return module, fit(module, data or made_up_data(), spec, epochs, tmp_path / "best.ckpt", False, seed=seed, meta=meta)

    return run


class Scripted(Classifier):
    """Plays a given validation curve, and remembers the weights of each epoch."""

    curve: tuple[float, ...] = ()

    def on_validation_epoch_end(self) -> None:
        self.history = [*getattr(self, "history", []), self.net[1].weight.detach().clone()]
        self.validation_top1 = self.curve[len(self.history) - 1]


@pytest.mark.parametrize(("curve", "best"), [((0.1, 0.7, 0.3), 2), ((0.9, 0.2, 0.5), 1), ((0.1, 0.2, 0.3), 3), ((0.2, 0.6, 0.6), 2)])
def test_the_best_epoch_is_kept_and_of_equals_the_earliest(train, tmp_path, net, new_net, curve, best):
    module, result = train(net, epochs=3, kind=type("Curve", (Scripted,), {"curve": curve}), meta={"training_hash": "ab"})
    assert (result.selected_epoch, result.selected_value, result.validation_values) == (best, curve[best - 1], list(curve))
    assert not torch.equal(module.history[0], module.history[1])
    other = new_net()
    meta = load_checkpoint(tmp_path / "best.ckpt", other)
    for weights in (net[1].weight, other[1].weight):
        assert torch.equal(weights, module.history[best - 1])
    assert meta["training_hash"] == "ab" and meta["fit"]["selected_epoch"] == best


def test_result_counts_steps_and_samples_and_validation_sees_every_image(train, net, made_up_loader):
    _, result = train(net)
    assert (result.steps, result.samples) == (8, 128)
    hits = sum(int(net.eval()(image[None]).argmax()) == int(label) for image, label, _ in made_up_loader(21, 8).dataset)
    assert result.selected_value == pytest.approx(hits / 21, rel=1e-6)
    assert result.train_cpu_seconds > 0 and result.train_wall_seconds > 0 and result.peak_memory_method == "rss_since_start"


def test_accumulation_steps_once_for_two_batches(train, net):
    _, result = train(net, spec=TrainerSpec(accumulate=2), steps=4)
    assert (result.steps, result.samples) == (4, 128)


def test_equals_a_plain_loop(train, net, new_net, recipe, made_up_data):
    """AdamW, clipping, schedule and order as written down here, without Lightning; no dropout, so that no draw matters."""
    net[3], reference = nn.Identity(), new_net()
    reference[3] = nn.Identity()
    train(net, epochs=1)
    groups = [
        {"params": [reference[1].weight, reference[4].weight], "weight_decay": recipe.weight_decay},
        {"params": [reference[1].bias, reference[4].bias], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=recipe.betas, foreach=False)
    rates = [0.01 * (0.01 + 0.99 * math.cos(math.pi * t / 8) ** 2) for t in range(4)]  # 10% of 4 steps rounds to no warm-up
    for rate, (images, labels, _) in zip(rates, made_up_data().train_dataloader(), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        nn.functional.cross_entropy(reference(images), labels).backward()
        norm = torch.sqrt(sum(p.grad.square().sum() for p in reference.parameters()))
        for p in reference.parameters():
            p.grad *= min(1.0, recipe.clip_norm / float(norm))
        optimizer.step()
    for (name, mine), theirs in zip(net.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6, msg=name)


def test_same_seed_same_bits_for_any_worker_count(train, new_net, made_up_data):
    """Dropout draws depend on the seed alone: neither workers nor numbers drawn before move them."""
    nets = [new_net() for _ in range(4)]
    train(nets[0])
    torch.randn(7)
    train(nets[1], data=made_up_data(num_workers=2))
    train(nets[2])
    train(nets[3], seed=1)
    same = [torch.equal(nets[0][1].weight, net[1].weight) for net in nets]
    assert same == [True, True, True, False]


def test_a_net_that_was_evaluated_before_is_trained_with_its_dropout(train, new_net):
    nets = [new_net(), new_net().eval(), new_net()]
    nets[2][3] = nn.Identity()
    for net in nets:
        train(net)
    same = [torch.equal(nets[0][1].weight, net[1].weight) for net in nets]
    assert same == [True, True, False]


class Broken(nn.Module):
    """Its logits become `value` in the forward pass number `at` of training."""

    def __init__(self, net: nn.Module, at: int, value: float) -> None:
        super().__init__()
        self.net, self.at, self.value, self.calls = net, at, value, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        return self.net(images) * (self.value if self.training and self.calls == self.at else 1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_with_its_step(train, tmp_path, net, value):
    with pytest.raises(FloatingPointError, match="in step 5"):
        train(Broken(net, 6, value))
    assert not (tmp_path / "best.ckpt").exists()


def test_time_limit_saves_nothing(train, tmp_path, net):
    class Slow(Classifier):
        def training_step(self, batch, batch_idx):
            time.sleep(0.05)
            return super().training_step(batch, batch_idx)

    with pytest.raises(TimeLimitError, match=r"time limit of 0\.001 minutes after \d steps"):
        train(net, kind=Slow, spec=TrainerSpec(time_limit_minutes=0.001))
    assert not (tmp_path / "best.ckpt").exists()


def test_an_interrupt_stays_one(train, tmp_path, net):
    class Interrupted(Classifier):
        def training_step(self, batch, batch_idx):
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(net, kind=Interrupted)
    assert signal.getsignal(signal.SIGINT) is before and not (tmp_path / "best.ckpt").exists()


def test_a_schedule_for_another_number_of_steps_is_refused(train, net):
    with pytest.raises(ValueError, match="made for 9 steps, but the data give 8"):
        train(net, steps=9)


def test_nothing_is_left_behind(train, net, recwarn, capfd):
    train(net)
    assert not torch.are_deterministic_algorithms_enabled()
    assert [str(warning.message) for warning in recwarn] == []
    assert capfd.readouterr() == ("", "")


def test_the_checkpoint_holds_the_nets_own_names(train, tmp_path, net):
    train(net, epochs=1)
    state_dict, _ = read_checkpoint(tmp_path / "best.ckpt")
    assert list(state_dict) == list(net.state_dict())
