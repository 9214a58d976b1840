"""Every epoch uses every seed once, in batches that any position can name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Stream

PLANS = st.builds(
    EpochPlan,
    train_ids=st.integers(1, 60).map(lambda n: np.arange(100, 100 + n, dtype=np.int32)),
    batch_size=st.integers(1, 70),
    seed=st.integers(0, 5),
    reuse=st.integers(0, 3),
    accumulate=st.integers(1, 5),
)


@given(PLANS, st.integers(0, 9))
def test_an_epoch_uses_each_seed_once_in_nearly_equal_batches(plan, epoch):
    batches = list(plan.batches(epoch))
    seeds = np.concatenate([batch.seeds for batch in batches])
    sizes = [len(batch.seeds) for batch in batches]
    assert sorted(seeds.tolist()) == plan.train_ids.tolist() and seeds.dtype == np.int32
    assert len(batches) == plan.num_batches == -(-len(plan.train_ids) // plan.batch_size)
    assert max(sizes) - min(sizes) <= 1 and max(sizes) <= plan.batch_size
    assert [batch.position for batch in batches] == list(range(plan.num_batches))
    assert sorted(batch.key.step for batch in batches) == list(range(plan.num_batches))


@given(PLANS, st.integers(0, 9), st.data())
def test_starting_late_gives_the_same_batches(plan, epoch, data):
    start = data.draw(st.integers(0, plan.num_batches))
    whole, late = list(plan.batches(epoch))[start:], list(plan.batches(epoch, start))
    assert [(a.key, a.seeds.tolist(), *a[2:]) for a in whole] == [(b.key, b.seeds.tolist(), *b[2:]) for b in late]


@given(PLANS)
def test_groups_are_consecutive_and_count_their_seeds(plan):
    batches = list(plan.batches(1))
    groups = [batches[at : at + plan.accumulate] for at in range(0, len(batches), plan.accumulate)]
    assert len(groups) == plan.steps_per_epoch
    for group in groups:
        assert [batch.group for batch in group] == [(place, len(group)) for place in range(len(group))]
        assert {batch.group_seeds for batch in group} == {sum(len(batch.seeds) for batch in group)}


def test_reuse_repeats_batches_in_another_order():
    plan = EpochPlan(np.arange(50), 5, seed=3, reuse=2)
    batches = [{batch.key.step: batch.seeds.tolist() for batch in plan.batches(epoch)} for epoch in range(4)]
    orders = [[batch.key.step for batch in plan.batches(epoch)] for epoch in range(4)]
    assert batches[0] == batches[2] and batches[1] == batches[3] and batches[0] != batches[1]
    assert orders[0] != orders[2]
    assert {batch.key.epoch for batch in plan.batches(3)} == {1}


def test_without_reuse_epochs_differ_and_steps_are_positions():
    plan = EpochPlan(np.arange(50), 5, seed=3)
    first, second = ([batch.seeds.tolist() for batch in plan.batches(epoch)] for epoch in (0, 1))
    assert first != second
    assert [batch.key.step for batch in plan.batches(7)] == list(range(10))


def test_streams_and_seeds_shuffle_differently():
    plans = [EpochPlan(np.arange(40), 40, seed, stream) for seed in (0, 1) for stream in (Stream.TRAIN, Stream.EVAL)]
    orders = {tuple(next(iter(plan.batches(0))).seeds.tolist()) for plan in plans}
    assert len(orders) == 4


@pytest.mark.parametrize(
    "wrong", [{"train_ids": np.empty(0, np.int32)}, {"batch_size": 0}, {"reuse": -1}, {"accumulate": 0}]
)
def test_bad_plans_are_refused(wrong):
    with pytest.raises(InputError, match="remedy"):
        EpochPlan(**{"train_ids": np.arange(3), "batch_size": 2, "seed": 0, **wrong})


def test_bad_positions_are_refused():
    with pytest.raises(InputError, match="position 3"):
        EpochPlan(np.arange(3), 2, 0).batches(0, 3)
