"""The text and toy tasks at smoke scale, in this process: records, columns, limits, mistakes."""

from __future__ import annotations

import math

import pytest
import torch

from goatbench.attention.sink_window_cache import SinkWindowCache
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.execute import execute
from goatbench.models import Decoder
from goatbench.models.streaming import Streamed
from goatbench.records.grouping import group_records
from goatbench.registry import tasks

METRICS = ("bits_per_byte", "bits_change")
SMALL = ["scale=smoke", "evaluation.batch_tokens=4096"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOATBENCH_CACHE", str(folder / "cache"))
        yield lambda *overrides: execute(compose([*overrides, *SMALL, f"runs_dir={folder / 'runs'}"]))


@pytest.fixture(scope="module")
def length(run):
    return run("task=lm_length", "attention=goat")


@pytest.fixture(scope="module")
def found(run):
    return run("task=needle", "attention=goat")


@pytest.fixture(scope="module")
def turned(run):
    """One needle with plain RoPE."""
    return run("task=needle", "attention=rope", "task.multiples=[1,2,4]")


def cells(record, metric, **conditions):
    """multiple -> measurement."""
    chosen = [m for m in record.measurements if m.metric == metric and conditions.items() <= m.conditions.items()]
    return {m.conditions["multiple"]: m for m in chosen}


def test_both_protocols_of_lm_length(length):
    assert length.status == "ok", length.error
    same, cut = (cells(length, "bits_per_byte", protocol=p) for p in ("same_target", "non_overlapping"))
    assert list(same) == list(cut) == [1, 2, 4, 8, 16]
    assert {m.n for m in same.values()} == {4 * 16} and {m.n for m in cut.values()} == {2 * 1024}
    assert [m.conditions["window"] for m in same.values()] == [64, 128, 256, 512, 1024] == [m.conditions["stride"] for m in cut.values()]
    assert {m.conditions["stride"] for m in same.values()} == {16}
    assert all(5 < m.value < 8.2 for m in (*same.values(), *cut.values()))  # eight steps: less than 8 bits, far from English's 2


def test_one_sum_gives_nats_bits_and_perplexity(length):
    for protocol in ("same_target", "non_overlapping"):
        bits, nats, ppl = (cells(length, metric, protocol=protocol) for metric in ("bits_per_byte", "nll_nats", "perplexity"))
        for multiple in bits:
            assert bits[multiple].value == pytest.approx(nats[multiple].value / math.log(2), rel=1e-12)
            assert ppl[multiple].value == pytest.approx(math.exp(nats[multiple].value), rel=1e-12)
    change = cells(length, "bits_change", protocol="same_target")
    bits = cells(length, "bits_per_byte", protocol="same_target")
    assert change[1].value == 0
    assert change[16].value == pytest.approx(bits[16].value - bits[1].value, abs=1e-9) and change[16].stderr > 0
    assert cells(length, "bits_change", protocol="non_overlapping")[2].reason.startswith("not applicable")


def test_the_curve_is_the_same_sum_by_position(length):
    for multiple, context in ((1, 64), (16, 1024)):
        (curve,) = [c for c in length.curves if c.conditions["multiple"] == multiple]
        mean = cells(length, "bits_per_byte", protocol="non_overlapping")[multiple].value
        assert sum(curve.y) / len(curve.y) == pytest.approx(mean, rel=1e-9) and curve.x[-1] <= context


def test_what_the_record_says_of_the_text(length):
    assert length.data.counts["train documents"] == 174 and "State of the Union" in length.data.source
    assert length.protocol["tokens"] == "bytes" and length.training.selected_on == "validation NLL"


def test_needle_counts_whole_answers(found):
    assert found.status == "ok", found.error
    exact, tokens = cells(found, "exact_match"), cells(found, "token_accuracy")
    assert list(exact) == [1, 2, 4, 8, 16] and [m.conditions["length"] for m in exact.values()] == [32, 64, 128, 256, 512]
    assert {m.n for m in exact.values()} == {5 * 4} and {m.n for m in tokens.values()} == {5 * 4 * 2}
    assert all(exact[m].value <= tokens[m].value and exact[m].stderr > 0 for m in exact)
    assert all(2 < m.value < 5 for m in cells(found, "nll_nats").values())  # ln 24 = 3.2: nothing is learned in 8 steps
    assert any("not learned" in note for note in found.notes)


def test_the_grid_agrees_with_the_column(found):
    for multiple, measurement in cells(found, "exact_match").items():
        curves = {c.conditions["bound"]: c for c in found.curves if c.conditions["multiple"] == multiple}
        assert curves["estimate"].x == [0, 0.25, 0.5, 0.75, 1] and curves["estimate"].n == 4
        assert sum(curves["estimate"].y) / 5 == pytest.approx(measurement.value)
        ends = zip(curves["wilson_low"].y, curves["estimate"].y, curves["wilson_high"].y, strict=True)
        assert all(0 <= low <= rate <= high <= 1 and low < high for low, rate, high in ends)
        zero = [high for high, rate in zip(curves["wilson_high"].y, curves["estimate"].y, strict=True) if rate == 0]
        assert all(high == pytest.approx(3.8415 / (4 + 3.8415), abs=1e-4) for high in zero)  # z^2 / (n + z^2), by hand


def test_rope_is_also_measured_under_its_scalings(turned):
    """From the same weights, beyond the training length only; the plain row carries no condition, as in records without variants."""
    assert turned.status == "ok", turned.error
    nll = {}
    for m in turned.measurements:
        if m.metric == "nll_nats":
            nll.setdefault(m.conditions.get("rope_scaling"), {})[m.conditions["multiple"]] = m.value
    assert {name: list(values) for name, values in nll.items()} == {None: [1, 2, 4], "pi": [2, 4], "ntk": [2, 4], "yarn": [2, 4]}
    assert len({nll[name][4] for name in nll}) == 4
    assert {c.conditions.get("rope_scaling") for c in turned.curves if c.conditions["multiple"] == 4} == {None, "pi", "ntk", "yarn"}


def test_lm_length_scales_rope_on_the_same_targets_only(run):
    record = run("task=lm_length", "attention=rope", "task.multiples=[1,2]", "evaluation.num_spans=1")
    assert record.status == "ok", record.error
    scaled = [m for m in record.measurements if "rope_scaling" in m.conditions]
    assert {(m.conditions["protocol"], m.conditions["multiple"]) for m in scaled} == {("same_target", 2)}
    plain = cells(record, "bits_per_byte", protocol="same_target")[1].value
    for name in ("pi", "ntk", "yarn"):
        [bits], [change] = ([m for m in scaled if m.metric == x and m.conditions["rope_scaling"] == name] for x in METRICS)
        assert change.value == pytest.approx(bits.value - plain, abs=1e-9)


def test_babilong_scales_rope_beyond_the_training_length(run):
    """Kinds and all, but yardsticks once: a reader of labels has no positions."""
    record = run("task=babilong", "attention=rope", "task.multiples=[1,2]", "data.num_test=2")
    assert record.status == "ok", record.error
    own = [m for m in record.measurements if "reference" not in m.conditions and m.metric == "nll_nats"]
    kinds = {m.conditions["qa"] for m in own}
    scaled = [(m.conditions["qa"], m.conditions["rope_scaling"], m.conditions["multiple"]) for m in own if "rope_scaling" in m.conditions]
    assert len(kinds) == 6 and sorted(scaled) == [(kind, name, 2) for kind in sorted(kinds) for name in ("ntk", "pi", "yarn")]
    assert len({m.value for m in own if m.conditions["qa"] == "all" and m.conditions["multiple"] == 2}) == 4
    yardsticks = [m for m in record.measurements if "reference" in m.conditions]
    assert len(yardsticks) == 2 * 6 * 2 and not any("rope_scaling" in m.conditions for m in yardsticks)


def test_lambada_scales_rope_where_passages_are_longer_than_training(run):
    """At the training length, the only one by default, there is nothing to scale."""
    record = run("task=lambada", "attention=rope", "task.multiples=[1,2]", "evaluation.num_passages=4")
    assert record.status == "ok", record.error
    nll = [m for m in record.measurements if m.metric == "nll_nats"]
    found = [(m.conditions["multiple"], m.conditions.get("rope_scaling")) for m in nll]
    assert found == [(1, None), (2, None), (2, "pi"), (2, "ntk"), (2, "yarn")]
    assert len({m.value for m in nll}) == 5


@pytest.mark.parametrize(("task", "metric"), [("lm_length", "bits_per_byte"), ("needle", "exact_match")])
def test_a_table_of_positions_ends_where_it_ends(run, task, metric):
    record = run(f"task={task}", "attention=learned_absolute")
    assert record.status == "ok", record.error
    measured = [m for m in record.measurements if m.metric == metric]
    assert all((m.value is not None) == (m.conditions["multiple"] == 1) for m in measured)
    assert all("no learned entry" in m.reason for m in measured if m.value is None)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["task=lm_length", "data=text_files"], "data.path=PATH"),
        (["task=lm_length", "data.path=x.txt"], "data=text_files"),
        (["task=lm_length", "task.multiples=[100000]"], "no test document has"),
        (["task=lm_length", "evaluation.num_blocks=10000000"], "windows of 1024 bytes"),
        (["task=lm_length", "model=decoder_toy"], "vocab_size 257"),
        (["task=lm_length", "evaluation.num_targets=65"], "num_targets"),
        (["task=lm_length", "training.batch_size=1000"], "batch_size"),
        (["task=lm_length", "attention=rope_axial"], "rope"),
        (["task=needle", "model=decoder_text_nano"], "num_scored 24"),
        (["task=needle", "data.min_length=100"], "min_length"),
        (["task=needle", "evaluation.depths=[2]"], "depths"),
        (["task=needle", "training.batch_size=1000"], "batch_size"),
    ],
)
def test_mistakes_are_one_line(run, overrides, says):
    with pytest.raises(UsageError) as raised:
        run(*overrides)
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_streaming_rows_of_lm_length(run):
    """At the training length nothing is evicted: the stream is the window. Beyond it, memory and slots are those of one length."""
    record = run("task=lm_length", "attention=rope", "evaluation.streaming=true")
    assert record.status == "ok", record.error
    same, streamed = (cells(record, "nll_nats", protocol=p) for p in ("same_target", "streaming"))
    assert list(streamed) == [1, 2, 4, 8, 16] and {m.n for m in streamed.values()} == {4 * 16}
    assert {(m.conditions["window"], m.conditions["num_sinks"]) for m in streamed.values()} == {(64, 4)}
    assert streamed[1].value == pytest.approx(same[1].value, abs=1e-6)
    assert all(abs(streamed[m].value - same[m].value) > 1e-6 for m in (2, 4, 8, 16))
    change = cells(record, "bits_change", protocol="streaming")
    assert change[1].value == 0 and change[16].value == pytest.approx((streamed[16].value - streamed[1].value) / math.log(2), abs=1e-9)
    card = tasks.get("lm_length").card
    (board,) = group_records(card, next(m for m in card.metrics if m.name == "bits_per_byte"), [record], [])
    assert sum("protocol=streaming" in name for name in board.rows) == 1 and len(board.rows) == 6  # and plain, windows, three scalings
    refused = run("task=lm_length", "attention=sinusoidal", "evaluation.streaming=true")
    absent = cells(refused, "bits_per_byte", protocol="streaming")
    assert list(absent) == [1, 2, 4, 8, 16]
    assert all(m.value is None and "at the input" in m.reason for m in absent.values())


