"""Sample order: the same for any number of processes, resumable, complete."""

from __future__ import annotations

from collections import Counter

import pytest

from goatbench.data.order import ShardSampler, TrainSampler
from goatbench.errors import UsageError


def steps(size: int, batch_size: int, world_size: int, epoch: int = 0) -> list[Counter]:
    """The multiset of samples in each step, over all ranks."""
    found = [Counter() for _ in range(size // batch_size)]
    for rank in range(world_size):
        sampler = TrainSampler(size, batch_size, 3, rank, world_size)
        sampler.set_epoch(epoch)
        draws, local = list(sampler), sampler.local_batch_size
        assert len(draws) == len(sampler) == local * len(found) and {draw.epoch for draw in draws} == {epoch}
        for step, counter in enumerate(found):
            counter.update(draw.index for draw in draws[step * local : (step + 1) * local])
    return found


def test_steps_are_the_same_for_1_2_and_4_processes():
    for epoch in (0, 5):
        one = steps(103, 8, 1, epoch)
        assert one == steps(103, 8, 2, epoch) == steps(103, 8, 4, epoch)
        every = sum(one, Counter())
        assert len(one) == 12 and max(every.values()) == 1 and sum(every.values()) == 96
    assert steps(103, 8, 1, 0) != steps(103, 8, 1, 1)


def test_repeats_are_looks_of_the_same_images_in_one_step_for_every_number_of_processes():
    def drawn(world_size):
        ranks = [list(TrainSampler(40, 12, 5, rank, world_size, repeats=3)) for rank in range(world_size)]
        size = 12 // world_size
        return [sorted(draw for rank in ranks for draw in rank[step * size :][:size]) for step in range(3)]

    assert drawn(1) == drawn(2) == drawn(3)
    for step in drawn(1):
        assert {draw.copy for draw in step} == {0, 1, 2} and len(set(step)) == 12 and len({draw.index for draw in step}) == 4
    assert len({draw.index for step in drawn(1) for draw in step}) == 12
    first = list(TrainSampler(40, 12, 5, 0, 3, repeats=3))
    assert len({draw.index for draw in first}) == len(first)  # with as many ranks as copies, each rank has one of each image


def test_batch_size_errors():
    with pytest.raises(UsageError, match=r"multiple of processes x trainer\.accumulate = 3 x 1"):
        TrainSampler(100, 8, 0, 0, 3)
    with pytest.raises(UsageError, match="exceeds the 7 training samples"):
        TrainSampler(7, 8, 0)


@pytest.mark.parametrize("resumed_world_size", [1, 2])
def test_resuming_continues_the_stream_on_any_number_of_processes(resumed_world_size):
    whole = TrainSampler(50, 6, seed=1)
    whole.set_epoch(4)
    state = whole.state_dict() | {"start_step": 5}
    rest = Counter()
    for rank in range(resumed_world_size):
        resumed = TrainSampler(50, 6, 1, rank, resumed_world_size)
        resumed.load_state_dict(state)
        resumed.set_epoch(4)  # as Lightning does on resuming: the same epoch goes on
        assert len(list(resumed)) * resumed_world_size == 18 and len(resumed) * resumed_world_size == 48  # Lightning counts from its start
        rest.update(resumed)
    assert rest == Counter(list(whole)[30:]) and sum(rest.values()) == 18
    resumed.set_epoch(5)
    assert resumed.start_step == 0
    with pytest.raises(UsageError, match="seed was 1 and is 2"):
        TrainSampler(50, 6, seed=2).load_state_dict(state)


@pytest.mark.parametrize(("size", "world_size"), [(21, 2), (21, 1), (2, 4), (24, 3)])
def test_evaluation_shards_hold_every_index_once(size, world_size):
    shards = [ShardSampler(size, rank, world_size) for rank in range(world_size)]
    assert Counter(index for shard in shards for index in shard) == Counter(range(size))
    assert sum(len(shard) for shard in shards) == size
