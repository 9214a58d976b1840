"""A topology that is larger than the memory for it is mapped apart for samplers, which read it at random; no batch changes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.types import BatchKey
from tests.trainers.graphs import random_graph

HOWS = {
    "few": SamplingConfig(fanouts=(4, 3), batch_size=32),
    "all": SamplingConfig(fanouts=(-1, -1), batch_size=32),
    "walks": SamplingConfig(fanouts=(5, 5), batch_size=32, method="random_walk"),
}


def read_at_random(array: np.memmap) -> bool:
    """Whether the system was told so of the pages of a mapped array."""
    within, place = False, array.ctypes.data
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and ":" not in first:
            low, high = (int(end, 16) for end in first.split("-"))
            within = low <= place < high
        elif within and first == "VmFlags:":
            return "rr" in line.split()
    raise AssertionError("not mapped")


@pytest.fixture
def topology(tmp_path):
    return random_graph(tmp_path).topology


def blocks(topology, how, threads):
    sampler = Drawing(neighbours=how).sampler(topology, seed=3, threads=threads)
    made = [sampler.sample(BatchKey(0, 0, step), np.arange(step, 300, 7)) for step in range(4)]
    return sampler, [array.tobytes() for batch in made for block in batch for array in (block.src_ids, block.indices)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_no_batch_changes(topology, monkeypatch, how, threads):
    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: None)
    near, expected = blocks(topology, how, threads)
    assert near.topology is topology and not read_at_random(topology.indices)
    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: 0)
    apart, found = blocks(topology, how, threads)
    assert found == expected
    assert read_at_random(apart.topology.indices) and read_at_random(apart.topology.indptr)
    assert not read_at_random(topology.indices) and not read_at_random(topology.indptr)


def test_the_bound_is_half_of_what_is_free(topology, monkeypatch):
    size = topology.indptr.nbytes + topology.indices.nbytes
    for free, near in ((2 * size, True), (2 * size - 1, False)):
        monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda free=free: free)
        assert (Drawing(neighbours=HOWS["few"]).sampler(topology, seed=3).topology is topology) is near


def test_arrays_in_memory_are_left_alone(topology, monkeypatch):
    held = replace(topology, indptr=np.array(topology.indptr), indices=np.array(topology.indices))
    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: 0)
    assert Drawing(neighbours=HOWS["few"]).sampler(held, seed=3).topology is held
