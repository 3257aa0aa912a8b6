"""The peak that `goatbench plan` names for fsdp2: a net's weights, gradients and optimizer states by hand, divided by the devices."""

from __future__ import annotations

import pytest

from goatbench.compose import compose
from goatbench.plan.memory import build_undrawn, estimate
from goatbench.plan.table import plan_jobs, plan_lines

C, DEPTH, VOCABULARY = 256, 6, 257
RUN = ["task=lm_length", "scale=smoke", "attention=nope", f"model.embed_dim={C}", f"model.depth={DEPTH}", "model.num_heads=4"]
BLOCK = 4 * (2 * C + 4 * C * C + C + 8 * C * C)  # bytes: two norms, attention with a bias at its output, MLP
OUTSIDE = 4 * (2 * VOCABULARY * C + C + VOCABULARY)  # embedding, norm, head


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("accumulates", [False, True])
def test_what_other_devices_hold_is_subtracted_and_what_is_gathered_is_not(devices, accumulates):
    """AdamW has two states a weight. Against two gloo processes, by the record of their allocations: 36.3 MiB for 38.1 in the forward
    pass, 53.3 for 47.4 in the backward pass, 37.0 for 37.1 in the optimizer's step, where a whole net takes 57.6, 74.6 and 74.1."""
    sharded, whole = (compose([*RUN, f"trainer={name}", f"trainer.devices={devices}"]).spec for name in ("fsdp2", "ddp"))
    net = build_undrawn(sharded)
    weights, gathered = DEPTH * BLOCK + OUTSIDE, 2 * BLOCK + OUTSIDE
    assert sum(parameter.numel() for parameter in net.parameters()) * 4 == weights
    found, plain = (estimate(spec, net, 2, accumulates) for spec in (sharded, whole))
    for name, peak in plain.items():
        copies = 4 if accumulates or name == "optimizer" else 3  # of weights: themselves, two states, gradients
        elsewhere = (1 - 1 / devices) * copies * weights - (0 if name == "optimizer" else gathered)
        assert found[name] == pytest.approx(peak - elsewhere, abs=300), name  # AdamW counts steps, too


def test_more_devices_hold_less_and_the_table_says_what_is_divided():
    jobs = [plan_jobs([*RUN, f"trainer={name}", f"trainer.devices={n}"])[0] for name, n in (("ddp", 2), ("fsdp2", 2), ("fsdp2", 4))]
    assert jobs[0].peak > jobs[1].peak > jobs[2].peak
    said = ["\n".join(plan_lines([job])) for job in jobs]
    assert ["fsdp2 divides weights" in text for text in said] == [False, True, True]