def test_first_tokens_and_places_are_asked_apart(run):
    """evaluation.streaming_grid: with and without first tokens, places in the cache or in the text; without the option the run is as
    before, also by its hash."""
    small = ("task=lm_length", "attention=alibi", "task.multiples=[1,4]", "evaluation.num_spans=1", "evaluation.streaming=true")
    record = run(*small, "evaluation.streaming_grid=true")
    assert record.status == "ok", record.error
    names = ("streaming", "streaming_text_positions", "window", "window_text_positions")
    kept, kept_in_text, window, window_in_text = (cells(record, "nll_nats", protocol=p) for p in names)
    for found in (kept, kept_in_text, window, window_in_text):
        assert found[1].value == pytest.approx(kept[1].value, abs=1e-6)
    assert {(m.conditions["window"], m.conditions["num_sinks"]) for m in window.values()} == {(68, 0)}
    different = [found[4].value for found in (kept, kept_in_text, window)]  # by little: eight steps of training
    assert all(abs(a - b) > 1e-6 for i, a in enumerate(different) for b in different[:i]), different
    assert window[4].value == pytest.approx(window_in_text[4].value, abs=3e-7)  # alibi sees offsets only
    assert "streaming_grid" not in compose([*small]).spec.identity["evaluation"]
    with pytest.raises(UsageError, match="set streaming=true"):
        run("task=lm_length", "attention=alibi", "evaluation.streaming_grid=true")


