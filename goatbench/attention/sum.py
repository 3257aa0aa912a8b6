"""Several position schemes at once: `rope+sink_scalar` rotates as rope does and has the sink of sink_scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from .log_prior import LogPrior
from .positions import Positions
from .scheme import ModelShape, PositionScheme, Role, check_options, options_of


class Sum(PositionScheme):
    """Embeddings and rotations one after the other, temperatures multiplied, log-priors added (the product of the priors)."""

    def __init__(self, shape: ModelShape, parts: Sequence[PositionScheme]) -> None:
        super().__init__(shape)
        self.parts = nn.ModuleList(parts)
        self.num_lanes = sum(part.num_lanes for part in parts)
        self.num_prefix_tokens = sum(part.num_prefix_tokens for part in parts)
        self.is_relative = all(part.is_relative for part in parts)
        self.is_isometry = all(part.is_isometry for part in parts)
        self.max_positions = min((p.max_positions for p in parts if p.max_positions is not None), default=None)
        modes = {part.coordinate_modes for part in parts} - {("none",)}
        self.coordinate_modes = modes.pop() if len(modes) == 1 else PositionScheme.coordinate_modes if modes else ("none",)

    def for_layer(self, layer_index: int) -> Sum:
        return Sum(self.shape, [part.for_layer(layer_index) for part in self.parts])

    def published_extra_parameters(self) -> int:
        return sum(part.published_extra_parameters() for part in self.parts)

    @property
    def is_rotation_relative(self) -> bool:
        return all(part.is_rotation_relative for part in self.parts)

    @property
    def why_limited(self) -> str:
        return next((p.why_limited for p in self.parts if p.max_positions == self.max_positions), PositionScheme.why_limited)

    def place(self, tokens: Tensor, positions: Positions, is_cached: bool) -> Positions:
        for part in self.parts:
            positions = part.place(tokens, positions, is_cached)
        return positions

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        for part in self.parts:
            x = part.embed(x, positions)
        return x

    def prefix(self) -> Tensor | None:
        return next((part.prefix() for part in self.parts if part.num_prefix_tokens), None)

    def rotate(self, x: Tensor, positions: Positions, role: Role) -> Tensor:
        for part in self.parts:
            x = part.rotate(x, positions, role)
        return x

    def temperature(self, query_positions: Positions) -> Tensor | None:
        product = None
        for part in self.parts:
            factor = part.temperature(query_positions)
            product = factor if product is None else product if factor is None else product * factor
        return product

    def prior(self, query_positions: Positions, key_positions: Positions, state: dict[str, Tensor] | None = None) -> LogPrior:
        total = LogPrior()
        for part in self.parts:
            total = total + part.prior(query_positions, key_positions, state)
        return total

    def token_state(self, x: Tensor) -> dict[str, Tensor]:
        return {name: stream for part in self.parts for name, stream in part.token_state(x).items()}


def sum_of(factories: dict[str, Callable[..., PositionScheme]], lanes: str) -> Callable[..., PositionScheme]:
    """The factory of a sum: name -> factory of its parts; an option goes to the part that has it.

    With lanes 'carve' each part is built for the head width that the lanes of the others leave, so that a rotary part turns the
    content dims that there are; and all parts know of the tokens that one of them puts before the sequence.
    """

    def build(shape: ModelShape, **options: Any) -> PositionScheme:
        shares = _share(factories, options)
        make = lambda name, its_shape: factories[name](its_shape, **shares[name])
        parts = {name: make(name, shape) for name in factories}
        prefixed = [name for name, part in parts.items() if part.num_prefix_tokens]
        if len(prefixed) > 1:
            raise ValueError(f"{' and '.join(prefixed)} both put tokens before the sequence: take one of them")
        num_lanes = sum(part.num_lanes for part in parts.values()) if lanes == "carve" else 0
        num_prefix = shape.num_prefix + sum(part.num_prefix_tokens for part in parts.values())
        for name, part in parts.items():
            others = num_lanes - part.num_lanes if lanes == "carve" else 0
            left = replace(shape, head_dim=shape.head_dim - others, num_prefix=num_prefix)
            if left == shape or left.head_dim < 1:  # a layer without any content dim says so itself
                continue
            try:
                parts[name] = make(name, left)
            except ValueError as error:
                width = f"; the lanes of the others leave {left.head_dim} of {shape.head_dim} dims (lanes=append leaves all)"
                raise ValueError(f"{name} in {'+'.join(factories)}: {error}{width if others else ''}") from None
        return Sum(shape, list(parts.values()))

    return build


def _share(factories: dict[str, Callable[..., PositionScheme]], options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """name -> its options; ValueError for one that no part has, or several have."""
    known = {name: options_of(factory) for name, factory in factories.items()}
    shares: dict[str, dict[str, Any]] = {name: {} for name in factories}
    for option, value in options.items():
        owners = [name for name, parameters in known.items() if parameters is None or option in parameters]
        if len(owners) != 1:
            has = "; ".join(f"{name}: {', '.join(parameters or ()) or 'none'}" for name, parameters in known.items())
            problem = f"both {' and '.join(owners)} have" if owners else f"no part of {'+'.join(factories)} has"
            raise ValueError(f"{problem} an option {option!r} ({has}) (attention.options, options_1d, options_2d)")
        shares[owners[0]][option] = value
    for name, factory in factories.items():
        check_options(factory, shares[name])
    return shares
