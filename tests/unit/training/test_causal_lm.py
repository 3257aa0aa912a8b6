"""The loss and the validation of a causal language model against their definitions, and one training through Lightning."""

from __future__ import annotations

import math
from itertools import pairwise

import lightning
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from goatbench.models import Decoder
from goatbench.spec import TrainingSpec
from goatbench.training.causal_lm import CausalLM
from goatbench.training.classifier import Classifier

RECIPE = TrainingSpec(epochs=1, batch_size=2, default_learning_rate=1e-3)
P = {0: 1 / 8, 1: 2 / 8, 2: 4 / 8, 3: 1 / 16, 4: 1 / 16}  # of every token, whatever came before


class Constant(nn.Module):
    """The same distribution P after every token."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([math.log(p) + 3 for p in P.values()]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, -1)


def make(net: nn.Module, total_steps: int = 10, recipe: TrainingSpec = RECIPE) -> CausalLM:
    return CausalLM(net, recipe, 1e-2, total_steps, num_scored=4)


def batch(*rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(rows), torch.arange(len(rows))


def test_the_loss_is_the_mean_over_scored_targets():
    """First tokens are no targets, and neither are Ns: five targets are left of eight tokens."""
    loss = make(Constant()).training_step(batch([0, 1, 2, 4], [3, 3, 0, 2]), 0)
    scored = [1, 2, 3, 0, 2]
    assert loss.item() == pytest.approx(-np.mean([math.log(P[t]) for t in scored]), rel=1e-6)


def test_of_an_answer_only_the_last_targets_are_trained():
    torch.manual_seed(0)
    net = Decoder("nope", vocab_size=5, num_scored=4, seq_len=8, embed_dim=32, depth=1, num_heads=1)
    tokens = torch.tensor([[0, 1, 2, 3, 1, 0], [3, 3, 2, 0, 1, 2]])
    loss = CausalLM(net, RECIPE, 1e-2, 10, num_scored=4, last=2).training_step((tokens, torch.arange(2)), 0)
    with torch.no_grad():
        log_p = net(tokens[:, :-1]).double().log_softmax(-1)
    by_hand = -np.mean([log_p[row, 3 + i, token].item() for row, answer in enumerate(([1, 0], [1, 2])) for i, token in enumerate(answer)])
    assert loss.item() == pytest.approx(by_hand, rel=1e-6)


def test_a_batch_without_targets_has_loss_and_gradient_zero():
    module = make(Constant())
    loss = module.training_step(batch([0, 4, 4], [1, 4, 4]), 0)
    loss.backward()
    assert loss.item() == 0 and (module.net.logits.grad == 0).all()


def test_validation_is_one_mean_over_all_targets():
    """Batches with 3, 1 and 0 targets: no mean of means, no NaN."""
    module = make(Constant())
    module.on_validation_epoch_start()
    for rows in ([[0, 1, 1, 2]], [[0, 3, 4, 4]], [[0, 4, 4, 4]]):
        module.validation_step(batch(*rows), 0)
    module.on_validation_epoch_end()
    expected = -np.mean([math.log(P[t]) for t in (1, 1, 2, 3)])
    assert module.validation_nll == pytest.approx(expected, rel=1e-6) == module.selection_value
    module.on_validation_epoch_start()  # a new epoch starts from nothing
    module.validation_step(batch([0, 2]), 0)
    module.on_validation_epoch_end()
    assert module.selection_value == pytest.approx(math.log(2), rel=1e-6)


def test_a_validation_without_targets_and_a_broken_net_are_errors():
    module = make(Constant())
    module.validation_step(batch([0, 4]), 0)
    with pytest.raises(ValueError, match="no scored target"):
        module.on_validation_epoch_end()
    with torch.no_grad():
        module.net.logits[0] = float("nan")
    with pytest.raises(FloatingPointError, match="batch of window 0"):
        module.validation_step(batch([0, 1]), 0)
    with pytest.raises(FloatingPointError, match="became nan in step 0"):
        module.training_step(batch([0, 1]), 0)
    with pytest.raises(ValueError, match="trained with cross_entropy"):
        make(Constant(), recipe=RECIPE.model_copy(update={"loss": "binary_cross_entropy"}))


def test_what_selects_an_epoch():
    assert (CausalLM.selection_direction, Classifier.selection_direction) == ("min", "max")


class Watch(lightning.Callback):
    def __init__(self) -> None:
        self.nll: list[float] = []
        self.rates: list[float] = []

    def on_validation_end(self, trainer, module) -> None:
        self.nll.append(module.selection_value)

    def on_train_batch_start(self, trainer, module, *_) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def test_validation_sums_stay_in_float64_when_the_module_is_cast():
    module = make(Constant()).to(torch.bfloat16)
    assert module.net.logits.dtype == torch.bfloat16
    for _ in range(300):  # bfloat16 cannot count to 300
        module.validation_step(batch([0, 2]), 0)
    module.on_validation_epoch_end()
    assert module.validation_nll == pytest.approx(math.log(2), rel=5e-2) and int(module.likelihood.count) == 300


def test_training_learns_a_rule_that_only_attention_can_see():
    """Period 5: the token 5 places back comes again. A model that attends gets far below the entropy of one token, ln 4."""
    torch.manual_seed(0)
    patterns = torch.randint(4, (256, 5))
    tokens = patterns.repeat(1, 7)[:, :33]
    loader = DataLoader(TensorDataset(tokens, torch.arange(256)), batch_size=16)
    recipe = TrainingSpec(epochs=6, batch_size=16, default_learning_rate=1e-2)
    net = Decoder("rope", vocab_size=5, num_scored=4, seq_len=32, embed_dim=32, depth=2, num_heads=2)
    module, watch = make(net, 16 * 6, recipe), Watch()
    trainer = lightning.Trainer(
        max_epochs=6, accelerator="cpu", callbacks=[watch], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, loader, loader)
    assert len(watch.nll) == 7  # the sanity check is one
    assert watch.nll[0] == pytest.approx(math.log(4), abs=0.05) and watch.nll[-1] < 0.6
    assert max(watch.rates) == pytest.approx(1e-2) and all(b > a for a, b in pairwise(watch.rates[:10]))
