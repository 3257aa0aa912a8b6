"""A position mechanism: four slots, each with a null object, so that no caller ever asks which mechanism it holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from .log_prior import LogPrior
from .positions import Positions


class Role(Enum):
    """Which tensor `rotate` is given (xPos and FoPE scale the two apart)."""

    QUERY = "query"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a scheme may know of the model it serves. `train_extent` is the training length, or (height, width) in patches:
    it is given once, so that no causal mechanism ever reads the current length. embedding_std: of the token embeddings at the start."""

    num_axes: int
    causal: bool
    embed_dim: int
    depth: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    train_extent: tuple[int, ...]
    num_prefix: int = 0
    embedding_std: float = 1.0


class PositionScheme(nn.Module):
    """The null scheme: no position at all (NoPE). Mechanisms override the slots that they fill.

    num_lanes:   lanes that `prior` returns; static, known before the projections are built.
    is_relative: shifting all coordinates by one constant leaves the attention unchanged.
    is_isometry: `rotate` preserves norms.
    coordinate_modes: the evaluation-time coordinate modes that make a difference: ("raw", "scaled"), ("resampled",) for a
                 learned table that is stretched over any grid, or ("none",) for a scheme that never looks at coordinates.
    max_positions: the longest sequence that the scheme is defined for; None: any. why_limited: what positions beyond it do.
    length_variants: evaluation-time ways to serve sequences beyond the training length with the same weights, see `length_variant`.
    num_prefix_tokens: learned tokens that the scheme puts before every sequence (`prefix`); decoders only.
    """

    num_lanes: int = 0
    is_relative: bool = True
    is_isometry: bool = True
    coordinate_modes: tuple[str, ...] = ("raw", "scaled")
    max_positions: int | None = None
    why_limited: str = "have no learned entry"
    length_variants: tuple[str, ...] = ()
    num_prefix_tokens: int = 0

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionScheme:
        """Moves follow the model; precision is never lowered: priors and frequencies stay exact in a bf16 model."""

        def keep_precision(t: Tensor) -> Tensor:
            moved = fn(t)
            if t.is_floating_point() and torch.finfo(moved.dtype).eps > torch.finfo(t.dtype).eps:
                return t.to(moved.device)
            return moved

        return super()._apply(keep_precision, recurse)

    @property
    def is_rotation_relative(self) -> bool:
        """Whether logits of rotated tokens depend on the offset of their coordinates alone, whatever the log-prior does (a stream in
        chunks needs it). Default: without a rotation yes, else as the whole is."""
        return type(self).rotate is PositionScheme.rotate or self.is_relative

    def for_layer(self, layer_index: int) -> PositionScheme:
        """The scheme of one layer. Default: this object (shared); schemes with parameters per layer return a fresh one."""
        return self

    def published_extra_parameters(self) -> int:
        """Parameters a layer of the published implementation has beyond ours, where they differ; they change no output."""
        return 0

    def length_variant(self, name: str, factor: float) -> AbstractContextManager[None]:
        """A with-block in which the scheme is one of its `length_variants`; factor: length / training length."""
        raise ValueError(f"{type(self).__name__} has no variant {name!r} for other lengths: it has {list(self.length_variants)}")

    def place(self, tokens: Tensor, positions: Positions, is_cached: bool) -> Positions:
        """Where the scheme takes tokens [B, K] of a decoder to be; called once a pass. Default: where they are."""
        return positions

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """[B, K, C] -> [B, K, C]: added to the tokens once, at the input."""
        return x

    def prefix(self) -> Tensor | None:
        """[num_prefix_tokens, C]: tokens before the first of every sequence, None if there are none."""
        return None

    def rotate(self, x: Tensor, positions: Positions, role: Role) -> Tensor:
        """[B, H|G, K, D] -> same: acts on queries or keys at their positions; prefix tokens are left untouched."""
        return x

    def temperature(self, query_positions: Positions) -> Tensor | None:
        """[B|1, H|1, Q] factor of the content logit; None: 1."""
        return None

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        """The log-prior of the queries over the keys; `state` holds what `token_state` declared, for all keys."""
        return LogPrior()

    def token_state(self, x: Tensor) -> dict[str, Tensor]:
        """Per-token streams [B, *, K, *] that the cache keeps beside keys and values (content-dependent schemes)."""
        return {}


GIVEN = ("self", "shape", "layer_index", "kernel")  # arguments of a constructor that are no options


def check_options(
    factory: Callable[..., nn.Module], options: dict[str, Any], where: str = "attention.options, options_1d, options_2d"
) -> None:
    """ValueError for an option that the scheme (or inner attention) does not have, lacks, or that is no number where it needs one."""
    parameters = options_of(factory)
    if parameters is None:
        return
    has = f"it has {', '.join(parameters)}" if parameters else "it has none"
    for name, value in options.items():
        if name not in parameters:
            raise ValueError(f"{factory.__name__} has no option {name!r}: {has} ({where})")
        wants = str(parameters[name].annotation)
        if isinstance(value, str) and "str" not in wants and ("int" in wants or "float" in wants):
            raise ValueError(f"{factory.__name__}: option {name} = {value!r} is not a number")
    lacking = [name for name, p in parameters.items() if p.default is p.empty and name not in options]
    if lacking:
        raise ValueError(f"{factory.__name__} needs the option {', '.join(lacking)} ({where})")


def options_of(factory: Callable[..., nn.Module]) -> dict[str, inspect.Parameter] | None:
    """Option name -> parameter of what builds a scheme (or inner attention); None if it takes anything."""
    maker = factory
    if isinstance(factory, type):  # an ablation hands **options on: what it takes stands in the class it varies
        maker = next(c for c in factory.__mro__ if "__init__" in vars(c) and not _takes_any(c.__init__)).__init__
    parameters = {name: p for name, p in inspect.signature(maker).parameters.items() if name not in GIVEN}
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else parameters


def check_base(base: float) -> None:
    """ValueError unless a frequency ladder base^(-k) makes sense."""
    if not 0 < base < float("inf"):
        raise ValueError(f"option base = {base}: the base of a frequency ladder is a positive number")


def _takes_any(function: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


class NoPosition(PositionScheme):
    """NoPE: nothing anywhere. In a bidirectional model a control without any position (Kazemnejad et al., arXiv 2305.19466)."""

    coordinate_modes = ("none",)
