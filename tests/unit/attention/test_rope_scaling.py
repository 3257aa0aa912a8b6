"""RoPE scalings against rotary-embedding-torch (another pairing of dims), worked examples, and formulas written out in float64."""

import math

import pytest
import torch
from attention_cases import assert_close
from rotary_embedding_torch import RotaryEmbedding

from goatbench.attention.positions import Positions
from goatbench.attention.rope_scaling import LENGTH_VARIANTS, SCALINGS, Ladder, rope_scaling
from goatbench.attention.rotary import Rope
from goatbench.attention.scheme import ModelShape, Role
from goatbench.models import Decoder

HEADS, HEAD_DIM, TRAINED = 3, 24, 32
SHAPE = ModelShape(1, True, HEADS * HEAD_DIM, 2, HEADS, HEADS, HEAD_DIM, (TRAINED,))
PAIRING = torch.cat((torch.arange(0, HEAD_DIM, 2), torch.arange(1, HEAD_DIM, 2)))  # our dim d is the interleaved dim PAIRING[d]
LAST = torch.zeros(1, dtype=torch.float64)


def draw(num_tokens: int, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(2, HEADS, num_tokens, HEAD_DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def decoder(**options) -> Decoder:
    torch.manual_seed(0)
    sizes = dict(vocab_size=11, num_scored=11, seq_len=8, embed_dim=32, depth=2, num_heads=2)
    return Decoder("rope", options, **sizes).double().eval()


@pytest.mark.parametrize(("name", "theirs"), [("pi", "interpolate_factor"), ("ntk", "theta_rescale_factor")])
def test_pi_and_ntk_are_those_of_rotary_embedding_torch(name, theirs):
    x = draw(100, torch.float32)
    expected = RotaryEmbedding(HEAD_DIM, **{theirs: 4.0}).rotate_queries_or_keys(x)
    actual = Rope(SHAPE, scaling=name, factor=4.0).rotate(x[..., PAIRING], Positions.line(100), Role.QUERY)
    torch.testing.assert_close(actual, expected[..., PAIRING], rtol=0, atol=3e-5)


def test_ntk_keeps_the_first_frequency_and_divides_the_last():
    """base s^(D/(D-2)): written out for every plane."""
    base, s, d = 10_000.0, 8.0, HEAD_DIM
    ratio = [(base * s ** (d / (d - 2))) ** (-2 * p / d) / base ** (-2 * p / d) for p in range(d // 2)]
    actual = rope_scaling("ntk", s).multipliers(Ladder(base, d // 2, TRAINED), LAST)
    assert_close(actual, torch.tensor(ratio, dtype=torch.float64), atol=1e-14)
    assert actual[0] == 1 and actual[-1] == pytest.approx(1 / s, rel=1e-12)


def test_yarn_ramps_from_plane_20_to_46_in_llama_2():
    """D 128, base 10,000, 4,096 tokens: 128 ln(4096 / 64 pi) / (2 ln 10000) = 20.9, 128 ln(4096 / 2 pi) / (2 ln 10000) = 45.03."""
    actual = rope_scaling("yarn", 16.0).multipliers(Ladder(10_000.0, 64, 4096), LAST)
    slowed = [min(max((p - 20) / (46 - 20), 0), 1) for p in range(64)]
    assert_close(actual, torch.tensor([w / 16 + 1 - w for w in slowed], dtype=torch.float64), atol=1e-14)
    assert actual[20] == 1 and actual[33] == pytest.approx((1 / 16 + 1) / 2) and actual[46] == 1 / 16


@pytest.mark.parametrize(("factor", "expected"), [(16.0, 1.277259**2), (32.0, 1.346574**2), (1.0, 1.0)])
def test_yarns_temperature(factor, expected):
    """0.1 ln(16) + 1 = 1.277259, 0.1 ln(32) + 1 = 1.346574 on q and on k, so its square on their product."""
    assert rope_scaling("yarn", factor).temperature == pytest.approx(expected, rel=1e-6)
    temperature = Rope(SHAPE, scaling="yarn", factor=factor).temperature(Positions.line(5))
    assert (temperature is None) if factor == 1 else torch.allclose(temperature, torch.full((1, 1, 5), expected))


@pytest.mark.parametrize("name", list(SCALINGS))
def test_at_factor_one_a_scaling_is_the_identity(name):
    x, places = draw(TRAINED), Positions.line(TRAINED)
    scaled = Rope(SHAPE, scaling=name, factor=1.0)
    assert torch.equal(scaled.rotate(x, places, Role.KEY), Rope(SHAPE).rotate(x, places, Role.KEY))
    assert scaled.temperature(places) is None


def test_scalings_differ_from_plain_rope_and_from_each_other():
    x, places = draw(64), Positions.line(64)  # one object: what a scaling remembers is its own
    outs = [Rope(SHAPE, scaling=name, factor=2.0).rotate(x, places, Role.KEY) for name in ("none", "pi", "ntk", "yarn")]
    for i, a in enumerate(outs):
        assert all(float((a - b).abs().max()) > 0.01 for b in outs[i + 1 :])


def test_dynamic_ntk_is_ntk_at_each_length():
    """factor * l / L - (factor - 1): 1 up to L; for factor 1 it is l / L; for factor 2 at 2 L it is 3."""
    for factor, length, same in ((1.0, 3 * TRAINED, 3.0), (2.0, 2 * TRAINED, 3.0), (4.0, TRAINED, 1.0), (4.0, 5, 1.0)):
        x, places = draw(length), Positions.line(length)
        expected = Rope(SHAPE, scaling="ntk", factor=same).rotate(x, places, Role.QUERY)
        assert_close(Rope(SHAPE, scaling="ntk_dynamic", factor=factor).rotate(x, places, Role.QUERY), expected, atol=1e-12)


def test_dynamic_ntk_turns_queries_and_cached_keys_by_one_ladder():
    """Decoding: the query alone at place l - 1 and all l keys have the length l; each row of a padded batch has its own."""
    scheme = Rope(SHAPE, scaling="ntk_dynamic", factor=1.0)
    x = draw(3 * TRAINED)
    whole = scheme.rotate(x, Positions.line(3 * TRAINED), Role.KEY)
    assert_close(scheme.rotate(x[:, :, -1:], Positions.line(1, 3 * TRAINED - 1), Role.QUERY), whole[:, :, -1:], atol=1e-12)
    order = torch.arange(3 * TRAINED)[None] - torch.tensor([[0], [TRAINED]])
    padded = scheme.rotate(x, Positions.scattered(order), Role.KEY)
    assert_close(padded[:1], whole[:1], atol=1e-12)
    alone = scheme.rotate(x[1:, :, TRAINED:], Positions.line(2 * TRAINED), Role.KEY)
    assert_close(padded[1:, :, TRAINED:], alone, atol=1e-12)


@pytest.mark.parametrize("name", LENGTH_VARIANTS)
def test_a_trained_decoder_is_evaluated_under_a_scaling_and_then_as_before(name):
    plain, tokens = decoder(), torch.randint(11, (2, 32), generator=torch.Generator().manual_seed(1))
    trained = plain(tokens)
    with pytest.raises(RuntimeError, match="within"), plain.length_variant(name, 4.0):
        within = plain(tokens)
        raise RuntimeError("within")
    assert torch.equal(plain(tokens), trained)
    assert_close(within, decoder(scaling=name, factor=4.0)(tokens), atol=1e-12)
    assert float((within - trained).detach().abs().max()) > 1e-4


def test_which_mechanisms_have_variants():
    sizes = dict(vocab_size=11, num_scored=11, seq_len=16, embed_dim=32, depth=1, num_heads=1)
    assert Decoder("rope", **sizes).length_variants == ("pi", "ntk", "yarn")
    for other in ("alibi", "nope", "rope_xpos", "rope_randomised", "fope"):
        assert Decoder(other, **sizes).length_variants == ()
    assert decoder(scaling="pi", factor=2.0).length_variants == ()  # trained scaled: there is nothing plain to scale
    with pytest.raises(ValueError, match="NoPosition has no variant 'pi'"):
        Decoder("nope", **sizes).position.length_variant("pi", 2.0)


@pytest.mark.parametrize(("options", "says"), [({"scaling": "yarm"}, "none, pi, ntk"), ({"scaling": "pi", "factor": 0.5}, "1 or more")])
def test_mistakes_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        Rope(SHAPE, **options)
    with pytest.raises(ValueError, match="base above 1"):
        Rope(SHAPE, base=1.0, scaling="yarn", factor=2.0).rotate(draw(3), Positions.line(3), Role.KEY)
    assert math.isfinite(rope_scaling("yarn", 2.0).multipliers(Ladder(10_000.0, 4, 4), LAST).sum())  # a ramp of no length
