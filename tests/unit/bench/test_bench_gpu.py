"""The GPU benchmark's own code on a CPU, at tiny sizes: errors are those of half precision, and a wrong kernel is seen."""

import json
import math
import subprocess
import sys

import pytest
import torch

from goatbench import cli
from goatbench.attention.kernels.problem import Problem
from goatbench.attention.kernels.sdpa import Sdpa
from goatbench.bench import gpu, gpu_checks
from goatbench.errors import UsageError

CPU = torch.device("cpu")
TINY = gpu.Settings(tokens=64, flash_tokens=64, key_tokens=2048, shapes={(1, 64): 2}, steps_a_round=1)


@pytest.fixture(scope="module")
def found():
    return gpu.measure(TINY, CPU, gpu.Found())


def test_every_part_runs_and_keeps_its_bounds(found):
    assert not found.failed and gpu.exit_code(found) == 0
    compared = {(r.where, r.what.split(":")[0]) for r in found.results if r.part == "kernel"}
    schemes = (*gpu_checks.LANES, *gpu_checks.BIASES)
    assert compared == {(f"sdpa {dtype}", name) for dtype in ("bf16", "fp16") for name in schemes}
    assert {r.part for r in found.results} == {"kernel", "flash", "key term", "layer"}
    ratios = {r.what for r in found.results if r.part == "layer"}
    assert len(ratios) == 9 and "goat-append / plain, peak bytes" in ratios and "goat / plain, time" in ratios
    (append,) = [r.value for r in found.results if r.what == "goat-append / plain, saved bytes"]
    assert append > 1.03  # q, k and v are wider than those of plain
    assert sum(note.startswith("flex, ") and "no backward on a CPU" in note for note in found.notes) == 2 * len(schemes)
    assert sum("flash-attn" in note or "runs on CUDA only" in note for note in found.notes) == 2 * len(schemes)
    record = json.loads(gpu.record_bytes(found, TINY, CPU, "now"))
    assert len(record["results"]) == len(found.results) and record["settings"]["shapes"] == {"1x64": 2} and record["failed"] == {}
    assert "eligible" in gpu.render(found) and "not compared: flex, " in gpu.render(found)


def test_the_bounds_hold_at_the_sizes_of_the_script():
    """A rounding error that grows with the length is none at 64 tokens. Seen: the slope's gradient, far beyond a bound that held there;
    and then 0.11 in one process and 0.53 in another (bound 0.5), of a draw in which it all but cancels."""
    real, found = gpu.Settings(), gpu.Found()
    assert (real.tokens, real.key_tokens) == (1024, 65_536) and {1024, 32_768} <= {tokens for _, tokens in real.shapes}
    jobs = gpu.jobs_of(real, CPU)
    for label in ("kernel sdpa, goat, bf16", "kernel sdpa, goat, fp16", "key term"):
        jobs[label](found)
    assert len(found.results) == 10 and not [r for r in found.results if r.verdict != "PASS"]
    assert all(0 < r.value < 0.1 for r in found.results)


def test_the_command_prints_and_writes_its_record(tmp_path, capsys):
    path = tmp_path / "record.json"
    assert gpu.main(["--out", str(path)], CPU, TINY) == 0
    out = capsys.readouterr().out
    assert "key term sdpa bf16" in out and "FAILED" not in out
    kept = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert kept["bench"] == "gpu" and kept["failed"] == {} and kept["settings"]["tokens"] == TINY.tokens
    assert {"kernel", "flash", "key term", "layer"} == {r["part"] for r in kept["results"]}
    assert all(math.isfinite(r["value"]) for r in kept["results"])


class WithoutPrior(Sdpa):
    """Forgets the prior's lanes, as a kernel might that drops columns."""

    def __call__(self, problem: Problem):
        bare = type(problem.prior)(q_lanes=problem.prior.q_lanes * 0, k_lanes=problem.prior.k_lanes)
        return super().__call__(Problem(problem.q, problem.k, problem.v, bare, problem.mask, problem.scale))


def test_a_kernel_that_forgets_the_prior_is_seen():
    right, wrong = (gpu_checks.kernel_errors(kernel, "goat", 64, torch.bfloat16, CPU) for kernel in (Sdpa(), WithoutPrior()))
    for what, error in wrong.items():
        assert error > 0.05 > right[what] > 0, what
    for what in ("prior's gradient", "slope's gradient"):  # none arrives
        assert wrong[what] == pytest.approx(1, abs=1e-6) and wrong[what] > 1.5 * max(gpu.BOUNDS.get(what, gpu.GRADIENT_AT_MOST).values())


def test_a_job_that_fails_is_told_and_the_others_run(monkeypatch):
    monkeypatch.setattr(gpu, "jobs_of", lambda *_: {"bad": lambda found: 1 / 0, "good": lambda found: found.notes.append("ran")})
    found = gpu.measure(TINY, CPU, gpu.Found())
    assert found.failed == {"bad": "ZeroDivisionError: division by zero"} and found.notes == ["ran"] and gpu.exit_code(found) == 1
    late = gpu.measure(TINY, CPU, gpu.Found(), start_before=-1.0)
    assert set(late.failed) == {"bad", "good"} and "not begun" in late.failed["good"]


HANGING = """
import sys, time, torch
from goatbench.bench import gpu
gpu.END_SECONDS = 1.0
gpu.jobs_of = lambda *_: {"good": lambda found: found.notes.append("ran"), "stuck": lambda found: time.sleep(60)}
gpu.main(["--out", sys.argv[1]], torch.device("cpu"))
"""


def test_a_job_that_hangs_does_not_outlast_ten_minutes(tmp_path):
    assert gpu.START_BEFORE_SECONDS < gpu.END_SECONDS < 600
    path = tmp_path / "record.json"
    done = subprocess.run([sys.executable, "-c", HANGING, str(path)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1 and "FAILED stuck: not finished: 1 s were over" in done.stdout
    kept = json.loads(path.read_text())
    assert set(kept["failed"]) == {"stuck"} and kept["notes"] == ["ran"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_without_cuda_it_is_refused_in_one_line(tmp_path):
    with pytest.raises(UsageError, match="needs a CUDA device, and torch sees none") as caught:
        gpu.main(["--out", str(tmp_path / "record.json")])
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_the_command_line_says_so_too(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "gpu"])
    said = [line for line in capsys.readouterr().err.splitlines() if "loading" not in line]
    assert ended.value.code == 2 and said == ["goatbench: bench gpu needs a CUDA device, and torch sees none here; nothing was measured"]
