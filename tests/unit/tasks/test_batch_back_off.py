"""What a task's record says of the batch with which it evaluated, where memory did not suffice for the one that it was told."""

from __future__ import annotations

import pytest
import torch
from domain_runs import spec_of

from goatbench.registry import tasks

CAPACITY = 3


def halved(batch: float) -> float:
    return batch if batch <= CAPACITY else halved(batch // 2)


@pytest.mark.parametrize("domain", ["vision", "genome", "text", "toy"])
def test_the_batch_that_fitted_is_recorded(domain):
    spec = spec_of(domain, *(["evaluation.markov_orders=[]", "evaluation.markov_interpolated=0"] if domain == "genome" else []))
    task = tasks.get(spec.task.name)
    torch.manual_seed(0)
    net, data = task.model(spec), task.data(spec)

    def measured():
        outcome = task.measure(spec, net, data, None)
        batches = [cost.value for cost in outcome.costs if cost.name == "eval_batch_size"]
        return batches, [m.value for m in outcome.measurements if m.value is not None]

    def too_many(module, inputs):
        if len(inputs[0]) > CAPACITY:
            raise torch.OutOfMemoryError("CUDA out of memory")

    plain, values = measured()
    assert max(plain) > CAPACITY
    net.blocks[0].register_forward_pre_hook(too_many)
    batches, again = measured()
    assert batches == [halved(batch) for batch in plain]
    assert again == pytest.approx(values, rel=1e-5, abs=1e-6)
