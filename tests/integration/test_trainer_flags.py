"""What a trainer can be told that must not change what is trained, and what it does when memory does not suffice."""

from __future__ import annotations

import math

import pytest
import torch
from domain_runs import RUNS, overridden, spec_of, train
from torch._dynamo.backends.registry import lookup_backend

from goatbench.compose import compose
from goatbench.execute import execute
from goatbench.registry import tasks
from goatbench.training.module import TrainingModule


def train_and_count(spec, path):
    """Weights, and how often a training step goes through each block."""
    block, count = type(tasks.get(spec.task.name).model(spec).blocks[0]), 0

    def note(module, inputs):
        nonlocal count
        count += module.training and isinstance(module, block)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        weights, fit = train(spec, path)
    finally:
        handle.remove()
    return weights, count / (fit["steps"] * spec.model.depth)


@pytest.mark.parametrize("domain", ["vision", "text"])
def test_recomputed_activations_train_the_same_weights(domain, tmp_path):
    """Drop path draws among them: the second forward pass of a block must drop what the first dropped."""
    plain, once = train_and_count(spec_of(domain), tmp_path / "plain.pt")
    recomputed, twice = train_and_count(spec_of(domain, "trainer.checkpoint_activations=true"), tmp_path / "recomputed.pt")
    assert (once, twice) == (1, 2) and plain.keys() == recomputed.keys()
    for name in plain:
        torch.testing.assert_close(recomputed[name], plain[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("domain", ["vision", "text", "toy"])
def test_trainer_compile_traces_the_net_that_is_trained(domain, tmp_path, monkeypatch):
    """Everything of torch.compile but the writing and compiling of machine code, which is in the slow test. toy: only the last tokens
    reach the head, so that training does not call the net as a whole."""
    trained, compile_any = [], torch.compile

    def traced(graph, inputs):
        trained.append(torch.is_grad_enabled())
        return lookup_backend("aot_eager")(graph, inputs)

    small = ["training.epochs=1", *(["model.drop_path=0", "data.augmentation.mixup=0"] if domain == "vision" else [])]
    plain, _ = train(spec_of(domain, *small), tmp_path / "plain.pt")
    monkeypatch.setattr(torch, "compile", lambda function: compile_any(function, backend=traced))
    compiled, _ = train(spec_of(domain, *small, "trainer.compile=true"), tmp_path / "compiled.pt")
    assert any(trained) and plain.keys() == compiled.keys()
    for name in plain:
        torch.testing.assert_close(compiled[name], plain[name], rtol=1e-3, atol=1e-3)


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


@pytest.fixture
def linear_dtypes(monkeypatch):
    """phase -> dtypes that the linear layers gave in 'training', 'validation' and 'evaluation' of the runs that follow."""
    found, phase = {}, [None]

    def enter(task, method, name):
        plain = getattr(task, method)

        def entered(self, *args, **kwargs):
            phase[0] = name
            try:
                return plain(self, *args, **kwargs)
            finally:
                phase[0] = None

        monkeypatch.setattr(task, method, entered)

    for name in ("vit_res224", "lm_length"):
        enter(type(tasks.get(name)), "train", "training")
        enter(type(tasks.get(name)), "measure", "evaluation")

    def note(module, inputs, output):
        if phase[0] is not None and isinstance(module, torch.nn.Linear):
            key = "validation" if phase[0] == "training" and not module.training else phase[0]
            found.setdefault(key, set()).add(output.dtype)

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    yield found
    handle.remove()


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("domain", ["vision", "text"])
def test_the_precision_asked_for_is_that_of_training_and_evaluation(domain, precision, linear_dtypes, tmp_path):
    """Of the weights that were just trained and of those found again."""
    small = ["attention=nope", "training.epochs=1", "data.num_train=9"]  # nope: priors compute in float32, whatever is asked for
    run = overridden(domain, *small, f"trainer.precision={precision}", f"runs_dir={tmp_path}")
    record = execute(compose(run))
    assert record.status == "ok" and record.budget.steps == 2 and record.protocol["dtype"] == precision, record.error
    assert linear_dtypes == {phase: {torch.bfloat16} for phase in ("training", "validation", "evaluation")}
    linear_dtypes.clear()
    again = execute(compose(run))
    assert again.training.reused and linear_dtypes == {"evaluation": {torch.bfloat16}}
    values = [m.value for m in record.measurements]
    assert values == [m.value for m in again.measurements]
    assert any(value is not None for value in values)
    assert all(math.isfinite(value) for value in values if value is not None)
