"""Records that contradict themselves are refused: every edit of a published record that a reader could be misled by."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from pathlib import Path

import pytest

from goatbench.errors import UsageError
from goatbench.records.record import Measurement, RunRecord
from goatbench.records.submission import submit
from goatbench.verify import verify

RESULTS = Path(__file__).resolve().parents[3] / "results"
PUBLISHED = sorted(RESULTS.glob("*@v*/*/*/*.json"))
NEEDLE = json.loads(min((RESULTS / "needle@v1" / "embedded" / "goat").glob("*.json")).read_text())
ONE = json.loads(next(p for p in PUBLISHED if "vit_resolution@v1/embedded/rope_mixed/" in p.as_posix()).read_text())


def test_every_published_record_agrees_with_itself():
    assert {path.parts[-4] for path in PUBLISHED} == {path.name for path in RESULTS.glob("*@v*")}
    refused = {}
    for path in PUBLISHED:
        try:
            verify(RunRecord.model_validate_json(path.read_bytes()))
        except UsageError as error:
            refused[path.stem] = str(error)
    assert not refused


def _first(edited, name, /, **changes):
    next(m for m in edited["measurements"] if m["metric"] == name).update(changes)


def _below(measurements, nominal):
    return [m for m in measurements if m["conditions"]["nominal"] < nominal]


EDITS = {
    "attention": (lambda r: r["row"].update(attention="goat"), "attention is goat"),
    "scale": (lambda r: r.update(scale="smoke"), "scale is smoke"),
    "seed": (lambda r: r.update(seed=7), "seed is 7"),
    "config": (lambda r: r["config"]["training"].update(epochs=99), "config_hash"),
    "config key": (lambda r: r["config"]["training"].update(epoch=99), "config.training.epoch"),
    "task": (lambda r: r["task"].update(name="nosuch"), "task is nosuch"),
    "version": (lambda r: r["task"].update(version=99), "no version 99"),
    "hash": (lambda r: r.update(config_hash="0" * 16), "config_hash"),
    "budget": (lambda r: r["budget"].update(epochs=1), "budget"),
    "learning rate": (lambda r: r["training"].update(learning_rate=0.5), "learning rate"),
    "impossible score": (lambda r: _first(r, "top1", value=2.0), "outside"),
    "negative nll": (lambda r: _first(r, "nll_nats", value=-0.1), "outside"),
    "no examples": (lambda r: _first(r, "top1", n=0), "no example"),
    "other n": (lambda r: _first(r, "top1", n=3999), "4000"),
    "unit": (lambda r: _first(r, "top1", unit="percent"), "percent"),
    "metric": (lambda r: _first(r, "top1", metric="top2"), "top2"),
    "twice": (lambda r: r["measurements"].append(deepcopy(r["measurements"][0])), "2 times"),
    "dropped": (lambda r: r.update(measurements=r["measurements"][:1]), "missing"),
    "headline": (lambda r: r.update(measurements=_below(r["measurements"], 512)), "headline"),
    "time": (lambda r: r.update(finished_at="1970-01-01T00:00:00+00:00"), "before it started"),
    "interrupted": (lambda r: r.update(status="interrupted", error={"kind": "x", "message": "x"}, measurements=[]), "interrupted"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_record_is_refused(name):
    edit, says = EDITS[name]
    edited = deepcopy(ONE)
    verify(RunRecord.model_validate(edited))
    edit(edited)
    with pytest.raises(UsageError) as refusal:
        verify(RunRecord.model_validate(edited))
    assert says in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(("metric", "unit"), [("nll_nats", "nats/token"), ("bits_per_base", "bits/token"), ("perplexity", "tokens")])
def test_a_likelihood_per_token_is_not_submitted_as_one_per_base(tmp_path, metric, unit):
    """DNABERT_2 issue 46: the loss of a BPE token says nothing of a base. Every one of its measurements has the other unit."""
    edited = json.loads(min((RESULTS / "genome_nll@v1" / "embedded" / "goat").glob("*.json")).read_text())
    edited["examples"] = None
    verify(RunRecord.model_validate(edited))
    for m in edited["measurements"]:
        if m["metric"] == metric:
            m["unit"] = unit
    (tmp_path / "record.json").write_text(json.dumps(edited))
    (tmp_path / "results").mkdir()
    with pytest.raises(UsageError, match=f"{metric} is in {unit}, genome_nll measures it in (nats|bits|bases)$"):
        submit([tmp_path / "record.json"], tmp_path / "results", verify=verify)
    assert not list((tmp_path / "results").iterdir())


def _inflate(record, share=0.99, method=None):
    """Every exact match becomes `share`; with a method (p, n) -> standard error it goes along."""
    for m in record["measurements"]:
        if m["metric"] == "exact_match" and m["value"] is not None:
            m.update(value=share, stderr=m["stderr"] if method is None else method(share, m["n"]))


def _wilson_width(p, n, z=1.959964):
    """(upper - lower) / (2 z) of the score interval, written out."""
    return math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)


def _without_depths(record):
    _inflate(record, method=_wilson_width)
    record["curves"] = []


def _last_depths(record, bound="estimate"):
    curve = next(c for c in reversed(record["curves"]) if c["conditions"]["bound"] == bound)
    curve["y"] = [min(1.0, y + 0.01) if y < 0.5 else y - 0.01 for y in curve["y"]]


SHARES = {
    "score alone": (_inflate, "standard error"),
    "score and its error": (lambda r: _inflate(r, method=_wilson_width), "scores by depth have the mean"),
    "score, its error and the depths": (_without_depths, "exact_match = 0.99 is above"),
    "no error": (lambda r: [m.update(stderr=None) for m in r["measurements"]], "has no standard error"),
    "no error and no method": (lambda r: [m.update(stderr=None, stderr_method=None) for m in r["measurements"]], "has no standard error"),
    "no share of n": (lambda r: _inflate(r, 0.9901, _wilson_width), "no share of 500"),
    "depths": (_last_depths, "scores by depth"),
    "an interval": (lambda r: _last_depths(r, "wilson_high"), "Wilson bound"),
}


@pytest.mark.parametrize("name", SHARES)
def test_an_edited_share_is_refused_without_its_examples(name):
    edit, says = SHARES[name]
    edited = deepcopy(NEEDLE)
    edited["examples"] = None
    verify(RunRecord.model_validate(edited))
    edit(edited)
    with pytest.raises(UsageError, match=says):
        verify(RunRecord.model_validate(edited))


def test_an_edited_top1_does_not_fit_its_binomial_error():
    edited = deepcopy(ONE)
    first = next(m for m in edited["measurements"] if m["metric"] == "top1")
    first.update(value=round(4000 * first["value"] + 200) / 4000)
    with pytest.raises(UsageError, match=r"standard error .* \(binomial\)"):
        verify(RunRecord.model_validate(edited))


def test_shares_of_answers_of_different_lengths_have_no_order():
    """Three answers of one symbol all right, one of nine all wrong: 75 % of the answers, 25 % of the symbols."""
    from goatbench.tasks.retrieval import NEEDLE as TASK

    wilson = {"unit": "fraction", "stderr": 0.1, "stderr_method": "width of Wilson's 95 % interval / 3.92"}
    whole = Measurement(metric="exact_match", value=0.75, n=4, **wilson)
    symbols = {"metric": "token_accuracy", "value": 0.25, "n": 12}
    assert not list(TASK.contradictions([whole, Measurement(**symbols, **{**wilson, "stderr_method": "ratio estimator over sequences"})]))
    (said,) = TASK.contradictions([whole, Measurement(**symbols, **wilson)])
    assert said.startswith("exact_match = 0.75 is above token_accuracy = 0.25")
    yardstick = {"metric": "token_accuracy", "value": 0.5, "unit": "fraction", "n": 12, "conditions": {"reference": "best"}}
    assert not list(TASK.contradictions([whole, Measurement(**yardstick)]))
