"""Where tokens are: the only thing a position mechanism is told.

B batch, K tokens, A axes (1 for text and genome, 2 for images: y, x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Line:
    """A contiguous run of a stream: tokens `offset .. offset + length - 1`."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Grid:
    """`num_prefix` prefix tokens, then height * width patches in row-major order."""

    height: int
    width: int
    num_prefix: int


@dataclass(frozen=True, slots=True)
class Scattered:
    """Positions without a regular layout (patch dropout, padded batches, evicted caches).

    reach: the largest |coordinate| on the first axis, or any bound on it; None: not known without looking at the coordinates.
    """

    length: int
    reach: int | None = None


Layout = Line | Grid | Scattered
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Positions:
    """Order, coordinates and prefix flags of K tokens; carries no parameters.

    layout:    Python data. Kernels choose their path from it, never from tensor values.
    order:     [B|1, K] int64, place in the stream; decides causality.
    coords:    [B|1, K, A] float64, in tokens or patches; integers are held exactly.
    is_prefix: [B|1, K] bool; CLS and register tokens have an order and no coordinate (their coords are 0 and must be ignored).
    known:     what `remember` was given; belongs to this object alone, so changed positions start with nothing.
    """

    layout: Layout
    order: Tensor
    coords: Tensor
    is_prefix: Tensor
    known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """make(), once per key: features of these positions that hold no parameters (phases), shared by the layers of a model.

        key: everything the features depend on besides the positions. They are ordinary tensors even when first asked for under
        inference_mode, so that training may follow; inside torch.compile nothing is kept.
        """
        if torch.compiler.is_compiling():
            return make()
        if key not in self.known:
            with torch.inference_mode(False), torch.no_grad():
                self.known[key] = make()
        return self.known[key]

    @property
    def num_tokens(self) -> int:
        return self.order.shape[-1]

    @property
    def num_axes(self) -> int:
        return self.coords.shape[-1]

    @property
    def reach(self) -> int | None:
        """No coordinate of the first axis is larger in magnitude. From the layout where it says so, else looked up, once (a device
        waits for that); None inside torch.compile, which knows no values."""
        if isinstance(self.layout, Line):
            return max(-self.layout.offset, self.layout.offset + self.layout.length - 1)
        if isinstance(self.layout, Grid):
            return self.layout.height - 1
        if self.layout.reach is not None or torch.compiler.is_compiling():
            return self.layout.reach
        return self.remember("reach", lambda: math.ceil(self.coords[..., 0].abs().max()))

    @staticmethod
    def line(length: int, offset: int = 0, device: torch.device | str | None = None) -> Positions:
        """Tokens offset .. offset + length - 1 of a one-dimensional stream."""
        order = torch.arange(offset, offset + length, device=device)[None]
        return Positions(Line(offset, length), order, order.to(torch.float64)[..., None], torch.zeros_like(order, dtype=torch.bool))

    @staticmethod
    def grid(height: int, width: int, num_prefix: int = 0, device: torch.device | str | None = None) -> Positions:
        """Prefix tokens first, then patches row by row; coords are (y, x) from 0."""
        order = torch.arange(num_prefix + height * width, device=device)[None]
        patch = (order - num_prefix).clamp_min(0)
        coords = torch.stack((patch // width, patch % width), dim=-1).to(torch.float64)
        return Positions(Grid(height, width, num_prefix), order, coords, order < num_prefix)

    @staticmethod
    def scattered(order: Tensor, coords: Tensor | None = None, is_prefix: Tensor | None = None, reach: int | None = None) -> Positions:
        """Any order [B|1, K]; coords default to the order on one axis; reach as in the layout."""
        coords = order.to(torch.float64)[..., None] if coords is None else coords.to(torch.float64)
        is_prefix = torch.zeros_like(order, dtype=torch.bool) if is_prefix is None else is_prefix
        return Positions(Scattered(order.shape[-1], reach), order, coords, is_prefix)

    def rescaled(self, factors: tuple[float, ...]) -> Positions:
        """The same tokens with coordinates multiplied axis by axis (position interpolation: factor < 1)."""
        if len(factors) != self.num_axes:
            raise ValueError(f"rescaled needs one factor per axis: {self.num_axes} axes, got {factors}")
        return replace(self, coords=self.coords * torch.tensor(factors, dtype=torch.float64, device=self.coords.device))

    def behind_prefix(self, count: int) -> Positions:
        """`count` prefix tokens, then these tokens: in order before them (and before token 0), without a coordinate."""
        first, layout = 0, Scattered(count + self.num_tokens)
        if isinstance(self.layout, Line):
            first = self.layout.offset
            layout = Line(first - count, count + self.layout.length)
        order = F.pad(self.order, (count, 0))
        order[:, :count] = torch.arange(first - count, first, device=order.device)
        return Positions(layout, order, F.pad(self.coords, (0, 0, count, 0)), F.pad(self.is_prefix, (count, 0), value=True))

    def gather(self, index: Tensor) -> Positions:
        """Positions of the tokens `index` [B, K'] (patch dropout); the layout is Scattered."""
        batch, num_kept = index.shape
        take = lambda t: t.expand(batch, -1).gather(1, index)
        coords = self.coords.expand(batch, -1, -1).gather(1, index[..., None].expand(-1, -1, self.num_axes))
        return Positions(Scattered(num_kept), take(self.order), coords, take(self.is_prefix))

    def latest(self, count: int) -> Positions:
        """The last `count` tokens; of a line, a line."""
        assert 0 < count <= self.num_tokens
        layout: Layout = Scattered(count)
        if isinstance(self.layout, Line):
            layout = Line(self.layout.offset + self.layout.length - count, count)
        return Positions(layout, self.order[:, -count:], self.coords[:, -count:], self.is_prefix[:, -count:])

    def concat(self, other: Positions) -> Positions:
        """The tokens of self, then those of other; two adjoining lines stay a line."""
        first, second = self.layout, other.layout
        if isinstance(first, Line) and isinstance(second, Line) and first.offset + first.length == second.offset:
            layout: Layout = Line(first.offset, first.length + second.length)
        else:
            layout = Scattered(self.num_tokens + other.num_tokens)
        batch = max(self.order.shape[0], other.order.shape[0])
        join = lambda a, b: torch.cat((a.expand(batch, *a.shape[1:]), b.expand(batch, *b.shape[1:])), dim=1)
        return Positions(layout, join(self.order, other.order), join(self.coords, other.coords), join(self.is_prefix, other.is_prefix))
