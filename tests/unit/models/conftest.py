"""Probe schemes with known closed forms, and a factory of tiny ViTs (patch 2, trained at 12 px: a 6 x 6 grid)."""

import pytest
import torch
from torch import nn

from goatbench.attention.log_prior import LogPrior
from goatbench.attention.scheme import PositionScheme
from goatbench.models import GoatViT

PLANAR = ["goat", "goat_reference", "goat_spectral", "goat_sink", "goat_no_slope", "nope", "learned_absolute", "sinusoidal"]
PLANAR += ["rope_axial", "rope_mixed", "alibi_2d", "sink_scalar", "lookhere", "rpb", "fire_2d", "rope_axial_ape", "rope_mixed_ape"]


class Gaussian(PositionScheme):
    """log-prior -(wy * dy^2 + wx * dx^2), up to a constant of the row, on two lanes and a key term; one w per layer."""

    num_lanes = 2

    def __init__(self, shape, weight=(0.3, 0.05)):
        super().__init__(shape)
        self.initial = weight
        self.weight = nn.Parameter(torch.empty(2, 1))
        self.reset_parameters()

    def reset_parameters(self):
        with torch.no_grad():
            self.weight.copy_(torch.tensor(self.initial)[:, None])

    def for_layer(self, layer_index):
        return Gaussian(self.shape, self.initial)

    def prior(self, query_positions, key_positions, state=None):
        weight = self.weight[:, 0]
        query, key = query_positions.coords.float(), key_positions.coords.float()
        query_patch, key_patch = (~p.is_prefix[..., None] for p in (query_positions, key_positions))
        q_lanes = (2 * weight * query * query_patch)[:, None].expand(-1, self.shape.num_heads, -1, -1)
        k_term = -(weight * key**2 * key_patch).sum(-1)[:, None]
        return LogPrior(q_lanes=q_lanes, k_lanes=(key * key_patch)[:, None], k_term=k_term)


class Recorder(PositionScheme):
    """Keeps the positions that each layer was given."""

    def __init__(self, shape):
        super().__init__(shape)
        self.seen = []

    def prior(self, query_positions, key_positions, state=None):
        self.seen.append(key_positions)
        return LogPrior()


class Constant(PositionScheme):
    """Holds a Linear that it sets to 7 itself; used as a key term so that its gradient arrives."""

    def __init__(self, shape):
        super().__init__(shape)
        self.linear = nn.Linear(2, 1)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.constant_(self.linear.weight, 7.0)
        nn.init.constant_(self.linear.bias, 7.0)

    def for_layer(self, layer_index):
        return Constant(self.shape)

    def prior(self, query_positions, key_positions, state=None):
        return LogPrior(k_term=self.linear(key_positions.coords.float())[:, None, :, 0])


@pytest.fixture
def gaussian():
    return Gaussian


@pytest.fixture
def recorder():
    return Recorder


@pytest.fixture
def constant():
    return Constant


@pytest.fixture
def tiny():
    """tiny(position, seed=0, **overrides) -> GoatViT in eval mode, 2 layers of 32, 2 heads, head scaled by 1."""

    def build(position="nope", seed=0, **overrides):
        torch.manual_seed(seed)
        sizes = dict(img_size=12, patch_size=2, in_chans=3, num_classes=5, embed_dim=32, depth=2, num_heads=2, head_init_scale=1.0)
        return GoatViT(position, **{**sizes, **overrides}).eval()

    return build


@pytest.fixture
def images():
    def draw(height, width, batch=2, seed=1):
        return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(seed))

    return draw


@pytest.fixture
def options_of():
    """options_of(name) -> arguments of GoatViT that fit a head of 16."""
    fourier = {"num_frequencies": 2, "min_period": 3.0}
    options = {name: fourier for name in ("goat", "goat_spectral", "goat_sink", "goat_no_slope")}
    options["goat_reference"] = {"pos_rank": 4, "abs_rank": 2}
    return lambda name: {"position": name, "options": options.get(name)}


def pytest_generate_tests(metafunc):
    if "planar" in metafunc.fixturenames:
        metafunc.parametrize("planar", PLANAR)
