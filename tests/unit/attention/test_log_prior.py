"""The log-prior as a value: worked numbers, and the monoid laws in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from goatbench.attention.log_prior import LogPrior


def test_dense_of_a_worked_example():
    """Two queries, two keys, two query heads on one lane; every number by hand."""
    prior = LogPrior(
        q_lanes=torch.tensor([[[[1.0], [2.0]], [[10.0], [20.0]]]]),  # heads 0 and 1
        k_lanes=torch.tensor([[[[3.0], [4.0]]]]),
        row_lanes=torch.tensor([[[[1.0], [2.0]]]]),
        q_term=torch.tensor([[[0.5, 0.25], [0.0, 0.0]]]),
        k_term=torch.tensor([[[0.0, 100.0]]]),
        biases=(lambda batch, head, query, key: 1000.0 * key,),
    )
    # head 0, query 0: 1*3 - 1*1 + .5 = 2.5;  key 1: 1*4 - 1 + .5 + 100 + 1000 = 1103.5
    # head 0, query 1: 2*3 - 2*2 + .25 = 2.25; key 1: 8 - 4 + .25 + 1100 = 1104.25
    # head 1, query 0: 30 - 10 = 20;           key 1: 40 - 10 + 1100 = 1130
    # head 1, query 1: 60 - 40 = 20;           key 1: 80 - 40 + 1100 = 1140
    expected = torch.tensor([[[[2.5, 1103.5], [2.25, 1104.25]], [[20.0, 1130.0], [20.0, 1140.0]]]])
    assert torch.equal(prior.dense(2, 2, 2), expected)
    assert torch.equal(prior.row_offset(torch.float32), torch.tensor([[[-0.5, -3.75], [-10.0, -40.0]]]))


def test_key_heads_serve_consecutive_query_heads():
    """H = 4, G = 2: key head 0 belongs to query heads 0 and 1, key head 1 to 2 and 3."""
    prior = LogPrior(k_term=torch.tensor([[[1.0], [2.0]]]))
    assert prior.dense(4, 1, 1).flatten().tolist() == [1.0, 1.0, 2.0, 2.0]


def test_bias_may_differ_by_batch_row():
    prior = LogPrior(biases=(lambda batch, head, query, key: 10.0 * batch + head + query - key,))
    dense = prior.dense(2, 1, 2, batch=2)
    assert dense.tolist() == [[[[0.0, -1.0]], [[1.0, 0.0]]], [[[10.0, 9.0]], [[11.0, 10.0]]]]


def draw_prior(seed: int, batch: int, num_lanes: int, relative: bool, terms: bool, bias: bool, per_head_keys: bool) -> LogPrior:
    g = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    heads = 2 if per_head_keys else 1
    weight = rand(4)
    lanes = (rand(batch, 4, 3, num_lanes), rand(batch, heads, 5, num_lanes), rand(batch, 1, 3, num_lanes) if relative else None)
    return LogPrior(
        *(lanes if num_lanes else (None, None, None)),
        q_term=rand(batch, 4, 3) if terms else None,
        k_term=rand(batch, heads, 5) if terms else None,
        biases=(lambda b, h, i, j: weight[h] * (i - j),) if bias else (),
        sink=rand(4) if terms else None,
    )


flags = st.tuples(st.integers(0, 10**6), st.sampled_from([1, 2]), st.integers(0, 3), *[st.booleans()] * 4)


@settings(max_examples=60, deadline=None)
@given(flags, flags)
def test_the_sum_of_priors_is_the_sum_of_their_logs(first, second):
    a, b = draw_prior(*first), draw_prior(*second)
    dense = lambda p: p.dense(4, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(dense(a + b).expand(2, -1, -1, -1), (dense(a) + dense(b)).expand(2, -1, -1, -1), rtol=0, atol=1e-12)
    if a.sink is not None and b.sink is not None:  # two zero-value keys weigh exp(s1) + exp(s2)
        torch.testing.assert_close((a + b).sink.exp(), a.sink.exp() + b.sink.exp())


def test_the_uniform_prior_is_the_unit():
    a = draw_prior(3, 2, 2, True, True, True, True)
    for joined in (a + LogPrior(), LogPrior() + a):
        assert torch.equal(joined.dense(4, 3, 5), a.dense(4, 3, 5))
        assert torch.equal(joined.sink, a.sink)
        assert torch.equal(joined.row_offset(torch.float32), a.row_offset(torch.float32))
    assert torch.equal(LogPrior().dense(2, 3, 4), torch.zeros(1, 2, 3, 4))
    assert LogPrior().row_offset(torch.float32) is None


@pytest.mark.parametrize("relative_first", [True, False])
def test_absolute_lanes_stay_absolute_beside_relative_ones(relative_first):
    """Only one summand has row lanes; the other's row offset is zero, not a broadcast of the first's."""
    relative, absolute = draw_prior(1, 1, 2, True, False, False, False), draw_prior(2, 1, 3, False, False, False, False)
    joined = relative + absolute if relative_first else absolute + relative
    torch.testing.assert_close(joined.row_offset(relative.q_lanes.dtype), -(relative.q_lanes * relative.row_lanes).sum(-1))