def test_the_learned_token_of_a_row_is_a_sink_of_its_streams(run):
    small = ("task.multiples=[1,2]", "evaluation.num_spans=1", "evaluation.streaming=true", "evaluation.streaming_grid=true")
    record = run("task=lm_length", "attention=sink_token", *small)
    assert record.status == "ok", record.error
    same, streamed = (cells(record, "nll_nats", protocol=p) for p in ("same_target", "streaming"))
    assert streamed[1].value == pytest.approx(same[1].value, abs=1e-6) and streamed[2].value is not None
    assert "cannot do without" in cells(record, "nll_nats", protocol="window")[2].reason


def test_what_cannot_stream_in_chunks_streams_token_by_token(run):
    small = ("task.multiples=[1,2]", "evaluation.num_spans=1", "evaluation.streaming=true")
    record = run("task=lm_length", "attention=diff_v1", *small)
    assert record.status == "ok", record.error
    same, streamed = (cells(record, "nll_nats", protocol=p) for p in ("same_target", "streaming"))
    assert streamed[1].value == pytest.approx(same[1].value, abs=1e-6)
    assert abs(streamed[2].value - same[2].value) > 1e-6


def test_the_stream_holds_no_more_than_sinks_window_and_chunk():
    sizes = dict(vocab_size=257, num_scored=256, seq_len=16, embed_dim=32, depth=2, num_heads=1)
    net = Decoder("goat", {"num_frequencies": 2, "min_period": 3.0}, **sizes)
    stream, tokens = Streamed(net.eval(), 4, 16, last=5, chunk=8), torch.randint(256, (2, 300))
    held, update = [], stream.cache.update

    def watched(*arguments):
        result = update(*arguments)
        held.append(stream.cache.num_cached)
        return result

    stream.cache.update = watched
    with torch.inference_mode():
        hidden = stream.hidden(tokens)
        one = SinkWindowCache(4, 16)
        expected = torch.cat([net.hidden(tokens[:, i : i + 1], cache=one) for i in range(300)], dim=1)
    assert max(held) == 4 + 16 + 8
    torch.testing.assert_close(hidden, expected[:, -5:], rtol=0, atol=1e-5)
