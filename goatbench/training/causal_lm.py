"""The LightningModule that trains a causal language model, of bases or of bytes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.packing import packed
from ..metrics.likelihood import TokenLikelihood, token_nll
from ..spec import TrainingSpec
from . import ranks
from .module import TrainingModule
from .targets import read_and_targets

Batch = tuple[Tensor, ...]  # tokens [B, L + 1] or [B, 2, L] int64 (read_and_targets), window ids [B], and what else evaluation needs


class CausalLM(TrainingModule):
    """Trains `net` (tokens [B, L] -> logits [B, L, V]) to predict tokens[:, 1:] from tokens[:, :-1], or the targets that come along.

    The loss is the mean over the targets below num_scored of the batches of all ranks: a rank's part of it, times the number of ranks, as
    gradients are averaged over them. A batch without any has loss 0 and gradient 0.
    document_start: the token before each document, where a window may hold several of which none is to see another ('documents'
    packing); None: a window is one stream.
    last: only the last so many targets of each window count (an answer), in training and validation; None: all.
    After each validation, `validation_nll` is the mean over all validation targets of all ranks, in nats.
    """

    selection_direction = "min"
    selected_on = "validation NLL"

    def __init__(
        self,
        net: nn.Module,
        training: TrainingSpec,
        learning_rate: float,
        total_steps: int,
        num_scored: int,
        last: int | None = None,
        document_start: int | None = None,
    ) -> None:
        super().__init__(net, training, learning_rate, total_steps)
        if training.loss != "cross_entropy":
            raise ValueError(f"training.loss = {training.loss}: a language model is trained with cross_entropy")
        self.num_scored, self.last, self.document_start = num_scored, last, document_start
        self.likelihood = TokenLikelihood(num_scored)
        self.validation_nll = float("nan")

    @property
    def selection_value(self) -> float:
        return self.validation_nll

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        logits, targets = self._predictions(batch[0])
        nll, is_scored = token_nll(logits, targets, self.num_scored)
        loss = ranks.world_size() * nll.sum() / ranks.total(is_scored.sum()).clamp_min(1)
        self.check_finite(loss.detach())
        return loss

    def _predictions(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """logits [B, K, V] and targets [B, K] of all positions, or of the last ones."""
        inputs, targets = read_and_targets(tokens)
        where = () if self.document_start is None else packed(inputs == self.document_start)
        if self.last is None:
            return self.net(inputs, *where), targets
        return self.net.head(self._hidden(inputs, *where)[:, -self.last :]), targets[:, -self.last :]

    def _hidden(self, *inputs: Any) -> Tensor:
        return self.net.hidden(*inputs)

    def compile_net(self) -> None:
        if self.last is None:
            return super().compile_net()
        self._hidden = torch.compile(self._hidden)  # the net as a whole is never called

    def on_validation_epoch_start(self) -> None:
        self.likelihood.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        ids = batch[1]
        logits, targets = self._predictions(batch[0])
        if not torch.isfinite(logits).all():
            raise FloatingPointError(
                f"a validation logit is not finite in epoch {self.current_epoch + 1}, in the batch of window {int(ids[0])}"
            )
        self.likelihood.update(logits, targets)

    def on_validation_epoch_end(self) -> None:
        self.validation_nll = float(self.likelihood.compute())  # gathers over the ranks
        if math.isnan(self.validation_nll):
            raise ValueError(f"the validation windows hold no scored target (a token below {self.num_scored})")
