"""The command: what it refuses, what it writes, and how it judges."""

import json

import pytest
import torch

from goatbench.attention.positions import Positions
from goatbench.bench import attention, parts, table, targets
from goatbench.bench.arguments import ATTENTION_PARTS
from goatbench.bench.parts import Measured, Settings
from goatbench.bench.timing import Quartiles
from goatbench.bench.variants import build
from goatbench.errors import UsageError


def quartiles(median):
    return Quartiles(median, median - 0.1, median + 0.1, median - 0.2, 9)


def test_quick_measures_prints_and_writes_one_strict_record(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert attention.main(["--quick", "--only", "preparation, layer", "--out", str(out)]) == 0
    record = json.loads(out.read_bytes(), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert record["settings"]["parts"] == ["layer", "preparation"]
    assert set(record["seconds"]["layer"]["2x64"]) >= {"plain", "rope", "goat", "goat-append", "goat_reference"}
    assert all(len(s) == 2 and min(s) > 0 for s in record["seconds"]["layer"]["2x64"].values())
    assert {r["verdict"] for r in record["results"]} == {"-"}  # two rounds of tiny shapes judge nothing
    assert record["environment"]["threads"] == 1 and len(record["code"]["source_hash"]) == 16
    text = capsys.readouterr().out
    assert "goat / plain" in text and "not judged" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("note", "record"))) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "layers"], "layers"),
        (["--only", ","], "no part"),
        (["--rounds", "3"], "--rounds"),
        (["--out", "nowhere/x.json"], "nowhere"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_measured(arguments, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attention, "measure", lambda *_: pytest.fail("measured"))
    with pytest.raises(UsageError, match=words) as error:
        attention.main(arguments)
    assert "\n" not in str(error.value)


def test_a_record_is_never_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "measure", lambda *_: pytest.fail("measured"))
    out = tmp_path / "bench.json"
    out.write_text("mine")
    with pytest.raises(UsageError, match="never overwritten"):
        attention.main(["--out", str(out)])
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("pair", "tokens", "value", "verdict"),
    [
        (("goat", "plain"), 197, 1.05, "PASS"),
        (("goat", "plain"), 197, 1.051, "MISS"),
        (("goat", "rope-tables"), 4096, 1.00, "PASS"),
        (("goat", "rope"), 4096, 1.01, "MISS"),
        (("goat-attention", "goat"), 197, 1.09, "MISS"),
        (("goat-attention", "goat"), 1024, 1.00, "PASS"),
        (("goat-attention", "goat"), 1025, 0.99, "MISS"),
        (("goat-append", "plain"), 197, 1.30, "-"),
    ],
)
def test_time_ratios_are_judged_on_the_median(pair, tokens, value, verdict):
    (result,) = targets.judge_times("layer", "somewhere", tokens, {pair: quartiles(value)})
    assert (result.value, result.verdict) == (value, verdict)


def test_goat_is_judged_against_the_faster_rope():
    seconds = {"plain": [1.0] * 3, "rope": [3.0] * 3, "rope-tables": [2.0] * 3, "goat": [2.5] * 3}
    assert parts._ratios(seconds)[("goat", "rope-tables")].median == 1.25
    assert ("goat", "rope") not in parts._ratios(seconds)


def test_a_miss_is_printed():
    measured = Measured()
    measured.add(Settings.full(), targets.judge_times("layer", "8x197", 197, {("goat", "plain"): quartiles(1.2)}))
    (line,) = [line for line in table.render(measured, Settings.full()).splitlines() if "goat / plain" in line]
    assert line.endswith("<= 1.05  MISS") and "1.200" in line and "[1.10,1.30]" in line


def test_help_names_the_parts_that_exist():
    assert tuple(parts.PARTS) == ATTENTION_PARTS


def test_costs_of_the_progress_display_add_up():
    for part, jobs_of in parts.PARTS.items():
        if part in ("memory", "compile", "bf16"):
            continue
        for job in jobs_of(Settings.quick()):
            done = []
            job.run(Measured(), done.append)
            assert sum(done) == job.cost, part


def test_goat_in_carve_mode_has_16_lanes_and_rope_with_tables_is_rope():
    goat = build("goat", 32).attention
    assert goat.scheme.num_lanes == 16 and goat.head_layout.content_dim == 48
    x = torch.randn(2, 32, 384)
    at = Positions.line(32)
    torch.testing.assert_close(build("rope-tables", 32)(x, at), build("rope", 32)(x, at), rtol=0, atol=0)
