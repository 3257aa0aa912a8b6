"""Where attention goes: mass on the first token and on the latest keys, entropy, distance, largest probability, per layer and head.

Worked out from the logits that the model really uses (content, prior, mask, sink) in blocks of queries, so that memory is linear in
the length (but for contextual positions, whose model itself writes its logits out). L layers, B batch, H query heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..attention.inner.softmax import Softmax
from ..attention.kernels.problem import Problem, Wrapped
from ..attention.kernels.reference import dense_logits
from ..attention.log_prior import Bias, LogPrior
from ..attention.mask import BoundMask
from ..attention.positions import Line, Positions, Scattered

if TYPE_CHECKING:
    from ..models.backbone import Backbone

BLOCK_LOGITS = 2**22  # logits that exist at once


@dataclass(frozen=True, slots=True)
class AttentionStats:
    """Means over batch and queries, each [L, H] float64. Rows in which a number is trivial are left out of its mean.

    first_mass:  probability of the first token of the sequence (rows with at least 2 visible keys, as are the next two).
    max_mass:    largest probability of a key.
    entropy_nats, entropy_share: of the distribution over keys given that it is not the learned sink, and the same over ln(visible keys).
    recent_mass: probability of the `recent` latest visible keys, the query included (rows with more visible keys; NaN without any).
    sink_mass:   probability of the learned sink (all rows; 0 where there is none). Masses and sink add up to 1.
    distance, distance_share: mean distance to a key (Euclidean, in tokens or patches, of what is not in the sink), and the same over that
                 of the farthest visible key. Queries and keys without a coordinate (prefix tokens) are left out.
    largest_norm: [L], the largest Euclidean norm of a token in what each block hands on.
    num_rows, num_recent_rows: queries a head in the means over rows with at least 2, and with more than `recent` visible keys.
    """

    recent: int
    first_mass: Tensor
    max_mass: Tensor
    entropy_nats: Tensor
    entropy_share: Tensor
    recent_mass: Tensor
    sink_mass: Tensor
    distance: Tensor
    distance_share: Tensor
    largest_norm: Tensor
    num_rows: int
    num_recent_rows: int


def attention_stats(net: Backbone, tokens: Tensor, recent: int = 128) -> AttentionStats:
    """Of one forward pass of tokens [B, K] (of images in a ViT). In float32, or in float64 for a float64 net.

    ValueError for an inner attention whose rows are not one softmax each (differential, multi-token).
    """
    if recent < 1:
        raise ValueError(f"recent = {recent}: at least 1 key")
    require_softmax(net)
    layers = net.attention_layers
    watching = [_Watching(layer.kernel, recent) for layer in layers]
    norms: list[Tensor] = []
    note = lambda block, inputs, out: norms.append(torch.linalg.vector_norm(out.double(), dim=-1).amax())
    hooks = [block.register_forward_hook(note) for block in net.blocks]
    was_training = net.training
    net.eval()
    try:
        for layer, kernel in zip(layers, watching, strict=True):
            layer.kernel = kernel
        with torch.inference_mode():
            net(tokens)
    finally:
        net.train(was_training)
        for layer, kernel, hook in zip(layers, watching, hooks, strict=True):
            layer.kernel = kernel.kernel
            hook.remove()
    return _means([kernel.sums for kernel in watching], torch.stack(norms).cpu(), recent)


def require_softmax(net: Backbone) -> None:
    """ValueError, with the name of the inner attention, unless each row of every layer is one softmax over the keys (and a sink)."""
    for layer in net.attention_layers:
        if not isinstance(layer.inner, Softmax):
            raise ValueError(f"{type(layer.inner).__name__} has no rows of probabilities that one softmax makes: no attention statistics")


@dataclass(slots=True)
class _Watching(Wrapped):
    """Adds up what `attention_stats` reports of one layer."""

    recent: int
    sums: _Sums | None = None

    def __call__(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        assert self.sums is None, "one call of a layer's kernel a forward pass"
        is_written_out = bool(problem.prior.biases)  # a kernel holds elementwise biases for all the queries that it is given
        done = []
        for part in query_blocks(problem, BLOCK_LOGITS):
            sums = _sums(part, self.recent)
            self.sums = sums if self.sums is None else _Sums(self.sums.heads + sums.heads, self.sums.rows + sums.rows)
            if is_written_out:
                done.append(self.kernel(part))
        if not is_written_out:
            return self.kernel(problem)
        outs, lses = zip(*done, strict=True)
        return torch.cat(outs, dim=2), None if lses[0] is None else torch.cat(lses, dim=2)


@dataclass(frozen=True, slots=True)
class _Sums:
    """heads: [8, H] float64 sums, in the order of `_sums`; rows: [4] summed rows: of 2 keys, of recent, all, of 2 keys with a place."""

    heads: Tensor
    rows: Tensor


def _sums(problem: Problem, recent: int) -> _Sums:
    logits = dense_logits(problem, torch.promote_types(problem.q.dtype, torch.float32))  # [B, H, Q, K]
    allowed = problem.mask.dense().expand(logits.shape[0], 1, *logits.shape[2:])
    lse = logits.logsumexp(-1)
    sink = problem.prior.sink
    whole = lse if sink is None else torch.logaddexp(lse, sink.to(lse.dtype)[:, None])
    visible = allowed.sum(-1).to(logits.dtype)  # [B, 1, Q]
    share = torch.exp(lse - whole)  # of the keys
    probabilities = torch.exp(logits - lse[..., None])  # given that it is not the sink
    entropy = torch.special.entr(probabilities).sum(-1)
    # keys from the latest visible one backwards: the cumulative count of allowed keys from the end
    is_recent = allowed & (allowed.flip(-1).cumsum(-1).flip(-1) <= recent)
    is_first = problem.mask.key_positions.order.eq(0)[:, None, None, :]
    choice, long = visible >= 2, visible > recent
    placed = choice & ~problem.mask.query_positions.is_prefix[:, None]
    distance, farthest = _distances(problem.mask, allowed, probabilities)
    columns = (
        (share * (probabilities * is_first).sum(-1), choice),
        (share * probabilities.amax(-1), choice),
        (entropy, choice),
        (entropy / visible.clamp_min(2).log(), choice),
        (share * (probabilities * is_recent).sum(-1), long),
        (1 - share, visible >= 1),
        (distance, placed),
        (distance / farthest, placed),
    )
    heads = torch.stack([torch.where(rows, value.double(), 0.0).sum((0, 2)) for value, rows in columns])
    return _Sums(heads, torch.stack([choice.sum(), long.sum(), (visible >= 1).sum(), placed.sum()]))


def _distances(mask: BoundMask, allowed: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """[B, H, Q] mean distance to a key under the probabilities, and [B|1, 1, Q] to the farthest visible one, at least 1."""
    queries, keys = mask.query_positions, mask.key_positions
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(queries.coords, keys.coords, compute_mode=exact)[:, None].to(probabilities.dtype)  # [B|1, 1, Q, K]
    has_place = ~keys.is_prefix[:, None, None, :]
    weights = probabilities * has_place
    mean = (weights * distances).sum(-1) / weights.sum(-1).clamp_min(torch.finfo(weights.dtype).tiny)
    return mean, (distances * (allowed & has_place)).amax(-1).clamp_min(1)


def _means(layers: list[_Sums], norms: Tensor, recent: int) -> AttentionStats:
    heads = torch.stack([layer.heads for layer in layers], dim=1).cpu()  # [8, L, H]
    choice, long, rows, placed = (int(n) for n in layers[0].rows)
    counts = torch.tensor([choice, choice, choice, choice, long, rows, placed, placed], dtype=torch.float64)
    first, largest, entropy, share, latest, sink, distance, reach = heads / counts[:, None, None]
    return AttentionStats(recent, first, largest, entropy, share, latest, sink, distance, reach, norms, choice, long)


def query_blocks(problem: Problem, max_logits: int) -> Iterator[Problem]:
    """The same problem in runs of queries with at most max_logits logits (B * H * Q * K) each, or one query."""
    batch, num_heads, num_queries, _ = problem.q.shape
    assert problem.mask.mask.segment is None, "documents count queries from the end"
    size = max(1, max_logits // (batch * num_heads * problem.k.shape[2]))
    for start in range(0, num_queries, size):
        part = slice(start, min(start + size, num_queries))
        mask = BoundMask(problem.mask.mask, take_positions(problem.mask.query_positions, part), problem.mask.key_positions)
        yield replace(problem, q=problem.q[:, :, part], prior=_take_prior(problem.prior, part), mask=mask)


def take_positions(positions: Positions, part: slice) -> Positions:
    length = part.stop - part.start
    layout = positions.layout
    layout = Line(layout.offset + part.start, length) if isinstance(layout, Line) else Scattered(length)
    return Positions(layout, positions.order[:, part], positions.coords[:, part], positions.is_prefix[:, part])


def _take_prior(prior: LogPrior, part: slice) -> LogPrior:
    cut = lambda t: None if t is None else t[:, :, part]
    biases = tuple(_shifted(bias, part.start) for bias in prior.biases)
    return replace(prior, q_lanes=cut(prior.q_lanes), row_lanes=cut(prior.row_lanes), q_term=cut(prior.q_term), biases=biases)


def _shifted(bias: Bias, start: int) -> Bias:
    return lambda batch, head, query, key: bias(batch, head, query + start, key)
