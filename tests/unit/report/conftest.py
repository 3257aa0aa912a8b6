"""Made-up records of the needle task; no number in them comes from the code under test."""

from __future__ import annotations

import pytest

from goatbench.records.record import RunRecord

NOISE = (0.0, 0.01, -0.01)  # by seed, the same for every attention: differences between attentions are clean


@pytest.fixture
def make_record():
    """record(attention, seed, {32: .9, 64: .5}, cost=30.0, **changes): exact match by length, trained at 32."""

    def make(attention="goat", seed=0, scores=None, *, cost=30.0, run=None, **changes) -> RunRecord:
        scores = {32: 0.99, 64: 0.9, 512: 0.5} if scores is None else scores
        measurements, curves = [], []
        for length, value in scores.items():
            where = {"multiple": length // 32, "length": length, "split": "test"}
            measurements.append({"metric": "exact_match", "value": value, "unit": "fraction", "n": 200, "conditions": where})
            curve = {"name": "exact_match", "unit": "fraction", "x_name": "depth", "x": [0, 1], "y": [value, value], "n": 100}
            curves.append({**curve, "conditions": {**where, "bound": "estimate"}})
        number = run if run is not None else 10 * sum(attention.encode()) + seed
        made = {
            "run_id": f"20260102t03040{seed}-0123abcd-{number:06x}", "status": "ok", "scale": "embedded", "domain": "toy",
            "task": {"name": "needle", "version": 1, "card_hash": "0123456789abcdef"}, "row": {"attention": attention}, "seed": seed,
            "config": {}, "config_hash": "0123abcd", "overrides": ["task=needle", f"attention={attention}", f"seed={seed}"],
            "model": {
                "name": "decoder", "params_total": 450_000, "params_trainable": 450_000, "params_prior": 99, "head_dim": 32,
                "content_dim": 22, "num_lanes": 10, "lanes": "carve", "kernel_train": "sdpa", "kernel_eval": "sdpa",
            },
            "data": {"name": "needle", "fingerprint": "feedbeef01", "counts": {"train": 3200}, "source": "synthetic, https://example.org"},
            "code": {"version": "0.1.0", "commit": "c0ffee", "dirty": False, "source_hash": "abcdef0123456789"},
            "costs": [{"name": "train_cpu_seconds", "value": cost, "unit": "s", "method": "process CPU time, rank 0"}],
            "environment": {"cpu": "made up", "python": "3.11"},
            "measurements": measurements, "curves": curves, "started_at": "2026-01-02T03:04:00+00:00",
        }  # fmt: skip
        return RunRecord.model_validate(made | changes)

    return make


@pytest.fixture
def make_rows(make_record):
    """records({'goat': .9, 'rope': .5}, seeds=3): exact match at 512 by attention, the same noise over seeds for all but a little."""

    def make(means: dict[str, float], seeds: int = 3) -> list[RunRecord]:
        records = []
        for place, (attention, mean) in enumerate(means.items()):
            for seed in range(seeds):
                own = 0.001 * ((seed + place) % 3)  # else differences have no spread, and no test is possible
                scores = {32: 1.0, 64: 0.95, 512: mean + NOISE[seed] + own}
                records.append(make_record(attention, seed, scores, cost=30.0 + place))
        return records

    return make
