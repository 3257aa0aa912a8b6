"""The GPU benchmark's own code on a CPU, at tiny sizes: errors are those of half precision, and a wrong kernel is seen."""

import json

import pytest
import torch

from goatbench.attention.kernels.problem import Problem
from goatbench.attention.kernels.sdpa import Sdpa
from goatbench.bench import gpu, gpu_checks
from goatbench.errors import UsageError

CPU = torch.device("cpu")
TINY = gpu.Settings(tokens=64, flash_tokens=64, key_tokens=2048, shapes={(1, 64): 2}, steps_a_round=1)


@pytest.fixture(scope="module")
def found():
    return gpu.measure(TINY, CPU)


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


class WithoutPrior(Sdpa):
    """Forgets the prior's lanes, as a kernel might that drops columns."""

    def __call__(self, problem: Problem):
        bare = type(problem.prior)(q_lanes=problem.prior.q_lanes * 0, k_lanes=problem.prior.k_lanes)
        return super().__call__(Problem(problem.q, problem.k, problem.v, bare, problem.mask, problem.scale))


def test_a_kernel_that_forgets_the_prior_is_seen():
    right, wrong = (gpu_checks.kernel_errors(kernel, "goat", 64, torch.bfloat16, CPU) for kernel in (Sdpa(), WithoutPrior()))
    for what, error in wrong.items():
        assert error > 0.05 > right[what] > 0, what
    assert wrong["prior's gradient"] == pytest.approx(1, abs=1e-6)  # none arrives


def test_a_job_that_fails_is_told_and_the_others_run(monkeypatch):
    monkeypatch.setattr(gpu, "jobs_of", lambda *_: {"bad": lambda found: 1 / 0, "good": lambda found: found.notes.append("ran")})
    found = gpu.measure(TINY, CPU)
    assert found.failed == {"bad": "ZeroDivisionError: division by zero"} and found.notes == ["ran"] and gpu.exit_code(found) == 1
    late = gpu.measure(TINY, CPU, start_before=-1.0)
    assert set(late.failed) == {"bad", "good"} and "not begun" in late.failed["good"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_without_cuda_it_is_refused_in_one_line(tmp_path):
    with pytest.raises(UsageError, match="needs a CUDA device, and torch sees none") as caught:
        gpu.main(["--out", str(tmp_path / "record.json")])
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())
