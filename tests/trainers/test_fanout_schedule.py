"""Fan-outs that change over epochs: each epoch draws with its own, a run goes on anywhere, and without a schedule nothing changes."""

import json

import numpy as np
import pytest

from graphmill.assets.sampling.config import FanoutStep, SamplingConfig
from graphmill.assets.storage.names.version import canonical
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.scheduled import ScheduledSampler
from graphmill.kernels.types import BatchKey
from tests.trainers.graphs import random_topology
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import content, parts_inputs, train_parts, train_small

STEPS = (FanoutStep(epoch=2, fanouts=(2, 1)), FanoutStep(epoch=3, fanouts=(6, -1)))
SCHEDULED = SamplingConfig(fanouts=(4, 3), batch_size=32, schedule=STEPS)


def test_each_epoch_has_its_fanouts_in_any_order():
    assert [SCHEDULED.fanouts_at(epoch) for epoch in range(4)] == [(4, 3), (2, 1), (6, -1), (6, -1)]
    assert SCHEDULED.largest_fanouts == (6, -1)
    topology, seeds = random_topology(50, 400, 1), np.arange(9)
    scheduled = ScheduledSampler(SCHEDULED.fanouts_at, lambda fanouts: Sampler(topology, fanouts, seed=3))
    for epoch in (0, 2, 1, 0, 3):
        key = BatchKey(0, epoch, 5)
        wanted = Sampler(topology, SCHEDULED.fanouts_at(epoch), seed=3).sample(key, seeds)
        for one, two in zip(scheduled.sample(key, seeds), wanted, strict=True):
            assert one.src_ids.tolist() == two.src_ids.tolist() and one.indices.tolist() == two.indices.tolist()


def test_a_run_follows_the_schedule_on_any_number_of_ranks(tmp_path):
    plain, model = train_small(tmp_path), train_small(tmp_path, sampling=SCHEDULED)
    assert model.version != plain.version
    losses = [
        [json.loads(line)["loss"] for line in each.file("metrics.jsonl").read_text().splitlines()]
        for each in (plain, model)
    ]
    assert losses[0][0] == losses[1][0] and losses[0][1] != losses[1][1]
    parts_inputs(tmp_path, 2)
    one = train_parts(tmp_path, 2, sampling=SCHEDULED)
    two = run_threads(2, lambda ranks: train_parts(tmp_path, 2, ranks, sampling=SCHEDULED, retrain=True))[0]
    assert one and two and content(one)["weights.safetensors"] == content(two)["weights.safetensors"]


def test_without_a_schedule_nothing_is_hashed():
    assert "schedule" not in canonical(SamplingConfig(fanouts=(4, 3))) and "schedule" in canonical(SCHEDULED)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schedule": (STEPS[1], STEPS[0])}, "do not ascend"),
        ({"schedule": (FanoutStep(epoch=1, fanouts=(2, 2)),)}, "do not ascend from 2"),
        ({"schedule": (FanoutStep(epoch=2, fanouts=(2,)),)}, "other lengths"),
        ({"schedule": (FanoutStep(epoch=2, fanouts=(2, 0)),)}, r"fanouts = \[2, 0\]"),
        ({"schedule": STEPS, "reuse": 2}, "reuse = 2 takes the samples of earlier epochs"),
    ],
)
def test_mistakes_are_told(change, problem):
    with pytest.raises(InputError, match=problem):
        SamplingConfig(fanouts=(4, 3), **change)
