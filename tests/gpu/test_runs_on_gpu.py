"""Whole runs, from the command's words to the record, on the GPU where there is one."""

from __future__ import annotations

import pytest

from goatbench.compose import compose
from goatbench.execute import execute

RUNS = [["task=vit_res224"], ["task=genome_nll"], ["task=lm_length"], ["task=lm_length", "data.packing=documents"], ["task=mad_recall"]]


@pytest.mark.parametrize("attention", ["goat", "t5"])
@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_a_run_is_trained_measured_and_recorded(run, attention, device, tmp_path):
    if "vit" in run[0] and attention == "t5":
        attention = "rpb"
    trainer = ["trainer=gpu", "trainer.devices=1"] if device.type == "cuda" else ["trainer=cpu", "trainer.precision=bf16-mixed"]
    record = execute(compose([*run, f"attention={attention}", "scale=smoke", *trainer, f"runs_dir={tmp_path}"]))
    assert record.status.value == "ok", record.error
    assert record.model.kernel_train and record.model.kernel_eval and record.environment["precision"] == "bf16-mixed"


@pytest.mark.parametrize("kernel", ["sdpa", "flex", "flash"])
def test_a_kernel_that_is_asked_for_is_used(kernel, device, tmp_path):
    if device.type == "cpu" and kernel != "sdpa":
        pytest.skip(f"{kernel} has no backward pass on a CPU")
    if kernel == "flash":
        pytest.importorskip("flash_attn")
    trainer = ["trainer=gpu", "trainer.devices=1"] if device.type == "cuda" else ["trainer=cpu"]
    record = execute(compose(["task=needle", "attention=goat", "scale=smoke", f"kernel={kernel}", *trainer, f"runs_dir={tmp_path}"]))
    assert record.status.value == "ok" and record.model.kernel_train.startswith(kernel)
