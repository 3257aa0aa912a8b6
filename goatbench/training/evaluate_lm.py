"""Exact evaluation of a causal model under ONE condition (one context length): each window once, counted, on any number of processes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from ..metrics.likelihood import LikelihoodResult, token_nll
from . import memory, ranks
from .ranks import EvaluationError

Batches = Iterable[tuple[Tensor, ...]]  # tokens [B, L + 1], ids [B] int64, and where there is a mask: [B, L] bool of the targets
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
    device = torch.device(device)
    shard = _Shard(net, device, num_scored, last, autocast_dtype, progress_label, math.ceil(num_windows / ranks.world_size()))
    error: Exception | None = None
    was_training = net.training
    net.to(device).eval()
    memory.start(device)
    try:
        shard.run(batches)
    except Exception as failure:  # kept until all ranks know of it: none may wait in a gather for one that has left
        error = failure
    finally:
        net.train(was_training)
    error = ranks.first_error(error, device)
    if error is not None:
        raise error
    return _summary(shard, num_windows)


@dataclass
class _Shard:
    """One rank's windows, and the sums over them."""

    net: nn.Module
    device: torch.device
    num_scored: int
    last: int | None
    autocast_dtype: torch.dtype | None
    progress_label: str | None
    expected: int
    batch_limit: int | None = None  # None: the loader's own batches

    # set anew by each pass
    context: int = 0
    has_mask: bool = False
    windows: list[Tensor] = field(default_factory=list)  # [b, 9] float64 on the CPU: see _all_windows
    positions: Tensor | None = None  # [3, scored positions] float64: nll, count, correct
    timings: list[tuple[int, float]] = field(default_factory=list)  # windows, seconds of each forward pass

    def run(self, batches: Batches) -> None:
        while not self._complete(batches):
            torch.cuda.empty_cache()  # here, where the failed batch's tensors are no longer held by its exception

    def _complete(self, batches: Batches) -> bool:
        """One pass from the first window; False if memory ran out and batch_limit was halved."""
        self.context, self.has_mask, self.windows, self.positions, self.timings = 0, False, [], None, []
        with self._bar() as bar, torch.inference_mode():
            for batch in batches:
                self._check_length(batch[0], batch[1])
                size = len(batch[1])
                step = max(1, min(size, self.batch_limit or size))
                for start in range(0, size, step):
                    try:
                        self._batch(*(part[start : start + step] for part in batch))
                    except RuntimeError as error:
                        if not memory.is_out_of_memory(error) or step == 1:
                            raise
                        self.batch_limit = step // 2
                        return False
                if bar is not None:
                    bar.advance(size)
        return True

    def _bar(self) -> AbstractContextManager:
        if self.progress_label is None or ranks.rank() > 0:
            return nullcontext()
        from ..progress import Progress

        return Progress(self.progress_label, total=self.expected, unit="window")

    def _check_length(self, tokens: Tensor, ids: Tensor) -> None:
        context = tokens.shape[1] - 1
        if self.context not in (0, context):
            raise EvaluationError(f"two window lengths in one evaluation: contexts {self.context} and {context}, from window {int(ids[0])}")
        if context < 1 or (self.last is not None and not 1 <= self.last <= context):
            raise ValueError(f"last = {self.last} targets of windows with {context} input tokens: allowed are 1 to {context}")
        self.context = context

    def _batch(self, tokens: Tensor, ids: Tensor, mask: Tensor | None = None) -> None:
        tokens = tokens.to(self.device, torch.int64, non_blocking=True)
        num_positions = self.last or self.context
        targets = tokens[:, 1:][:, -num_positions:]
        self._synchronize()
        begin = time.perf_counter()
        autocast = nullcontext() if self.autocast_dtype is None else torch.autocast(self.device.type, self.autocast_dtype)
        with autocast:
            hidden = self.net.hidden(tokens[:, :-1])[:, -num_positions:]
            nll, is_scored, predictions, unscored_mass = self._score(hidden, targets)
        self._synchronize()
        self.timings.append((len(ids), time.perf_counter() - begin))
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

    def _score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def throughput(self) -> tuple[int, float]:
        """Windows and seconds of the forward passes, without the first (warm-up) where there are others."""
        timed = self.timings[1:] or self.timings
        return sum(windows for windows, _ in timed), sum(seconds for _, seconds in timed)


def _summary(shard: _Shard, num_windows: int) -> LikelihoodResult:
    device = shard.device
    rows = _all_windows(shard, num_windows)
    windows, seconds = shard.throughput()
    peak = memory.peak(device)
    batch_size = max((count for count, _ in shard.timings), default=num_windows)
    facts = [[windows, peak.num_bytes, batch_size, shard.context, int(shard.has_mask)]]
    facts = ranks.gather(torch.tensor(facts, device=device)).cpu().numpy()
    slowest = float(ranks.gather(torch.tensor([seconds], dtype=torch.float64, device=device)).max())
    contexts = np.unique(facts[facts[:, 3] > 0, 3])
    if len(contexts) > 1:
        raise EvaluationError(f"the ranks were given windows of different contexts: {contexts.tolist()}")
    context = int(contexts[0])
    num_positions = shard.last or context
    own = shard.positions if shard.positions is not None else torch.zeros(3, num_positions, dtype=torch.float64, device=device)
    position_nll, position_count, position_correct = ranks.gather(own[None]).sum(0).cpu().numpy()
    has_mask = bool(facts[:, 4].any())
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
        tokens_per_second=int(facts[:, 0].sum()) * context / slowest,
        tokens_per_second_method="wall_time of forward passes after the first, slowest rank",
        peak_memory_bytes=int(facts[:, 1].max()),
        peak_memory_method=peak.method,
        batch_size=int(facts[:, 2].min()),
    )


def _all_windows(shard: _Shard, num_windows: int) -> np.ndarray:
    """The rows of all ranks, [num_windows, 9] by ascending id: id, nll, scored, correct, unscored mass, of masked targets the nll, number
    and number correct, last prediction."""
    own = torch.cat(shard.windows) if shard.windows else torch.zeros(0, 9, dtype=torch.float64)
    rows = ranks.gather(own.to(shard.device)).cpu().numpy()
    num_distinct = len(np.unique(rows[:, 0]))
    if len(rows) != num_windows or num_distinct != num_windows:
        raise EvaluationError(f"{len(rows)} windows evaluated, {num_distinct} distinct: each of the {num_windows} must be counted once")
    if rows[:, 2].sum() == 0:
        raise EvaluationError(f"none of the targets of {num_windows} windows is scored: all lie outside 0 .. {shard.num_scored - 1}")
    return rows[rows[:, 0].argsort()]
