"""What every model around the attention core has: layers that attend, position schemes in them, weights drawn module by module."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from ..attention.inner.softmax import InnerAttention
from ..attention.layer import SelfAttention
from ..attention.scheme import PositionScheme
from ..attention.sum import sum_of

LANES = ("carve", "append")


class Backbone:
    """Mixin of an nn.Module whose `blocks` each hold a `SelfAttention` as `attn`; block N's scheme is `blocks.N.attn.scheme`.

    A scheme that all layers share (an embedding table) is one object under all these names. `lanes`: how the layers carry lanes.
    """

    blocks: nn.ModuleList
    lanes: str

    @property
    def attention_layers(self) -> list[SelfAttention]:
        """The attention of each block, first to last."""
        return [block.attn for block in self.blocks]

    @property
    def position(self) -> PositionScheme:
        """The scheme of the first block; its `embed` serves the whole model."""
        return self.blocks[0].attn.scheme

    def position_schemes(self) -> list[PositionScheme]:
        """All schemes, a shared one once."""
        return [m for m in self.modules() if isinstance(m, PositionScheme)]

    @property
    def length_variants(self) -> tuple[str, ...]:
        """Names of what any of the schemes can be at evaluation beyond the training length (RoPE scalings)."""
        return tuple(dict.fromkeys(name for scheme in self.position_schemes() for name in scheme.length_variants))

    @contextmanager
    def length_variant(self, name: str, factor: float) -> Iterator[None]:
        """A with-block in which every scheme that has this variant is it; factor: length / training length."""
        with ExitStack() as stack:
            for scheme in self.position_schemes():
                if name in scheme.length_variants:
                    stack.enter_context(scheme.length_variant(name, factor))
            yield

    def position_parameter_names(self) -> set[str]:
        """Names of all parameters inside position schemes (and inner attentions that hold positions); a shared one under each name."""
        inner = [layer.inner for layer in self.attention_layers if layer.inner.holds_position]
        owned = {id(p) for module in (*self.position_schemes(), *inner) for p in module.parameters()}
        return {name for name, p in self.named_parameters(remove_duplicate=False) if id(p) in owned}

    def modules_to_draw(self) -> Iterator[tuple[str, nn.Module]]:
        """(name, module) of everything that has weights to draw; a scheme as a whole, as it draws its own parts."""
        in_schemes = {id(m) for scheme in self.position_schemes() for m in scheme.modules()}
        for name, module in self.named_modules():
            if module is not self and (id(module) not in in_schemes or isinstance(module, PositionScheme)):
                yield name, module


def scheme_factory(position: str | Callable[..., PositionScheme], lanes: str = "carve") -> Callable[..., PositionScheme]:
    """The factory itself, or the one that `goatbench.registry.attentions` has under that name; 'a+b' is the sum of two schemes."""
    if not isinstance(position, str):
        return position
    from ..registry import attentions

    names = position.split("+")
    if len(names) == 1:
        return attentions.get(position)
    if len(set(names)) < len(names):
        raise ValueError(f"position {position!r} names a scheme twice")
    return sum_of({name: attentions.get(name) for name in names}, lanes)


def inner_class(inner: str | type[InnerAttention]) -> type[InnerAttention]:
    """The class itself, or the one that `goatbench.registry.inner_attentions` has under that name."""
    if isinstance(inner, str):
        from ..registry import inner_attentions

        return inner_attentions.get(inner)
    return inner


def check_heads(lanes: str, embed_dim: int, num_heads: int) -> None:
    """ValueError for an unknown lane mode, or heads that do not divide the width."""
    if lanes not in LANES:
        raise ValueError(f"lanes {lanes!r} is unknown; one of {', '.join(LANES)}")
    if embed_dim % num_heads:
        raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")


@contextmanager
def own_generator(seed: int, name: str) -> Iterator[None]:
    """Random state of one module: a function of seed and name only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:7], "big"))
        yield
