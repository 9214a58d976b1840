"""Resources of a rank, and the number of ranks that nodes have room for."""

import pytest

from graphmill.assets.cluster.connect import ClusterNode
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.cluster.placing import Demand, RankShare, bundle_for, ranks_left, room


def nodes(*cpus, gpus=0, memory=8 << 30):
    return [
        ClusterNode(id=str(number), ip="", host=f"node{number}", cpus=count, gpus=gpus, memory_bytes=memory)
        for number, count in enumerate(cpus)
    ]


@pytest.mark.parametrize(
    ("demand", "cpus", "world", "expected"),
    [
        ({}, (2, 2), 2, 2.0),
        ({}, (4, 2), 3, 2.0),
        ({}, (8, 1), 2, 4.0),
        ({"threads": 1}, (8, 8), 2, 1.0),
        ({"threads": 4}, (1, 1), 2, 1.0),
        ({}, (1, 1), 4, 0.5),
        ({}, (1,), 6, 0.1666),
        ({}, (3, 0), 1, 3.0),
    ],
)
def test_a_rank_has_an_equal_share_of_the_cores_and_the_threads_of_its_table_at_most(demand, cpus, world, expected):
    found = bundle_for(Demand(world=world, **demand), nodes(*cpus), world)
    assert found.cpus == expected and room(nodes(*cpus), found) >= world


def test_memory_and_devices_bound_the_ranks_of_a_node():
    demand = Demand(world=3, gpus=1, memory_bytes=3 << 30, least_bytes=1 << 30)
    assert bundle_for(demand, nodes(8, 8, 8, gpus=2), 3).resources() == {"CPU": 8.0, "GPU": 1, "memory": 3 << 30}
    # Two of 3 GiB each fit a node, four of them with the memory that they take for certain.
    assert bundle_for(demand, nodes(8, gpus=4), 3).memory_bytes == 1 << 30
    with pytest.raises(
        InputError, match=r"no room for 3 ranks with 1.0 GiB of memory and a GPU each .*node0: 8 cores, 2 GPUs"
    ):
        bundle_for(demand, nodes(8, gpus=2), 3)


@pytest.mark.parametrize(
    ("parts", "cpus", "expected"),
    [(6, (1, 1, 1), 3), (6, (1, 1), 2), (4, (1, 1, 1), 2), (5, (1, 1), 1), (6, (8, 8), 3), (6, (), 1)],
)
def test_after_a_loss_as_many_ranks_start_as_divide_the_parts_and_have_room(parts, cpus, expected):
    bundle = RankShare(cpus=1.0, gpus=0, memory_bytes=0)
    assert ranks_left(Demand(world=3, parts=parts), nodes(*cpus), bundle) == expected
