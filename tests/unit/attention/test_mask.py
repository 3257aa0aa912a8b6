"""Mask rules against loops over (query, key), and the layout facts that kernels branch on against the dense mask."""

import itertools

import pytest
import torch

from goatbench.attention.mask import Mask
from goatbench.attention.positions import Positions


def by_rule(mask: Mask, query_order, key_order, b: int, i: int, j: int) -> bool:
    """The definition of `Mask`, in words turned to code: one query and one key at a time."""
    qo, ko = int(query_order[b % len(query_order)][i]), int(key_order[b % len(key_order)][j])
    num_queries, num_keys = len(query_order[0]), len(key_order[0])
    if mask.causal and ko > qo:
        return False
    if mask.window is not None and abs(qo - ko) >= mask.window and not ko < mask.num_sinks:
        return False
    if mask.segment is not None:
        segment = mask.segment[b % len(mask.segment)]
        if segment[num_keys - num_queries + i] != segment[j]:
            return False
    return mask.key_valid is None or bool(mask.key_valid[b][j])


SEGMENT = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1]])
VALID = torch.tensor([[False, False, True, True, True, True, True], [True] * 7])
MASKS = {
    "full": Mask(),
    "causal": Mask(causal=True),
    "window": Mask(causal=True, window=3),
    "window both ways": Mask(window=2),
    "window + sinks": Mask(causal=True, window=2, num_sinks=2),
    "documents": Mask(causal=True, segment=SEGMENT),
    "documents, one row for all": Mask(segment=SEGMENT[:1]),
    "left padding": Mask(causal=True, key_valid=VALID),
    "all": Mask(causal=True, window=3, num_sinks=1, segment=SEGMENT, key_valid=VALID),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("num_queries", [1, 3, 7])
def test_dense_mask_follows_the_rule(name, num_queries):
    mask = MASKS[name]
    shuffled = torch.stack([torch.randperm(7, generator=torch.Generator().manual_seed(s)) for s in (1, 2)])
    for keys in (Positions.line(7), Positions.scattered(shuffled)):
        queries = Positions.scattered(keys.order[:, 7 - num_queries :])
        dense = mask.bind(queries, keys).dense().expand(2, 1, num_queries, 7)
        for b, i, j in itertools.product(range(2), range(num_queries), range(7)):
            assert bool(dense[b, 0, i, j]) == by_rule(mask, queries.order, keys.order, b, i, j), (name, b, i, j)


def test_causality_is_bottom_right_aligned_with_a_cache():
    dense = Mask(causal=True).bind(Positions.line(2, offset=3), Positions.line(5)).dense()
    assert dense[0, 0].tolist() == [[True, True, True, True, False], [True] * 5]


LAYOUTS = [
    (Positions.line(5), Positions.line(5)),
    (Positions.line(1, offset=4), Positions.line(5)),
    (Positions.line(2, offset=3), Positions.line(5)),
    (Positions.line(1, offset=2), Positions.line(5)),
    (Positions.line(5, offset=2), Positions.line(5, offset=2)),
    (Positions.line(1), Positions.line(1)),
    (Positions.grid(2, 2, 1), Positions.grid(2, 2, 1)),
    (Positions.scattered(torch.tensor([[3, 0, 1]])), Positions.scattered(torch.tensor([[3, 0, 1]]))),
]


def test_layout_facts_never_contradict_the_dense_mask():
    """A kernel that trusts is_full drops the mask, one that trusts is_square_causal masks top-left: both must be the truth."""
    seen = {"full": 0, "square": 0}
    masks = [m for m in MASKS.values() if m.segment is None and m.key_valid is None]
    masks += [Mask(causal=True, window=5), Mask(causal=True, window=9)]
    for mask, (queries, keys) in itertools.product(masks, LAYOUTS):
        bound = mask.bind(queries, keys)
        dense = bound.dense()[0, 0]
        if bound.is_full:
            seen["full"] += 1
            assert dense.all(), (mask, queries.layout, keys.layout)
        if bound.is_square_causal:
            seen["square"] += 1
            assert torch.equal(dense, torch.ones_like(dense).tril()), (mask, queries.layout, keys.layout)
    assert seen["full"] >= 8 and seen["square"] >= 6


def test_layout_facts_find_the_fast_cases():
    line, grid = Positions.line(129), Positions.grid(3, 4, 1)
    assert Mask().bind(grid, grid).is_full
    assert Mask(causal=True).bind(line, line).is_square_causal
    assert Mask(causal=True).bind(Positions.line(1, offset=128), line).is_full
    assert not Mask(causal=True, window=128).bind(line, line).is_square_causal
    assert not Mask(key_valid=torch.ones(1, 129, dtype=torch.bool)).bind(line, line).is_full


@pytest.mark.parametrize("arguments", [{"window": 0}, {"num_sinks": 4}, {"window": 3, "num_sinks": -1}])
def test_impossible_masks_are_refused(arguments):
    with pytest.raises(ValueError, match="window"):
        Mask(**arguments)
