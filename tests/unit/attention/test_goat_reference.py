"""`goat_reference` is the published package goat-attention 0.1.1, number by number, without its dead rows."""

from dataclasses import dataclass

import pytest
import torch
from goat import GoatAttention

from goatbench.attention.layer import SelfAttention
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.priors.fourier_reference import GoatReference
from goatbench.attention.scheme import ModelShape

# A constant over the keys is invisible to softmax: their true gradient is zero, and what arrives is round-off.
ZERO_GRADIENT = {"k_proj.bias", "key_bias.fc2.bias"}


@dataclass(frozen=True)
class Setting:
    axes: int
    causal: bool
    num_prefix: int = 0
    embed_dim: int = 64
    heads: tuple[int, int] = (2, 2)
    ranks: tuple[int, int] = (4, 4)
    grid: tuple[int, int] = (3, 5)
    length: int = 37

    @property
    def positions(self) -> Positions:
        return Positions.line(self.length) if self.axes == 1 else Positions.grid(*self.grid, self.num_prefix)


SETTINGS = {
    "1D causal": Setting(1, True),
    "1D bidirectional": Setting(1, False),
    "2D with CLS": Setting(2, False, num_prefix=1),
    "2D without CLS": Setting(2, False),
    "GQA 4/2": Setting(1, True, embed_dim=128, heads=(4, 2)),
    "2D, GQA 4/2, odd ranks": Setting(2, False, num_prefix=1, embed_dim=128, heads=(4, 2), ranks=(5, 3), grid=(4, 3)),
}


def published(s: Setting, seed: int = 0) -> GoatAttention:
    """The package's module with every parameter that it uses away from its initial value."""
    torch.manual_seed(seed)
    module = GoatAttention(
        s.embed_dim,
        s.heads[0],
        batch_first=True,
        pos_rank=s.ranks[0],
        abs_rank=s.ranks[1],
        kv_num_heads=s.heads[1],
        pos_encoding=f"{s.axes}d",
        has_cls_token_default=s.num_prefix > 0,
        training_seq_len=50 if s.axes == 1 else None,
    )
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith(("lambda", "sink", "key_bias")):
                parameter.normal_(0, 0.5)
            elif name.startswith("recency"):
                parameter.normal_(-2, 0.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1)
    return module


def ours(s: Setting) -> SelfAttention:
    extent = (50,) if s.axes == 1 else s.grid
    shape = ModelShape(s.axes, s.causal, s.embed_dim, 1, *s.heads, s.embed_dim // s.heads[0], extent, s.num_prefix)
    return SelfAttention(shape, GoatReference(shape, *s.ranks, train_length=50 if s.axes == 1 else None))


def counterparts(theirs: GoatAttention, layer: SelfAttention) -> dict[str, tuple[torch.Tensor, torch.Tensor, object]]:
    """name in the package -> (their parameter, ours, how to take our rows out of theirs)."""
    head_dim, content = layer.shape.head_dim, layer.head_layout.content_dim
    live = lambda t: t.unflatten(0, (-1, head_dim))[:, :content].flatten(0, 1)  # the content rows of each head
    same = lambda t: t
    scheme = layer.scheme
    pairs = {
        "q_proj.weight": (layer.q_proj.weight, live),
        "q_proj.bias": (layer.q_proj.bias, live),
        "k_proj.weight": (layer.k_proj.weight, live),
        "v_proj.weight": (layer.v_proj.weight, same),
        "v_proj.bias": (layer.v_proj.bias, same),
        "out_proj.weight": (layer.proj.weight, same),
        "out_proj.bias": (layer.proj.bias, same),
        "lambda_sym": (scheme.lambda_sym, same),
        "lambda_asym": (scheme.lambda_asym, same),
        "sink_gain": (scheme.sink_gain, same),
        "sink_bump": (scheme.sink_bump, same),
        "key_bias.fc1.weight": (scheme.fc1.weight, same),
        "key_bias.fc1.bias": (scheme.fc1.bias, same),
        "key_bias.fc2.weight": (scheme.fc2.weight, same),
        "key_bias.fc2.bias": (scheme.fc2.bias, same),
    }
    if layer.shape.causal:
        pairs["recency_slope_raw"] = (scheme.recency_slope_raw, same)
    assert {id(p) for p, _ in pairs.values()} == {id(p) for p in layer.parameters()}
    parameters = dict(theirs.named_parameters())
    return {name: (parameters[name], mine, take) for name, (mine, take) in pairs.items()}


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((actual - expected).abs().max() / expected.abs().max()).detach())


