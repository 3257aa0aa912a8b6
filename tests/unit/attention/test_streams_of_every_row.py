"""A stream in slots is, for one layer of any row, that layer on the kept tokens as a sequence of their own."""

from __future__ import annotations

import gc

import pytest
import torch
from attention_cases import LINES, MODEL, OPTIONS, POSITION, make_layer, run, tokens

from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions
from goatbench.attention.sink_window_cache import SinkWindowCache
from goatbench.models import Decoder
from goatbench.models.streaming import streaming
from goatbench.training.live_storages import LiveStorages

CAUSAL = Mask(causal=True)
ROWS = [name for name in LINES if name not in ("learned_absolute", "sinusoidal") and "sink_token" not in name]


@pytest.mark.parametrize(("num_sinks", "window"), [(3, 12), (0, 4)])
@pytest.mark.parametrize("name", ROWS)
def test_a_stream_in_slots_is_the_layer_on_what_is_kept(name, num_sinks, window):
    layer, x = make_layer(name, "line"), tokens(30, batch=1)
    cache = SinkWindowCache(num_sinks, window)
    with torch.no_grad():
        for i in range(30):
            found = run(layer, x[:, i : i + 1], Positions.line(1, offset=i), CAUSAL, cache)
            kept = [j for j in range(i + 1) if j < num_sinks or j >= i - window]
            expected = run(layer, x[:, kept], Positions.line(len(kept)), CAUSAL)[:, -1:]
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["mta", "mta_conv"])
def test_earlier_queries_whose_keys_are_evicted_are_refused_in_text_positions(name):
    layer, x = make_layer(name, "line"), tokens(3)
    with pytest.raises(ValueError, match="queries before the present one"):
        layer(x, Positions.line(3), CAUSAL, SinkWindowCache(1, 4, renumber=False))
    net = Decoder(POSITION[name], vocab_size=5, num_scored=5, seq_len=16, embed_dim=32, depth=2, num_heads=2, mlp_ratio=2.0, **MODEL[name])
    how, why = streaming(net, renumber=False)
    assert how == "no" and "text positions" in why and streaming(net)[0] == "tokens"


@pytest.mark.parametrize("renumber", [True, False])
@pytest.mark.parametrize("chunk", [1, 16])
@pytest.mark.parametrize("name", ["rope", "alibi", "goat"])
def test_nothing_at_all_grows_with_a_stream(name, chunk, renumber):
    """Every storage that is alive between steps, of the cache and of what else a model remembers."""
    net = Decoder(name, OPTIONS.get(name), vocab_size=5, num_scored=5, seq_len=16, embed_dim=32, depth=2, num_heads=2, mlp_ratio=2.0)
    cache, levels = SinkWindowCache(4, 28, renumber), []
    ids = torch.zeros(1, 200 * chunk, dtype=torch.int64)
    with torch.no_grad(), LiveStorages() as live:
        start = 0
        for size in cache.steps(ids.shape[1], chunk):
            net.hidden(ids[:, start : start + size], cache=cache)
            start += size
            gc.collect(0)
            levels.append(live.level)
    half = len(levels) // 2
    assert max(levels[half:]) <= max(levels[:half])
