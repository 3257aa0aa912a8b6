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


def test_each_length_and_each_resolution_backs_off_by_itself():
    """No more than 300 tokens at a time: what is longer is halved until it fits, and what is shorter keeps its batch."""

    def too_many(module, inputs):
        if inputs[0].shape[:2].numel() > 300:
            raise torch.OutOfMemoryError("CUDA out of memory")

    found = {}
    vision = ["task=vit_resolution", "model.drop_path=0", "data.augmentation.mixup=0"]
    for domain, key, more in (
        ("text", "context", ["task.multiples=[1,2,4]", "evaluation.num_targets=8", "evaluation.batch_tokens=1024"]),
        ("vision", "resolution", vision),
    ):
        spec = spec_of(domain, *more)
        task = tasks.get(spec.task.name)
        net, data = task.model(spec), task.data(spec)
        net.blocks[0].register_forward_pre_hook(too_many)
        costs = [cost for cost in task.measure(spec, net, data, None).costs if cost.name == "eval_batch_size"]
        found[domain] = {cost.conditions[key]: cost.value for cost in costs}
    assert found == {"text": {64: 4, 128: 2, 256: 1}, "vision": {12: 8, 14: 4, 16: 4, 20: 2, 24: 2, 28: 1}}  # patches of 2 px and one more