@pytest.mark.parametrize("name", SETTINGS)
def test_equals_the_published_package(name):
    """Output and input gradient to 1e-5, parameter gradients to 1e-4, relative to their largest entry, in float32."""
    s = SETTINGS[name]
    theirs, layer = published(s), ours(s)
    pairs = counterparts(theirs, layer)
    with torch.no_grad():
        for their, mine, take in pairs.values():
            mine.copy_(take(their))
    positions = s.positions
    x, weight = torch.randn(2, positions.num_tokens, s.embed_dim), torch.randn(2, positions.num_tokens, s.embed_dim)
    x_their, x_mine = x.clone().requires_grad_(), x.clone().requires_grad_()
    spatial = dict(spatial_shape=s.grid, has_cls_token=s.num_prefix > 0) if s.axes == 2 else {}
    expected = theirs(x_their, x_their, x_their, is_causal=s.causal, need_weights=False, **spatial)[0]
    actual = layer(x_mine, positions, Mask(causal=s.causal))
    assert relative_error(actual, expected) < 1e-5
    expected.backward(weight)
    actual.backward(weight)
    assert relative_error(x_mine.grad, x_their.grad) < 1e-5
    for parameter, (their, mine, take) in pairs.items():
        if parameter in ZERO_GRADIENT:
            assert float(mine.grad.abs().max()) < 1e-3 * float(theirs.q_proj.weight.grad.abs().max())
        else:
            assert relative_error(mine.grad, take(their.grad)) < 1e-4, parameter


def dead_parameters(module: torch.nn.Module) -> dict[str, int]:
    """Parameters by how many of their entries lie in rows that get no gradient at all, or exactly zero."""

    def dead(p: torch.nn.Parameter) -> int:
        if p.grad is None:
            return p.numel()
        return int((p.grad == 0).flatten(1).all(1).sum()) * p[0].numel() if p.ndim > 1 else int((p.grad == 0).sum())

    return {name: dead(p) for name, p in module.named_parameters() if dead(p)}


