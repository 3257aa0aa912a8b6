"""What a trainer can be told that must not change what is trained, and what it does when memory does not suffice."""

from __future__ import annotations

import pytest
import torch
from domain_runs import RUNS, spec_of, train

from goatbench.compose import compose
from goatbench.execute import execute
from goatbench.training.module import TrainingModule


@pytest.mark.parametrize("domain", ["vision", "text"])
def test_recomputed_activations_train_the_same_weights(domain, tmp_path):
    """Drop path draws among them: the second forward pass of a block must drop what the first dropped."""
    plain, _ = train(spec_of(domain), tmp_path / "plain.pt")
    recomputed, _ = train(spec_of(domain, "trainer.checkpoint_activations=true"), tmp_path / "recomputed.pt")
    assert plain.keys() == recomputed.keys()
    for name in plain:
        torch.testing.assert_close(recomputed[name], plain[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # a compiler
def test_a_compiled_training_is_a_training(tmp_path):
    plain, _ = train(spec_of("text"), tmp_path / "plain.pt")
    compiled, _ = train(spec_of("text", "trainer.compile=true"), tmp_path / "compiled.pt")
    assert plain.keys() == compiled.keys()
    for name in plain:
        torch.testing.assert_close(compiled[name], plain[name], rtol=1e-3, atol=1e-4)


def test_out_of_memory_in_training_is_said_and_changes_no_batch(tmp_path, monkeypatch):
    def full(self, loss):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")

    monkeypatch.setattr(TrainingModule, "check_finite", full)
    record = execute(compose([*RUNS["toy"], f"runs_dir={tmp_path}"]))
    assert record.status == "oom" and "9.00 GiB" in record.error.message and record.measurements == []
    assert not list(tmp_path.rglob("weights.pt")) and record.config["training"]["batch_size"] == 4
