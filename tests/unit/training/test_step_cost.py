"""Memory of a training step against sizes counted by hand, and the two exact methods against each other."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from goatbench.compose import compose
from goatbench.models import build_decoder
from goatbench.models.flops import training_flops_per_token
from goatbench.training.live_storages import LiveStorages
from goatbench.training.memory import allocation_levels, is_out_of_memory, peak, resident_rise, start, with_smaller_batches
from goatbench.training.step_cost import kernels_at, measure_step

MIB = 2**20
LENGTH, WIDTH = 64, 32  # of the decoder of scale smoke: one layer, two heads, MLP 128


def spec_of(attention: str, *overrides: str):
    composed = compose(["task=genome_memory", "scale=smoke", f"attention={attention}", *overrides])
    return (composed[0] if isinstance(composed, list) else composed).spec


def phases() -> dict:
    kept = []

    def first():
        kept.append(torch.zeros(MIB, dtype=torch.uint8))
        torch.zeros(4 * MIB, dtype=torch.uint8)

    def second():
        kept.append(kept[0].view(2, -1) + 1)  # the view is no new storage
        kept.pop(0)

    return {"first": first, "second": second, "third": kept.clear}


@pytest.mark.parametrize("method", ["allocations", "live storages"])
def test_levels_of_phases(method):
    if method == "allocations":
        levels = allocation_levels(phases())
    else:
        with LiveStorages() as live:
            levels = live.levels(phases())
    found = {name: (round(level.peak / MIB, 2), round(level.end / MIB, 2)) for name, level in levels.items()}
    assert found == {"first": (5, 1), "second": (2, 1), "third": (1, 0)}


def test_the_resident_set_rises_by_what_is_touched_whatever_was_reached_before():
    torch.ones(192 * MIB, dtype=torch.uint8)
    rise = resident_rise(lambda: torch.ones(96 * MIB, dtype=torch.uint8))
    assert 90 * MIB < rise < 104 * MIB


def test_the_peak_of_a_part_is_not_that_of_a_larger_part_before_it():
    cpu = torch.device("cpu")
    start(cpu)
    torch.ones(256 * MIB, dtype=torch.uint8)
    large = peak(cpu)
    start(cpu)
    torch.ones(64 * MIB, dtype=torch.uint8)
    small = peak(cpu)
    assert large.method == small.method == "rss_since_start"
    assert large.num_bytes - small.num_bytes > 120 * MIB  # how much of the 64 MiB was resident before is the allocator's business


@pytest.mark.parametrize("method", ["allocations", "estimate"])
def test_a_step_of_plain_attention_by_hand(method):
    found = measure_step(spec_of("nope"), LENGTH, 1, method)
    L, C = LENGTH, WIDTH
    shapes = [5 * C, C, C * C, C * C, C * C, C * C, C, C, 4 * C * C, 4 * C * C, C, 5 * C, 5]  # the parameters in order
    num_params = sum(shapes)
    # parameters and two moments in float32, a float32 step count each, tokens, and of the positions order, coords, is_prefix
    assert found["state"] == 12 * num_params + 4 * len(shapes) + 8 * (L + 1) + 17 * L
    # inputs of the three norms, of q/k/v, of fc1 and the head: 6; q, k, v, out: 4; in and out of GELU: 8
    floats = 18 * L * C + 6 * L + 2 * L + 5 * L  # and mean, rstd of the norms, log-sum-exp, log-probabilities
    assert found["saved"] == pytest.approx(4 * floats + 8 * L, abs=32)  # int64 targets; loss, divisor, weight
    assert 4 * num_params <= found["optimizer"] <= 4 * num_params + 512  # the gradients, and their norms
    assert found["saved"] <= found["forward"] < found["backward"]
    assert found["peak"] == found["state"] + found["backward"]
    assert found["inference"] < found["forward"] - 4 * 6 * L * C


@pytest.mark.parametrize("attention", ["goat", "rope", "alibi", "learned_absolute", "goat_reference"])
def test_the_estimate_agrees_with_the_exact_record(attention):
    """Within 1 %: only what kernels allocate inside themselves is not seen."""
    exact, estimate = (measure_step(spec_of(attention), 256, 1, method) for method in ("allocations", "estimate"))
    for name in ("peak", "state", "saved", "forward", "backward", "optimizer", "inference"):
        assert estimate[name] == pytest.approx(exact[name], rel=0.01), name


def test_an_estimate_needs_no_memory_and_knows_lengths_beyond_training():
    found = measure_step(spec_of("nope"), 2**22, 1, "estimate")  # the activations of a real step would take 9.7 GB
    assert found["saved"] == pytest.approx(2**22 * (4 * (18 * WIDTH + 13) + 8), rel=1e-6)


@pytest.mark.parametrize("attention", ["nope", "rope"])
def test_flops_are_those_that_torch_counts_without_a_fused_kernel(attention):
    spec = spec_of(attention)
    net = build_decoder(spec.model, spec.attention, "sdpa")
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        net(torch.zeros(1, 48, dtype=torch.int64)).sum().backward()
    assert training_flops_per_token(net, 48) * 48 == counter.get_total_flops()


def test_the_kernel_is_that_of_the_length():
    assert kernels_at(spec_of("nope"), 256, 1, "cpu") == ("sdpa-flash", "sdpa-flash")


def test_unknown_method():
    with pytest.raises(ValueError, match="one of cuda_allocator, allocations, rss, estimate"):
        measure_step(spec_of("nope"), 8, 1, "guess")


def test_the_allocator_of_the_cpu_refuses_in_the_words_that_are_looked_for():
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**55, dtype=torch.uint8)
    assert is_out_of_memory(refused.value)


def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    tried = []

    def run(batch):
        tried.append(batch)
        if batch > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return batch

    assert with_smaller_batches(run, 13) == (3, 3) and tried == [13, 6, 3]
    with pytest.raises(torch.OutOfMemoryError):
        with_smaller_batches(lambda batch: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")), 4)
