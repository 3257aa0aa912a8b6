"""FullCache: what comes back is what went in, at the right positions, in linear time."""

import pytest
import torch

from goatbench.attention import cache as cache_module
from goatbench.attention.cache import FullCache
from goatbench.attention.kernels import Problem, Sdpa
from goatbench.attention.log_prior import LogPrior
from goatbench.attention.mask import Mask
from goatbench.attention.positions import Line, Positions, Scattered


def stream(length, *tail, seed=0):
    return torch.randn(2, 2, length, *tail, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("chunks", [[200], [1] * 200, [3, 64, 1, 1, 131], [128, 1, 71]])
def test_streams_and_positions_come_back_whole(chunks):
    k, v, gate = stream(200, 8, seed=1), stream(200, 4, seed=2), stream(200, seed=3)
    cache, start = FullCache(), 0
    for n in chunks:
        step = Positions.line(n, offset=start)
        part = slice(start, start + n)
        for layer in (0, 1):
            sign = 1 - 2 * layer
            tokens = {"k": sign * k[:, :, part], "v": v[:, :, part], "gate": gate[:, :, part]}
            out, keys, queries = cache.update(layer, tokens, step)
            end = start + n
            assert torch.equal(out["k"], sign * k[:, :, :end])
            assert torch.equal(out["v"], v[:, :, :end])
            assert torch.equal(out["gate"], gate[:, :, :end])
            assert queries is step
            assert keys.layout == Line(0, end)
            assert torch.equal(keys.order, torch.arange(end)[None])
            assert torch.equal(keys.coords[..., 0], torch.arange(end, dtype=torch.float64)[None])
            assert not keys.is_prefix.any()
        start += n
    assert cache.num_tokens == 200


@pytest.mark.parametrize("chunks", [[1] * 37, [5, 1, 1, 30], [37]])
def test_decoding_by_chunks_equals_one_causal_pass(chunks):
    """Any chunking, plain attention: bottom-right causality, whatever the shape of the step."""
    q, k, v = stream(37, 8, seed=4), stream(37, 8, seed=5), stream(37, 8, seed=6)
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    cache, start, parts = FullCache(), 0, []
    for n in chunks:
        part = slice(start, start + n)
        tokens, keys, queries = cache.update(0, {"k": k[:, :, part], "v": v[:, :, part]}, Positions.line(n, offset=start))
        problem = Problem(q[:, :, part], tokens["k"], tokens["v"], LogPrior(), Mask(causal=True).bind(queries, keys), 0.3)
        parts.append(Sdpa()(problem)[0])
        start += n
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=0, atol=1e-12)


def test_growth_copies_a_linear_number_of_tokens(monkeypatch):
    allocated = []
    original = cache_module._Buffer._allocate

    def counting(self, shape, capacity, like):
        if self.axis == 2:
            allocated.append(capacity)
        return original(self, shape, capacity, like)

    monkeypatch.setattr(cache_module._Buffer, "_allocate", counting)
    cache = FullCache()
    for i in range(1000):
        cache.update(0, {"k": stream(1, 1)}, Positions.line(1, offset=i))
    assert allocated == [64, 128, 256, 512, 1024]


def test_filled_under_inference_mode_it_serves_training():
    cache = FullCache()
    with torch.inference_mode():
        cache.update(0, {"k": stream(3, 4)}, Positions.line(3))
    tokens, keys, _ = cache.update(0, {"k": stream(2, 4)}, Positions.line(2, offset=3))
    assert not tokens["k"].is_inference() and not keys.coords.is_inference()
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
    (tokens["k"] * weight).sum().backward()  # would raise on an inference tensor
    torch.testing.assert_close(weight.grad, tokens["k"].sum(dim=(0, 1, 2)))


def test_no_gradient_passes_through():
    k = stream(3, 4).requires_grad_()
    tokens, _, _ = FullCache().update(0, {"k": k}, Positions.line(3))
    assert not tokens["k"].requires_grad


def test_padded_rows_and_one_row_for_all_mix():
    """A left-padded prompt has positions by row; a later step with one row of positions serves all rows."""
    cache = FullCache()
    prompt = Positions.scattered(torch.tensor([[0, 1, 2], [0, 0, 1]]))
    cache.update(0, {"k": stream(3, 4)}, prompt)
    _, keys, _ = cache.update(0, {"k": stream(1, 4)}, Positions.line(1, offset=3))
    assert keys.layout == Scattered(4)
    assert keys.order.tolist() == [[0, 1, 2, 3], [0, 0, 1, 3]]
    cache.reset()
    cache.update(0, {"k": stream(2, 4)}, Positions.line(2))
    _, keys, _ = cache.update(0, {"k": stream(1, 4)}, Positions.scattered(torch.tensor([[5], [7]])))
    assert keys.order.tolist() == [[0, 1, 5], [0, 1, 7]]


def test_reset_starts_over():
    cache = FullCache()
    cache.update(0, {"k": stream(3, 4)}, Positions.line(3))
    cache.reset()
    assert cache.num_tokens == 0
    tokens, keys, _ = cache.update(0, {"k": torch.ones(1, 1, 2, 3)}, Positions.line(2))  # another batch, heads and dtype
    assert torch.equal(tokens["k"], torch.ones(1, 1, 2, 3)) and keys.layout == Line(0, 2)


def test_a_layer_that_misses_a_step_is_refused():
    cache = FullCache()
    cache.update(0, {"k": stream(3, 4)}, Positions.line(3))
    cache.update(0, {"k": stream(1, 4)}, Positions.line(1, offset=3))
    with pytest.raises(ValueError, match="every layer must see every step"):
        cache.update(1, {"k": stream(1, 4)}, Positions.line(1, offset=3))


def test_another_batch_or_stream_is_refused():
    cache = FullCache()
    cache.update(0, {"k": stream(3, 4)}, Positions.line(3))
    with pytest.raises(ValueError, match=r"call reset\(\)"):
        cache.update(0, {"k": stream(1, 5)}, Positions.line(1, offset=3))
    with pytest.raises(ValueError, match="streams"):
        cache.update(0, {"v": stream(1, 4)}, Positions.line(1, offset=3))
    with pytest.raises(ValueError, match="2 tokens for 1 positions"):
        FullCache().update(0, {"k": stream(2, 4)}, Positions.line(1))
