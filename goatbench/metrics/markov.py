"""Order-k Markov models of DNA: the rows that a neural model must beat before its NLL says anything.

Codes are uint8; `codes & 7` is 0..3 for A C G T and 4 for N. A base is predicted from the k bases before it. N breaks the history: no
context that contains N is used, N is never predicted. n positions or rows, L targets a window, P prompt bases. Contexts are integers as in
`markov_counts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .markov_counts import Codes, MarkovCounts, histories, pieces

PSEUDO_COUNTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0)
WEIGHTS = (16.0, 32.0, 64.0, 128.0, 256.0)
SCORE_CHUNK = 2**18  # positions: the [n, 4] float64 temporaries stay near the cache


class MarkovModel(Protocol):
    """What scoring and sampling need: the longest history read, and p(next base | history)."""

    max_order: int

    def distribution(self, context: NDArray[np.int32], depth: NDArray[np.int32]) -> NDArray[np.float64]:
        """[n, 4] probabilities of A C G T, from contexts [n] of which the last `depth` [n] bases exist."""
        ...


Model = TypeVar("Model", bound=MarkovModel)


@dataclass(frozen=True)
class FixedOrder:
    """p(base | k bases before) = (count + pseudo) / (total + 4 pseudo); a history shorter than k uses the order it has."""

    counts: MarkovCounts
    order: int
    pseudo: float

    def __post_init__(self) -> None:
        if not 0 <= self.order <= self.counts.max_order:
            raise ValueError(f"order={self.order}: these counts hold the orders 0 to {self.counts.max_order}")
        if not self.pseudo > 0:
            raise ValueError(f"pseudo={self.pseudo}: a pseudo-count is above 0, else an unseen base has probability 0")

    @property
    def max_order(self) -> int:
        return self.order

    def distribution(self, context: NDArray[np.int32], depth: NDArray[np.int32]) -> NDArray[np.float64]:
        used = np.minimum(depth, self.order)
        rows = np.take(self.counts.tables[self.order], context % 4**self.order, axis=0)
        for order in np.unique(used[used < self.order]):
            here = used == order
            rows[here] = self.counts.tables[order][context[here] % 4 ** int(order)]
        return (rows + self.pseudo) / (rows.sum(axis=1, keepdims=True, dtype=np.float64) + 4 * self.pseudo)


@dataclass(frozen=True)
class Interpolated:
    """p_k = (count_k + weight p_(k-1)) / (total_k + weight), from the uniform p_(-1) up to the order that the history allows."""

    counts: MarkovCounts
    weight: float

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"weight={self.weight}: a weight is above 0, else an unseen context has no distribution")

    @property
    def max_order(self) -> int:
        return self.counts.max_order

    def distribution(self, context: NDArray[np.int32], depth: NDArray[np.int32]) -> NDArray[np.float64]:
        p = np.full((len(context), 4), 0.25)
        for order, table in enumerate(self.counts.tables):
            rows = np.take(table, context % 4**order, axis=0)
            total = rows.sum(axis=1, keepdims=True, dtype=np.float64)
            longer = (rows + self.weight * p) / (total + self.weight)
            p = longer if (depth >= order).all() else np.where((depth >= order)[:, None], longer, p)
        return p


def nll(model: MarkovModel, stretch: Codes) -> NDArray[np.float64]:
    """[n] nats per base of a stretch [n], the first base from order 0; NaN at N."""
    parts = [_nll(model, codes)[skip:] for codes, skip in pieces(stretch, model.max_order, SCORE_CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0)


def window_nll(model: MarkovModel, windows: Codes) -> NDArray[np.float64]:
    """[n, L] nats per target of windows [n, L + 1], with no context from outside the window; NaN where the target is N."""
    return _by_rows(lambda rows: _nll(model, rows)[:, 1:], windows)


def window_correct(model: MarkovModel, windows: Codes) -> NDArray[np.bool_]:
    """[n, L]: is the target of windows [n, L + 1] the most probable base (of equals the first)? False where it is N."""

    def correct(rows: Codes) -> NDArray[np.bool_]:
        context, depth = (part[:, 1:].ravel() for part in histories(rows, model.max_order))
        best = model.distribution(context, depth).argmax(axis=1).reshape(len(rows), -1)
        return best == (rows[:, 1:] & 7)

    return _by_rows(correct, windows)


def expected_gc(model: MarkovModel, windows: Codes) -> NDArray[np.float64]:
    """[n, L] p(C) + p(G) at each target of windows [n, L + 1], given the true bases before it; 0..1, defined at N too."""

    def gc(rows: Codes) -> NDArray[np.float64]:
        context, depth = (part[:, 1:].ravel() for part in histories(rows, model.max_order))
        p = model.distribution(context, depth)
        return (p[:, 1] + p[:, 2]).reshape(len(rows), -1)

    return _by_rows(gc, windows)


def probabilities(model: MarkovModel, prompts: Codes) -> NDArray[np.float64]:
    """[n, 4] probabilities of A C G T directly after each prompt of [n, P]; P may be 0."""
    return model.distribution(*_after(prompts, model.max_order))


def sample(model: MarkovModel, prompts: Codes, num_tokens: int, rng: np.random.Generator) -> Codes:
    """[n, num_tokens] uint8 codes 0..3 drawn after each prompt of [n, P], one base at a time for all prompts together."""
    context, depth = _after(prompts, model.max_order)
    drawn = np.empty((len(prompts), num_tokens), np.uint8)
    for step in range(num_tokens):
        p = model.distribution(context, depth)
        base = (rng.random((len(prompts), 1)) >= p.cumsum(axis=1)[:, :3]).sum(axis=1)  # the first three: rounding cannot give a fifth
        drawn[:, step] = base
        context = (context * 4 + base.astype(np.int32)) % 4**model.max_order
        depth = np.minimum(depth + 1, model.max_order)
    return drawn


def choose_pseudo(counts: MarkovCounts, order: int, validation: Sequence[Codes], grid: Sequence[float] = PSEUDO_COUNTS) -> FixedOrder:
    """The fixed-order model whose pseudo-count has the lowest NLL on the validation stretches; the first of equals."""
    return _best([FixedOrder(counts, order, pseudo) for pseudo in grid], validation)


def choose_weight(counts: MarkovCounts, validation: Sequence[Codes], grid: Sequence[float] = WEIGHTS) -> Interpolated:
    """The interpolated model whose weight has the lowest NLL on the validation stretches; the first of equals."""
    return _best([Interpolated(counts, weight) for weight in grid], validation)


def _best(models: Sequence[Model], validation: Sequence[Codes]) -> Model:
    if not any(((stretch & 7) < 4).any() for stretch in validation):
        raise ValueError("the validation stretches hold no base to score: a Markov model's smoothing is chosen on real bases")
    return min(models, key=lambda model: sum(float(np.nansum(nll(model, stretch))) for stretch in validation))


def _nll(model: MarkovModel, codes: Codes) -> NDArray[np.float64]:
    context, depth = histories(codes, model.max_order)
    base = (codes & 7).ravel()
    p = model.distribution(context.ravel(), depth.ravel())
    target = p[np.arange(len(base)), np.minimum(base, 3)]
    return np.where(base > 3, np.nan, -np.log(target)).reshape(codes.shape)


def _by_rows(score: Callable[[Codes], NDArray[np.float64]], windows: Codes) -> NDArray[np.float64]:
    if windows.ndim != 2 or windows.shape[1] < 2:
        raise ValueError(f"windows have shape [n, L + 1] with L at least 1, these have {windows.shape}")
    step = max(1, SCORE_CHUNK // windows.shape[1])
    parts = [score(windows[start : start + step]) for start in range(0, len(windows), step)]
    return np.concatenate(parts) if parts else np.zeros((0, windows.shape[1] - 1))


def _after(prompts: Codes, max_order: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The context and depth of the base that would follow each prompt: append any clean base and look at its history."""
    if prompts.ndim != 2:
        raise ValueError(f"prompts have shape [n, P], these have {prompts.shape}")
    near = prompts[:, max(0, prompts.shape[1] - max_order) :]
    longer = np.concatenate([near, np.zeros((len(near), 1), np.uint8)], axis=1)
    context, depth = histories(longer, max_order)
    return context[:, -1], depth[:, -1]
