"""Exact evaluation of a causal model under ONE condition (one context length): each window once, counted, on any number of processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ..metrics.likelihood import LikelihoodResult, token_nll
from . import ranks
from .ranks import EvaluationError
from .shard import Shard
from .targets import read_and_targets

# tokens [B, L + 1] or [B, 2, L] (read_and_targets), ids [B] int64, and where there is a mask: [B, L] bool of the targets
Batches = Iterable[tuple[Tensor, ...]]
CHUNK_LOGITS = 2**22  # logits that exist at once


def evaluate_lm(
    net: nn.Module,
    batches: Batches,
    *,
    num_scored: int,
    num_windows: int,
    device: torch.device | str,
    last: int | None = None,
    progress_label: str | None = None,
    autocast_dtype: torch.dtype | None = None,
) -> LikelihoodResult:
    """Scores every target below num_scored of every window.

    net has `hidden` (tokens [B, L] -> [B, L, C]), `head` (-> logits) and `vocab_size`. batches can be iterated again; the windows of
    one evaluation have one length. last: only the last so many targets of each window are scored, and only their logits computed:
    equal targets under different contexts. Logits exist for a chunk of positions at a time, so that memory is linear in L wherever
    the attention kernel's is.
    With torch.distributed initialised, each rank's batches are its own shard, of any size; num_windows is the size of the whole data
    set: any other count, or an id seen twice, raises EvaluationError, and so do values that are not finite.
    autocast_dtype: None computes in the net's own dtype; the loss is float32, its sums float64. Out of memory, the rank halves its
    batch and starts again.
    """
    shard = _Shard(
        net=net, device=torch.device(device), num_examples=num_windows, autocast_dtype=autocast_dtype, progress_label=progress_label,
        num_scored=num_scored, last=last,
    )  # fmt: skip
    shard.run(batches)
    return _summary(shard)


@dataclass(kw_only=True)
class _Shard(Shard):
    """One rank's windows, and the sums over them."""

    unit: ClassVar[str] = "window"

    num_scored: int
    last: int | None
    context: int = field(init=False)
    has_mask: bool = field(init=False)
    windows: list[Tensor] = field(init=False)  # [b, 9] float64 on the CPU: see _all_windows
    positions: Tensor | None = field(init=False)  # [3, scored positions] float64: nll, count, correct

    def reset(self) -> None:
        self.context, self.has_mask, self.windows, self.positions = 0, False, [], None

    def check(self, batch: tuple[Tensor, ...]) -> None:
        tokens, ids = batch[:2]
        context = read_and_targets(tokens)[0].shape[1]
        if self.context not in (0, context):
            raise EvaluationError(f"two window lengths in one evaluation: contexts {self.context} and {context}, from window {int(ids[0])}")
        if context < 1 or (self.last is not None and not 1 <= self.last <= context):
            raise ValueError(f"last = {self.last} targets of windows with {context} input tokens: allowed are 1 to {context}")
        self.context = context

    def score(self, tokens: Tensor, ids: Tensor, mask: Tensor | None = None) -> None:
        inputs, targets = read_and_targets(tokens.to(self.device, torch.int64, non_blocking=True))
        num_positions = self.last or self.context
        targets = targets[:, -num_positions:]
        with self.forward(len(ids)):
            hidden = self.net.hidden(inputs)[:, -num_positions:]
            nll, is_scored, predictions, unscored_mass = self._likelihood(hidden, targets)
        bad = ~torch.isfinite(nll).all(dim=1) | ~torch.isfinite(unscored_mass)
        if bad.any():
            first = int(ids[int(bad.cpu().nonzero()[0])])
            raise EvaluationError(f"the likelihood is not finite at context {self.context}: first in window {first}")
        nll, is_correct = nll.double(), is_scored & (predictions == targets)
        is_masked = torch.zeros_like(is_scored) if mask is None else mask[:, -num_positions:].to(self.device) & is_scored
        self.has_mask |= mask is not None
        columns = [nll.sum(1), is_scored.sum(1), is_correct.sum(1), unscored_mass, (nll * is_masked).sum(1), is_masked.sum(1)]
        columns += [(is_correct & is_masked).sum(1), self._last_prediction(predictions, is_masked)]
        self.windows.append(torch.stack([ids.double(), *(c.double().cpu() for c in columns)], dim=1))
        sums = torch.stack((nll.sum(0), is_scored.double().sum(0), is_correct.double().sum(0)))
        self.positions = sums if self.positions is None else self.positions + sums

    def _last_prediction(self, predictions: Tensor, is_masked: Tensor) -> Tensor:
        """[B]: what the model puts for the last masked target; without a mask, or one in this window, for the last target."""
        return predictions.gather(1, predictions.shape[1] - 1 - is_masked.flip(1).int().argmax(1, keepdim=True))[:, 0]

    def _likelihood(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """nll, is_scored, tokens of the highest logit [B, K], and the softmax mass on unscored tokens [B], over scored positions."""
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        mass = torch.zeros(len(targets), dtype=torch.float64, device=self.device)
        step = max(1, CHUNK_LOGITS // (len(targets) * self.net.vocab_size))
        for start in range(0, targets.shape[1], step):
            chunk = slice(start, start + step)
            logits = self.net.head(hidden[:, chunk])
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            nll, is_scored = token_nll(logits, targets[:, chunk], self.num_scored)
            rest = logits[..., self.num_scored :].logsumexp(-1) - logits.logsumexp(-1)
            mass += (rest.exp() * is_scored).double().sum(1)
            parts.append((nll, is_scored, logits.argmax(-1)))
        nll, is_scored, predictions = (torch.cat(column, dim=1) for column in zip(*parts, strict=True))
        return nll, is_scored, predictions, mass


def _summary(shard: _Shard) -> LikelihoodResult:
    device = shard.device
    rows = _all_windows(shard)
    facts = shard.gathered(shard.context, int(shard.has_mask)).numpy()
    contexts = np.unique(facts[facts[:, 0] > 0, 0])
    if len(contexts) > 1:
        raise EvaluationError(f"the ranks were given windows of different contexts: {contexts.tolist()}")
    context = int(contexts[0])
    num_positions = shard.last or context
    own = shard.positions if shard.positions is not None else torch.zeros(3, num_positions, dtype=torch.float64, device=device)
    position_nll, position_count, position_correct = ranks.gather(own[None]).sum(0).cpu().numpy()
    has_mask = bool(facts[:, 1].any())
    costs = shard.costs()
    return LikelihoodResult(
        context=context,
        first_context=context - num_positions + 1,
        window_ids=rows[:, 0].astype(np.int64),
        window_nll=rows[:, 1],
        window_count=rows[:, 2].astype(np.int64),
        window_correct=rows[:, 3].astype(np.int64),
        window_last_prediction=rows[:, 8].astype(np.int64),
        window_masked_nll=rows[:, 5] if has_mask else None,
        window_masked_count=rows[:, 6].astype(np.int64) if has_mask else None,
        window_masked_correct=rows[:, 7].astype(np.int64) if has_mask else None,
        position_nll=position_nll,
        position_count=position_count.astype(np.int64),
        position_correct=position_correct.astype(np.int64),
        masked_nll_total=float(rows[:, 5].sum()) if has_mask else None,
        masked_count=int(rows[:, 6].sum()) if has_mask else None,
        unscored_mass_total=float(rows[:, 4].sum()),
        tokens_per_second=costs.examples_per_second * context,
        tokens_per_second_method=costs.speed_method,
        peak_memory_bytes=costs.peak_memory_bytes,
        peak_memory_method=costs.peak_memory_method,
        batch_size=costs.batch_size,
    )


def _all_windows(shard: _Shard) -> np.ndarray:
    """The rows of all ranks, [num_examples, 9] by ascending id: id, nll, scored, correct, unscored mass, of masked targets the nll, number
    and number correct, last prediction."""
    own = torch.cat(shard.windows) if shard.windows else torch.zeros(0, 9, dtype=torch.float64)
    found = ranks.gather(own.to(shard.device)).cpu()
    shard.require_all(found[:, 0])
    rows = found.numpy()
    if rows[:, 2].sum() == 0:
        raise EvaluationError(f"none of the targets of {len(rows)} windows is scored: all lie outside 0 .. {shard.num_scored - 1}")
    return rows[rows[:, 0].argsort()]