# The published module of one layer and ours. The difference is: rows of W_q and W_k whose output is overwritten by the prior
# (2 * heads * (2 * rank + 1) * (embed_dim + 1)), the other key biases (heads * content), the gate (2 * heads), and the slope of
# a bidirectional model (heads).
COUNTS = {
    "their ViT-S": (Setting(2, False, 1, 384, (6, 6), (16, 2), (14, 14)), 591_615, 438_951, 152_460 + 6 * 31 + 18, 152_460 + 18),
    "their C4 model": (Setting(1, True, 0, 768, (12, 12), (4, 4)), 2_362_573, 2_195_785, 166_104 + 12 * 55 + 24, 166_104 + 24),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_that_the_published_code_wastes(name):
    s, num_theirs, num_ours, difference, num_dead = COUNTS[name]
    theirs, layer = published(s), ours(s)
    assert sum(p.numel() for p in theirs.parameters()) == num_theirs
    assert sum(p.numel() for p in layer.parameters()) == num_ours == num_theirs - difference
    assert layer.scheme.published_extra_parameters() == difference
    positions = s.positions
    x = torch.randn(1, positions.num_tokens, s.embed_dim)
    spatial = dict(spatial_shape=s.grid, has_cls_token=True) if s.axes == 2 else {}
    theirs(x, x, x, is_causal=s.causal, need_weights=False, **spatial)[0].square().sum().backward()
    dead = dead_parameters(theirs)
    overwritten = s.heads[0] * (2 * s.ranks[0] + 1)  # of the key bias; the gradient of the rest of it is round-off, at times exactly zero
    assert overwritten <= dead.pop("k_proj.bias")
    assert sum(dead.values()) + overwritten == num_dead, dead
    with torch.no_grad():
        for parameter in layer.scheme.parameters():
            parameter.normal_(0, 0.5)
    layer(x, positions, Mask(causal=s.causal)).square().sum().backward()
    assert dead_parameters(layer).keys() <= {"scheme.fc2.bias"}


def test_2d_prior_is_nearly_blind_along_x():
    """Their one list of frequencies gives y the high and x the low ones: the even part, peak to peak over a 14 x 14 grid, is
    hundreds of times weaker along x (1,025 times measured on random coefficients). `goat` differs; see test_goat."""
    shape = ModelShape(2, False, 64, 1, 1, 1, 64, (14, 14))
    scheme = GoatReference(shape, 16, 2).double()
    with torch.no_grad():
        scheme.lambda_sym.copy_(torch.randn(1, 16, generator=torch.Generator().manual_seed(0)))
        scheme.sink_gain.zero_()
    positions = Positions.grid(14, 14)
    prior = scheme.prior(positions, positions).dense(1, 196, 196)[0, 0]
    along_y, along_x = prior[0, ::14], prior[0, :14]
    peak_to_peak = lambda t: float((t.max() - t.min()).detach())
    assert peak_to_peak(along_y) > 300 * peak_to_peak(along_x)


def test_in_bf16_its_recency_is_a_staircase():
    """Their single key lane holds slope * j. In bf16 the last 1,024 of 16,384 places take 17 values (a count of the package's
    own lane); `goat` holds them all."""
    shape = ModelShape(1, True, 64, 1, 1, 1, 64, (16_384,))
    scheme = GoatReference(shape, 4, 4, train_length=16_384)
    with torch.no_grad():
        scheme.sink_gain.zero_()
    positions = Positions.line(16_384)
    lane = scheme.prior(positions, positions).k_lanes[0, 0, :, -1]
    assert lane.unique().numel() == 16_384
    assert lane[-1024:].bfloat16().unique().numel() == 17


@pytest.mark.parametrize("init", ["seeded", "uniform"])
def test_initial_values_are_theirs(init):
    """Against a module that the package itself initialises; random parts by their standard deviation."""
    torch.manual_seed(0)
    theirs = GoatAttention(768, 12, batch_first=True, pos_rank=16, abs_rank=8, prior_init=init, training_seq_len=50)
    shape = ModelShape(1, True, 768, 1, 12, 12, 64, (50,))
    scheme = GoatReference(shape, 16, 8, init=init, train_length=50)
    for name in ("lambda_asym", "sink_gain", "sink_bump", "recency_slope_raw"):
        torch.testing.assert_close(getattr(scheme, name), getattr(theirs, name), rtol=1e-6, atol=1e-6)
    for mine, their in [(scheme.lambda_sym, theirs.lambda_sym), (scheme.fc1.weight, theirs.key_bias.fc1.weight)]:
        assert float(mine.std()) == pytest.approx(float(their.std()), rel=0.35, abs=1e-9)
    for mine, their in [(scheme.fc1.bias, theirs.key_bias.fc1.bias), (scheme.fc2.bias, theirs.key_bias.fc2.bias)]:
        assert torch.equal(mine, their)
    assert bool((scheme.fc2.weight == 0).all()) == bool((theirs.key_bias.fc2.weight == 0).all()) == (init == "uniform")


def test_unknown_init_is_refused():
    with pytest.raises(ValueError, match="'seeded' and 'uniform'"):
        GoatReference(ModelShape(1, True, 64, 1, 2, 2, 32, (50,)), 2, 2, init="zero")


@pytest.mark.parametrize(
    ("axes", "causal", "heads", "kv_heads", "embed_dim"), [(2, False, 3, 3, 96), (1, True, 4, 2, 128), (1, False, 2, 2, 64)]
)
def test_the_published_parameter_count_is_known(axes, causal, heads, kv_heads, embed_dim):
    """Ours plus what the published layer holds without ever using it is what the package really allocates."""
    extent, prefix = ((6, 6), 1) if axes == 2 else ((64,), 0)
    shape = ModelShape(axes, causal, embed_dim, 1, heads, kv_heads, embed_dim // heads, extent, prefix)
    scheme = GoatReference(shape, 4, 3)
    ours = sum(p.numel() for p in SelfAttention(shape, scheme).parameters())
    published = GoatAttention(embed_dim, heads, kv_num_heads=kv_heads, pos_rank=4, abs_rank=3)
    assert ours + scheme.published_extra_parameters() == sum(p.numel() for p in published.parameters())
