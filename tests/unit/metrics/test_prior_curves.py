"""Priors by offset against closed forms: ALiBi's is geometric, a scheme without a prior and one of content have none."""

from __future__ import annotations

import pytest
import torch

from goatbench.attention.priors.recency import alibi_slopes
from goatbench.metrics.prior_curves import prior_curves
from goatbench.models import Decoder

SIZES = dict(vocab_size=5, num_scored=5, seq_len=48, embed_dim=64, depth=2, num_heads=2, mlp_ratio=1.0)


def test_alibi_is_geometric_in_the_offset():
    found = prior_curves(Decoder("alibi", **SIZES), 20)
    ratio = torch.exp(-alibi_slopes(2).double())[:, None]
    expected = ((1 - ratio) / (1 - ratio**20) * ratio ** torch.arange(20)).log()
    torch.testing.assert_close(found, expected.expand(2, 2, 20), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["nope", "rope", "fox", "sink_scalar"])
def test_no_prior_over_keys_no_curve(name):
    assert prior_curves(Decoder(name, **SIZES), 20) is None
