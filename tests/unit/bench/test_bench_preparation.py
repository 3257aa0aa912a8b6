"""What is timed as preparation is what the layer really does: kernel and output projection behind it give the layer's output."""

import pytest
import torch
from torch.nn import functional as F

from goatbench.attention.positions import Positions
from goatbench.bench.preparation import kernel_step, preparation_step, prepare
from goatbench.bench.variants import EMBED_DIM, PUBLISHED, VARIANTS, build

BATCH, TOKENS = 2, 24


def attention_output(name):
    reached = prepare(name, BATCH, TOKENS)[0]()
    out = F.scaled_dot_product_attention(*reached.inputs, is_causal=True, scale=reached.scale)
    return out[..., :64].transpose(1, 2).flatten(2)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_kernel_and_projection_behind_the_preparation_give_the_layer(name):
    if name == PUBLISHED:
        pytest.importorskip("goat")
    module = build(name, TOKENS)
    x = torch.randn(BATCH, TOKENS, EMBED_DIM, generator=torch.Generator().manual_seed(1))
    projection = module.attention.out_proj if name == PUBLISHED else module.attention.proj
    torch.testing.assert_close(projection(attention_output(name)), module(x, Positions.line(TOKENS)), rtol=1e-4, atol=1e-5)


def test_the_leaves_are_the_projections_and_every_parameter_of_the_prior():
    run, leaves = prepare("goat", BATCH, TOKENS)
    grads = torch.autograd.grad(sum(t.square().sum() for t in run().inputs), leaves, allow_unused=True)
    assert len(leaves) == 3 + 8  # even, odd, slope, gain, bump and three of the sink network
    assert all(g is not None for g in grads)


def test_the_published_package_sees_the_real_functional_again():
    published = pytest.importorskip("goat.attention")
    preparation_step(PUBLISHED, BATCH, TOKENS)()
    assert published.F is F


def test_plain_attention_prepares_nothing():
    """Its q, k, v reach the kernel as views of the projections."""
    run, leaves = prepare("plain", BATCH, TOKENS)
    assert [t.data_ptr() for t in run().inputs] == [t.data_ptr() for t in leaves[:3]]


@pytest.mark.parametrize("step", [kernel_step, preparation_step])
def test_a_step_computes_gradients(step, monkeypatch):
    """Of everything that it says: q, k and v of the kernel, the projections and every parameter of the prior."""
    found, grad = [], torch.autograd.grad

    def spy(*args, **options):
        found.append(grad(*args, **options))
        return found[-1]

    run = step("goat", BATCH, TOKENS)
    monkeypatch.setattr(torch.autograd, "grad", spy)
    run()
    (gradients,) = found
    assert len(gradients) == {kernel_step: 3, preparation_step: 3 + 8}[step]
    assert all(float(t.abs().max()) > 0 for t in gradients)
