"""Plans by part: every seed once, equal rounds for all parts, whole groups; with one part they are the plans of an epoch."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling import part_plan
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.part_plan import PartPlan


@st.composite
def plans(draw):
    parts = draw(st.integers(1, 5))
    count = draw(st.integers(1, 60))
    seed_parts = np.array(draw(st.lists(st.integers(0, parts - 1), min_size=count, max_size=count)), np.int32)
    options = {"batch_size": draw(st.integers(1, 9)), "reuse": draw(st.integers(0, 3)), "seed": draw(st.integers(0, 9))}
    return PartPlan(np.arange(count) * 3 + 1, seed_parts, parts, accumulate=draw(st.integers(1, 4)), **options)


@given(plans(), st.integers(0, 4))
def test_every_seed_is_used_once_by_its_part(plan, epoch):
    part_of = dict(zip(plan.train_ids.tolist(), plan.seed_parts.tolist(), strict=True))
    batches = list(plan.batches(epoch))
    assert [batch.position for batch in batches] == list(range(plan.num_batches))
    seeds = Counter(node for batch in batches for node in batch.seeds.tolist())
    assert seeds == Counter(plan.train_ids.tolist())
    for batch in batches:
        assert {part_of[node] for node in batch.seeds.tolist()} <= {batch.key.step % plan.num_parts}
        assert batch.position % plan.num_parts == batch.key.step % plan.num_parts


@given(plans(), st.integers(0, 4))
def test_parts_have_equally_many_nearly_equal_batches(plan, epoch):
    sizes = {part: [] for part in range(plan.num_parts)}
    for batch in plan.batches(epoch):
        sizes[batch.key.step % plan.num_parts].append(len(batch.seeds))
    assert {len(each) for each in sizes.values()} == {plan.rounds}
    assert plan.rounds == max(-(-sum(each) // plan.batch_size) for each in sizes.values())
    assert all(max(each) - min(each) <= 1 and max(each) <= plan.batch_size for each in sizes.values())


@given(plans(), st.integers(0, 4))
def test_groups_are_whole_rounds(plan, epoch):
    batches, first = list(plan.batches(epoch)), 0
    steps = 0
    while first < len(batches):
        size = batches[first].group[1]
        group = batches[first : first + size]
        assert [batch.group for batch in group] == [(place, size) for place in range(size)]
        assert {batch.group_seeds for batch in group} == {sum(len(batch.seeds) for batch in group)}
        assert size % plan.num_parts == 0 and size <= plan.batches_per_step
        first, steps = first + size, steps + 1
    assert steps == plan.steps_per_epoch


@given(plans(), st.integers(0, 4), st.data())
def test_an_epoch_goes_on_anywhere_and_reused_rounds_are_whole(plan, epoch, data):
    start = data.draw(st.integers(0, plan.num_batches))
    whole, rest = list(plan.batches(epoch)), list(plan.batches(epoch, start))
    assert [(b.key, b.seeds.tolist()) for b in whole[start:]] == [(b.key, b.seeds.tolist()) for b in rest]
    if plan.reuse:
        drawn = {b.key: b.seeds.tolist() for b in plan.batches(epoch % plan.reuse)}
        assert drawn == {b.key: b.seeds.tolist() for b in whole}


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4), st.integers(0, 4))
def test_one_part_is_the_plan_of_an_epoch(count, batch_size, reuse, accumulate, epoch):
    ids, options = np.arange(count) * 2, {"batch_size": batch_size, "seed": 3, "reuse": reuse, "accumulate": accumulate}
    one, plain = PartPlan(ids, np.zeros(count, np.int32), 1, **options), EpochPlan(ids, **options)
    for name in ("num_batches", "batches_per_step", "steps_per_epoch"):
        assert getattr(one, name) == getattr(plain, name)
    for left, right in zip(one.batches(epoch), plain.batches(epoch), strict=True):
        assert left.seeds.tolist() == right.seeds.tolist() and left._replace(seeds=0) == right._replace(seeds=0)


def test_seeds_are_counted_once_per_plan_and_not_per_batch(monkeypatch):
    calls, bincount = [], np.bincount

    def counted(values, **more):
        calls.append(len(values))
        return bincount(values, **more)

    monkeypatch.setattr(part_plan.np, "bincount", counted)
    plan = PartPlan(np.arange(1000), np.arange(1000) % 8, 8, 5, 0, accumulate=4)
    assert len(list(plan.batches(0))) == 200 and len(calls) <= 2


def test_mistakes_are_told():
    ids = np.arange(4)
    for parts, number in (([0, 1], 2), ([0, 1, 2, 2], 2), ([0, -1, 0, 0], 2)):
        with pytest.raises(InputError, match="for 4 seeds"):
            PartPlan(ids, np.array(parts), number, 2, 0)
    with pytest.raises(InputError, match="no seeds"):
        PartPlan(ids[:0], ids[:0], 1, 2, 0)
    with pytest.raises(InputError, match="accumulate = 0"):
        PartPlan(ids, ids * 0, 1, 2, 0, accumulate=0)
    with pytest.raises(InputError, match="positions in"):
        PartPlan(ids, ids * 0, 1, 2, 0).batches(0, 3)
