"""Made-up records and a made-up card; no number in them comes from the code under test."""

from __future__ import annotations

import pytest

from goatbench.records.record import RunRecord, TaskCard


@pytest.fixture
def card() -> TaskCard:
    return TaskCard(
        name="toy_ladder",
        version=2,
        domain="vision",
        summary="a toy",
        protocol="train small, test large",
        metrics=(
            {"name": "top1", "unit": "fraction", "direction": "higher", "chance": 0.1, "digits": 1, "percent": True},
            {"name": "nll_nats", "unit": "nats", "direction": "lower", "digits": 2},
        ),
        primary_metric="top1",
        primary_conditions={"nominal": 512},
        column_condition="nominal",
        column_label="resolution",
        row_conditions=("coords",),
        headline_rows={"coords": ("raw", "resampled", "none")},
        controls=("nope",),
        expected_time={"embedded": "a minute"},
        source="made up",
    )


@pytest.fixture
def make_record():
    """record(attention, seed, {'raw': {(224, 12): .73, (512, 28): .4}}, **changes) of the toy task."""

    def make(attention="goat", seed=0, scores=None, *, nll=None, run=0, status="ok", error=None, **changes) -> RunRecord:
        scores = {"raw": {(224, 12): 0.7, (512, 28): 0.4}} if scores is None else scores
        measurements = [
            {
                "metric": metric,
                "value": value if not isinstance(value, str) else None,
                "reason": value if isinstance(value, str) else None,
                "unit": unit,
                "n": 4000,
                "conditions": {"nominal": nominal, "resolution": pixels, "coords": coords, "split": "test"},
            }
            for metric, unit, table in (("top1", "fraction", scores), ("nll_nats", "nats", nll or {}))
            for coords, cells in table.items()
            for (nominal, pixels), value in cells.items()
        ]
        made = {
            "run_id": f"20260102t03040{run % 10}-0123abcd-{run:06x}",
            "status": status,
            "error": error,
            "task": {"name": "toy_ladder", "version": 2, "card_hash": "0123456789abcdef"},
            "scale": "embedded",
            "domain": "vision",
            "row": {"attention": attention},
            "seed": seed,
            "config": {"a": [1, 2.5, None]},
            "config_hash": "0123abcd",
            "model": {
                "name": "vit", "params_total": 450_000, "params_trainable": 450_000, "params_prior": 99, "head_dim": 32, "content_dim": 22,
                "num_lanes": 10, "lanes": "carve", "kernel_train": "sdpa", "kernel_eval": "sdpa",
            },
            "data": {"name": "toys", "fingerprint": "feedbeef01", "counts": {"test": 4000, "train": 12000}, "source": "real"},
            "code": {"version": "0.1.0", "commit": "c0ffee", "dirty": False, "source_hash": "abcdef0123456789"},
            "environment": {"cpu": "a cpu", "gpu": None},
            "budget": {"epochs": 6, "steps": 2250, "samples": 72000, "batch_size": 32},
            "training": {"training_hash": "0011223344", "reused": False, "learning_rate": 0.001, "learning_rate_source": "tuned: x"},
            "protocol": {"crop_pct": 1.0, "interpolation": "bicubic"},
            "measurements": measurements if status == "ok" else [],
            "costs": [{"name": "train_cpu_seconds", "value": 200.0 + run, "unit": "s", "method": "cpu_time"}],
            "started_at": "2026-01-02T03:04:00+00:00",
        }  # fmt: skip
        return RunRecord.model_validate(made | changes)

    return make
