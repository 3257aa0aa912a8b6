"""The kernels of a record are those of the run: seen in its precision, with its determinism and batch, on its device."""

from __future__ import annotations

import pytest
import torch

from goatbench.attention.kernels.sdpa import Sdpa
from goatbench.compose import compose
from goatbench.models import build_decoder
from goatbench.training import observing
from goatbench.training.observing import observed_kernels


class Telling(Sdpa):
    """Notes what it is asked to do."""

    seen: list = []  # noqa: RUF012

    def __call__(self, problem):
        is_training, is_strict = not torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled()
        self.seen.append((is_training, problem.q.dtype, len(problem.q), is_strict, problem.q.device.type))
        return super().__call__(problem)


def seen_with(monkeypatch, *overrides):
    monkeypatch.setattr(Telling, "seen", [])
    spec = compose(["task=needle", "attention=goat", "scale=smoke", *overrides]).spec
    net = build_decoder(spec.model, spec.attention, Telling())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    tokens = torch.zeros(1, spec.model.seq_len, dtype=torch.int64)
    found = observed_kernels(spec, net, "cpu", tokens, tokens)
    assert found.keys() == {"kernel_train", "kernel_eval"}
    assert all(torch.equal(value, before[name]) and value.dtype == before[name].dtype for name, value in net.state_dict().items())
    assert not torch.are_deterministic_algorithms_enabled()
    return set(Telling.seen)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16), ("bf16-true", torch.bfloat16)]
)
def test_kernels_are_seen_in_the_precision_and_determinism_of_the_run(monkeypatch, precision, dtype):
    seen = seen_with(monkeypatch, f"trainer.precision={precision}")
    assert seen == {(True, dtype, 1, True, "cpu"), (False, dtype, 1, False, "cpu")}


def test_on_a_gpu_training_is_seen_with_the_batch_of_a_forward_pass():
    spec = compose(["task=needle", "attention=goat", "scale=smoke", "trainer.accumulate=2"]).spec
    assert observing._examples(spec, torch.device("cuda")) == spec.training.batch_size // 2 > 1
    assert observing._examples(spec, torch.device("cpu")) == 1
    moved = observing._moved(torch.zeros(1, 3, 4, 4), torch.device("meta"), torch.bfloat16, 6)
    assert (tuple(moved.shape), moved.dtype, moved.device.type) == ((6, 3, 4, 4), torch.bfloat16, "meta")


@pytest.mark.parametrize(("variable", "index"), [("LOCAL_RANK", "5"), ("SLURM_LOCALID", "1"), (None, "0")])
def test_each_rank_looks_on_its_own_gpu(monkeypatch, variable, index):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    if variable:
        monkeypatch.setenv(variable, index)
    assert observing._own(torch.device("cuda")) == torch.device("cuda", int(index) % 4)
