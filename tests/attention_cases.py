"""Every registered attention as a small layer: what invariants are stated for. Options are fixed here, so that a tuned default in
a config changes no test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files

import torch
import yaml
from torch import nn

from goatbench.attention.fope import Fope
from goatbench.attention.inner.softmax import InnerAttention, Softmax
from goatbench.attention.kernels.problem import Kernel
from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.scheme import ModelShape, PositionScheme
from goatbench.attention.sink_token import behind_prefix
from goatbench.models.backbone import scheme_factory
from goatbench.registry import OWN, attentions, inner_attentions

EMBED_DIM, NUM_HEADS, HEAD_DIM = 16, 4, 32
TRAIN_LENGTH, TRAIN_GRID = 256, (6, 5)
FILES = sorted(files("goatbench.configs").joinpath("attention").glob("*.yaml"))
CONFIGS = [yaml.safe_load(file.read_text()) for file in FILES]
SUMS = {config["position"]: config["axes"] for config in CONFIGS if "+" in (config.get("position") or "")}
AXES = {config["name"]: config["axes"] for config in CONFIGS} | SUMS
INNER = {  # of the rows whose inner attention is not softmax: arguments of a model
    config["name"]: {"inner": inner_attentions.get(config["inner"]), "inner_options": config["inner_options"]}
    for config in CONFIGS
    if "inner" in config
}
GATED = {config["name"]: {"gate": config["gate"]} for config in CONFIGS if "gate" in config}
MODEL = {**INNER, **GATED}  # what a model needs besides the scheme
POSITION = {config["name"]: config["position"] for config in CONFIGS if config["name"] in MODEL}  # the scheme inside
SCALED = ("rope_pi", "rope_ntk", "rope_yarn")  # rope under a scaling: other frequencies, and yarn's temperature
POSITION |= {name: "rope" for name in SCALED}
AXES |= {name: [1] for name in SCALED}
WRITTEN_OUT = {"mta", "mta_conv", "talking_heads", "cope"}  # they hold every logit
OWN_NAMES = [name for name in attentions.names() if attentions.provider(name) == OWN] + list(SUMS) + list(MODEL) + list(SCALED)
ONE_KEY_HEAD_PER_QUERY_HEAD = {"rope_mixed", "rope_mixed_ape", "goat_mixed", "fope", "fox", "cable"}  # frequencies or gates per head
CAUSAL = {"alibi", "alibi_learned", "fire", "bam", "fox", "cable", "sink_token", "mta", "mta_conv", "cope"}

LINES = [name for name in OWN_NAMES if 1 in AXES[name]]
GRIDS = [name for name in OWN_NAMES if 2 in AXES[name]]
# goat+rope: without slope and bump GOAT leaves an odd number of content dims, which cannot turn in planes.
BIDIRECTIONAL_LINES = [name for name in LINES if not CAUSAL & set(name.split("+")) and name != "goat+rope"]
SOFTMAX_LINES = [name for name in LINES if name not in INNER]
ROWS = [(name, "line") for name in LINES] + [(name, "grid") for name in GRIDS]


GOATS = ("goat", "goat_spectral", "goat_sink", "goat_no_slope", "goat_learned_freqs", "goat_mixed", "goat+rope", "goat+sink_scalar")
GOATS += ("goat_diff",)
OPTIONS = {name: {"num_frequencies": 2, "min_period": 3.0} for name in GOATS}
OPTIONS["fope"] = {"learned": True}
OPTIONS |= {name: {"scaling": name.removeprefix("rope_"), "factor": 4.0} for name in SCALED}
OPTIONS["goat_reference"] = {"pos_rank": 4, "abs_rank": 2}
OPTIONS["fire"] = {"threshold": 8.0}  # within the lengths of the tests, so that the normaliser is not a constant
OPTIONS["fire_2d"] = {"threshold": 20.0}
POSITIVE = {"kerple_log", "kerple_power"}  # parameters are clamped from below, where they move nothing


def make_shape(name: str, kind: str, causal: bool | None = None, num_prefix: int = 1, grid: tuple[int, int] = TRAIN_GRID) -> ModelShape:
    """kind 'line' (causal unless told otherwise) or 'grid'; two query heads per key head where the mechanism allows it."""
    kv = NUM_HEADS if name in ONE_KEY_HEAD_PER_QUERY_HEAD else NUM_HEADS // 2
    if kind == "line":
        return ModelShape(1, causal is not False, EMBED_DIM, 1, NUM_HEADS, kv, HEAD_DIM, (TRAIN_LENGTH,))
    return ModelShape(2, bool(causal), EMBED_DIM, 1, NUM_HEADS, kv, HEAD_DIM, grid, num_prefix)


def make_scheme(name: str, shape: ModelShape, lanes: str = "carve", **options: object) -> PositionScheme:
    if name in INNER:
        shape = INNER[name]["inner"].scheme_shape(shape)
    return scheme_factory(POSITION.get(name, name), lanes)(shape, **{**OPTIONS.get(name, {}), **options})


def make_inner(name: str) -> Callable[..., InnerAttention]:
    return partial(INNER[name]["inner"], **INNER[name]["inner_options"]) if name in INNER else Softmax


def make_layer(
    name: str,
    kind: str,
    causal: bool | None = None,
    num_prefix: int = 1,
    grid: tuple[int, int] = TRAIN_GRID,
    kernel: Kernel | None = None,
    lanes: str = "carve",
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **options: object,
) -> SelfAttention:
    """The layer with every parameter away from its initial value, so that no part of the prior is silent."""
    torch.manual_seed(seed)
    shape = make_shape(name, kind, causal, num_prefix, grid)
    scheme = make_scheme(name, shape, lanes, **options)
    layer = SelfAttention(shape, scheme, kernel=kernel, lanes=lanes, inner=make_inner(name), **GATED.get(name, {})).to(dtype)
    randomise(layer.scheme, seed)
    if name in POSITIVE:
        with torch.no_grad():
            for parameter in layer.scheme.parameters():
                parameter.abs_().add_(0.1)
    move(layer.inner, seed)
    return layer


def move(module: nn.Module, seed: int = 0, std: float = 0.1) -> None:
    """Every parameter a little away from its initial value: kernels that start as the identity, norms that start at one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(std * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype))


def randomise(scheme: PositionScheme, seed: int = 0, std: float = 0.5) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in scheme.parameters():
            noise = std * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            # fope divides by sums of its coefficients, which must stay away from 0
            parameter.copy_(parameter + 0.1 * noise if isinstance(scheme, Fope) else noise)


def run(layer: SelfAttention, x: torch.Tensor, positions: Positions, mask: Mask | None = None, cache=None) -> torch.Tensor:
    """Embed and attend, as a one-layer model does; causal if the model is. Tokens that the scheme puts in front are taken off again."""
    mask = Mask(causal=layer.shape.causal) if mask is None else mask
    x, prefix, ahead = layer.scheme.embed(x, positions), layer.scheme.prefix(), 0
    if prefix is not None:
        x, positions, mask, ahead = behind_prefix(prefix, x, positions, mask, cache)
    return layer(x, positions, mask, cache)[:, ahead:]


def tokens(num_tokens: int, batch: int = 2, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """[batch, num_tokens, EMBED_DIM]"""
    return torch.randn(batch, num_tokens, EMBED_DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, atol: float = 1e-10, rtol: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
