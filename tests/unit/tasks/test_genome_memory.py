"""What the task makes of the points it is given: one plain row by length, reasons where there is no value."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from goatbench.compose import compose
from goatbench.records.record import RunRecord
from goatbench.registry import tasks
from goatbench.training import step_cost
from goatbench.verify import verify

POINT = dict.fromkeys(("peak", "state", "saved", "forward", "backward", "optimizer", "inference"), 3 * 2**20)


def made_up(spec, length, batch, method):
    if length == 128 and method == "allocations":
        return {"refused": "out of memory"}
    if method == "rss":
        return {"peak": 5 * 2**20, "flops_per_token": 1000}
    speed = {"tokens_per_second": 10.0, "timed_steps": 4} if method == "allocations" else {}
    return POINT | speed | {"flops_per_token": 1000}


@pytest.fixture
def outcome(monkeypatch):
    monkeypatch.setattr(step_cost, "measure_in_fresh_process", made_up)
    composed = compose(["task=genome_memory", "scale=smoke", "attention=rope"])
    spec = (composed[0] if isinstance(composed, list) else composed).spec
    task = tasks.get("genome_memory")
    return task.measure(spec, None, task.data(spec), None)


def test_a_point_out_of_memory_has_a_reason_and_the_others_go_on(outcome):
    cells = {(m.metric, m.conditions["length"], m.conditions["method"]): m for m in outcome.measurements}
    assert len(cells) == 9 * 2 * 3 == len(outcome.measurements)
    gone = cells["peak_mib", 128, "allocations"]
    assert (gone.value, gone.n, gone.reason) == (None, 0, "not applicable: out of memory")
    assert gone.conditions["length_share"] == 1.0
    kept = cells["peak_mib", 64, "allocations"]
    assert (kept.value, kept.n, kept.conditions["length_share"]) == (3.0, 1, 0.5)
    assert cells["tokens_per_second", 64, "allocations"].n == 4
    assert cells["saved_mib", 128, "rss"].reason.startswith("not applicable: freed memory")
    assert cells["tokens_per_second", 128, "estimate"].reason == "not applicable: fake tensors compute nothing"
    curves = {curve.conditions["method"]: (curve.x, curve.y) for curve in outcome.curves}
    assert curves == {"allocations": ([64.0], [3.0]), "rss": ([64.0, 128.0], [5.0, 5.0]), "estimate": ([64.0, 128.0], [3.0, 3.0])}


def test_a_length_that_does_not_fit_ends_no_run_before_it_is_measured(monkeypatch):
    asked = []

    def kernels_at(spec, length, batch, device):
        asked.append(length)
        if length > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")
        return "sdpa-flash", "sdpa-math"

    monkeypatch.setattr(step_cost, "kernels_at", kernels_at)
    spec = compose(["task=genome_memory", "scale=smoke", "attention=rope", "evaluation.lengths=[64,256,128]"]).spec
    task = tasks.get("genome_memory")
    info = task.model_info(spec, task.model(spec))
    assert (info["kernel_train"], info["kernel_eval"], asked) == ("sdpa-flash", "sdpa-math", [256, 128, 64])


@pytest.mark.slow
def test_a_run_at_scale_smoke(tmp_path):
    command = [sys.executable, "-P", "-m", "goatbench", "run", "task=genome_memory", "scale=smoke", "attention=rope"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("runs/2*/record.json")
    record = RunRecord.model_validate_json(path.read_text())
    verify(record)
    values = {(m.metric, m.conditions["length"], m.conditions["method"]): m.value for m in record.measurements}
    for length in (64, 128):
        assert values["peak_mib", length, "estimate"] == pytest.approx(values["peak_mib", length, "allocations"], rel=0.01)
        assert values["tokens_per_second", length, "allocations"] > 0
        assert values["peak_mib", length, "rss"] > values["peak_mib", length, "allocations"]
    assert record.model.kernel_train == "sdpa-flash" and record.training is None
    assert record.data.source.startswith("synthetic")
    assert {"peak_memory.png", "peak_memory.svg"} <= set(record.artifacts)
    assert all((path.parent / name).stat().st_size > 1000 for name in record.artifacts)
    board = [sys.executable, "-P", "-m", "goatbench", "leaderboard", "task=genome_memory", "--scale", "smoke"]
    shown = subprocess.run(board, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0 and "rope[method=estimate]" in shown.stdout, shown.stderr
    assert "128 (1.0)" in shown.stdout and json.loads(path.read_text())["protocol"]["lengths"] == "64 128"
