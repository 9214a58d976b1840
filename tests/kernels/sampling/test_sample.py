"""The sampler gives the blocks of its reference, to the byte, and refuses what it cannot sample."""

import dataclasses
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key
from graphmill.kernels.sampling.sample import Sampler, choose_reference, sample_reference
from graphmill.kernels.types import BatchKey, Topology
from tests.kernels.graphs import assert_same_blocks, random_topology, topologies, topology

pytestmark = [pytest.mark.smoke, pytest.mark.usefixtures("each_map")]
KEY = BatchKey(0, 1, 2)
FANOUTS = st.lists(st.sampled_from([-1, 1, 2, 3, 7]), min_size=1, max_size=3)


@given(topologies(), FANOUTS, st.booleans(), st.integers(1, 3), st.data())
def test_blocks_equal_the_reference(graph, fanouts, replace, threads, data):
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    sampler = Sampler(graph, fanouts, seed=5, replace=replace, threads=threads)
    for step in range(2):  # the second batch meets the map that the first one left
        batch = BatchKey(0, 3, step)
        blocks = sampler.sample(batch, seeds, transpose="all")
        seed_ids = np.array(seeds, graph.indices.dtype)
        assert_same_blocks(blocks, sample_reference(graph, fanouts, batch, seed_ids, seed=5, replace=replace))
        for block in blocks:
            for mine, expected in zip(
                (block.t_start, block.t_edge, block.t_dst), transpose_reference(block), strict=True
            ):
                assert mine is not None and mine.tobytes() == expected.tobytes()


@given(topologies(), FANOUTS, st.data())
def test_blocks_are_sound(graph, fanouts, data):
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    blocks = Sampler(graph, fanouts, seed=1).sample(KEY, np.array(seeds, np.int64))
    assert blocks[-1].dst_ids.tolist() == seeds
    for below, above in pairwise(blocks):
        assert below.dst_ids.tolist() == above.src_ids.tolist()
    for block, fanout in zip(reversed(blocks), fanouts, strict=True):
        assert len(set(block.src_ids.tolist())) == block.num_src == len(block.src_ids)
        for i, v in enumerate(block.dst_ids):
            row = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
            picked = block.src_ids[block.indices[block.start[i] : block.end[i]]]
            assert len(picked) == (len(row) if fanout < 0 else min(fanout, len(row)))
            assert all((row == u).sum() >= (picked == u).sum() for u in picked)
            assert (np.diff(picked) >= 0).all()  # ascending in a sorted row


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanout", [1, 14, 15, 16, 64, 65, 500, -1])
def test_degrees_around_the_fanout(dtype, fanout):
    # Degrees 0, 1, k, k + 1, many; fanouts on both sides of the change from scanning to hashing.
    near = max(fanout, 3)
    rows = [[], [0], list(range(near)), list(range(near + 1)), list(range(600)), [4] * 70] + [[]] * 594
    graph = topology(rows, dtype)
    seeds = np.arange(6, dtype=dtype)
    for replace in (False, True):
        blocks = Sampler(graph, [fanout, 3], seed=2, replace=replace).sample(KEY, seeds)
        assert_same_blocks(blocks, sample_reference(graph, [fanout, 3], KEY, seeds, seed=2, replace=replace))


@pytest.mark.parametrize("fanouts", [(15, 10), (40, -1)])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_both_id_types_and_all_teams_give_the_same_blocks(fanouts, threads):
    narrow, wide = (random_topology(3000, 60000, dtype=dtype) for dtype in (np.int32, np.int64))
    seeds = np.arange(0, 3000, 5)
    expected = Sampler(narrow, fanouts, seed=1).sample(KEY, seeds, transpose="all")
    fields = ("start", "end", "indices", "t_start", "t_edge", "t_dst")
    for graph in (narrow, wide):
        blocks = Sampler(graph, fanouts, seed=1, threads=threads).sample(KEY, seeds, transpose="all")
        assert_same_blocks(blocks, expected, fields)
        assert [block.src_ids.tolist() for block in blocks] == [block.src_ids.tolist() for block in expected]


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_blocks_that_are_cut_into_many_pieces_are_those_of_one_thread(threads, dtype):
    """Lengths of more rows than one thread adds up, several pieces of rows, and more sources than one thread copies."""
    graph = random_topology(120_000, 500_000, dtype=dtype)
    graph = dataclasses.replace(graph, edge_ids=np.arange(500_000)[::-1].copy())
    seeds = np.arange(0, 120_000, 3)
    for fanouts in ((3, -1), (2**30, 4)):
        alone = Sampler(graph, fanouts, seed=1).sample(KEY, seeds, transpose="all", edge_ids=True)
        blocks = Sampler(graph, fanouts, seed=1, threads=threads).sample(KEY, seeds, transpose="all", edge_ids=True)
        assert blocks[0].num_dst > 1 << 16 and blocks[0].num_src > 1 << 16
        fields = ("start", "end", "indices", "src_ids", "edge_id", "t_start", "t_edge", "t_dst")
        assert_same_blocks(blocks, alone, fields)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sampler_is_as_before_after_a_batch_that_failed(threads):
    """The bad neighbour is found while other pieces wait for their names."""
    graph = random_topology(20_000, 100_000)
    bad = int(graph.indptr[15_000]), int(graph.indptr[15_001])
    sampler = Sampler(graph, (2, 3), seed=1, threads=threads)
    seeds = np.arange(0, 20_000, 2)
    expected = sampler.sample(KEY, seeds)
    kept = graph.indices[bad[0] : bad[1]].copy()
    graph.indices[bad[0] : bad[1]] = 20_000
    with pytest.raises(InputError, match="node 20000, but only 20000 nodes"):
        sampler.sample(KEY, seeds)
    graph.indices[bad[0] : bad[1]] = kept
    assert_same_blocks(sampler.sample(KEY, seeds), expected, ("start", "end", "indices", "src_ids"))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "fanout", [200_000, 400_000]
)  # too many edges in all rows, or already in those that one thread reads
def test_more_edges_than_a_block_can_number_are_refused(threads, fanout):
    graph = topology([[0]] * 12_000)
    with pytest.raises(InputError, match="more than 2147483647 edges"):
        Sampler(graph, [fanout], seed=1, replace=True, threads=threads).sample(KEY, np.arange(12_000))


def test_a_hub_of_a_million_neighbours_costs_its_fanout():
    degree = 10**6
    indptr = np.array([0, degree] + [degree] * (degree - 1), np.int64)
    indices = np.arange(degree, dtype=np.int32)
    empty = np.empty(0, np.int32)
    graph = Topology(indptr=indptr, indices=indices, in_degree=empty, out_degree=empty)
    for fanout in (10, 1000):
        (block,) = Sampler(graph, [fanout], seed=7).sample(KEY, [0])
        expected = choose_reference(key(7, 0, 1, 2, 0, 0), degree, fanout)
        assert block.src_ids[block.indices].tolist() == expected
    (block,) = Sampler(graph, [-1], seed=7).sample(KEY, [0])
    assert block.src_ids[block.indices].tolist() == indices.tolist()
    for threads in (2, 8):  # they share the one row
        shared = Sampler(graph, [-1], seed=7, threads=threads).sample(KEY, [0])
        assert_same_blocks(shared, (block,))


def test_weights_types_and_edge_ids_follow_their_edges():
    plain = random_topology(30, 200)
    extra = {"weights": np.float32, "edge_types": np.uint8, "edge_ids": np.int64}
    arrays = {name: np.arange(plain.num_edges).astype(dtype) for name, dtype in extra.items()}
    graph = Topology(
        indptr=plain.indptr, indices=plain.indices, in_degree=plain.in_degree, out_degree=plain.out_degree, **arrays
    )
    for fanouts in ([3, -1], [100]):
        for block in Sampler(graph, fanouts, seed=0).sample(KEY, np.arange(9), edge_ids=True):
            assert block.edge_id is not None and block.edge_type is not None and block.weight is not None
            assert block.src_ids[block.indices].tolist() == graph.indices[block.edge_id].tolist()
            dst = np.repeat(block.dst_ids, block.end - block.start)
            assert ((graph.indptr[dst] <= block.edge_id) & (block.edge_id < graph.indptr[dst + 1])).all()
            assert block.weight.tolist() == arrays["weights"][block.edge_id].tolist()
            assert block.edge_type.tolist() == arrays["edge_types"][block.edge_id].tolist()
    assert Sampler(graph, [3], seed=0).sample(KEY, [1])[0].edge_id is None


def test_transposes_are_built_where_asked():
    sampler = Sampler(random_topology(30, 200), [2, 2], seed=0)
    built = {
        name: [block.t_start is not None for block in sampler.sample(KEY, [1, 2], transpose=name)]
        for name in ("none", "hidden", "all")
    }
    assert built == {"none": [False, False], "hidden": [False, True], "all": [True, True]}


def test_read_only_mapped_topology_and_no_seeds(tmp_path):
    graph = random_topology(30, 200)
    for name in ("indptr", "indices"):
        np.save(tmp_path / f"{name}.npy", getattr(graph, name))
    indptr, indices = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
    mapped = Topology(indptr=indptr, indices=indices, in_degree=graph.in_degree, out_degree=graph.out_degree)
    seeds = np.arange(0, 20, 2)
    seeds.setflags(write=False)
    assert_same_blocks(
        Sampler(mapped, [4, 3], seed=0).sample(KEY, seeds), Sampler(graph, [4, 3], seed=0).sample(KEY, seeds)
    )
    for block in Sampler(mapped, [4, 3], seed=0).sample(KEY, [], transpose="all"):
        assert (block.num_dst, block.num_src, block.num_edges) == (0, 0, 0)


def test_rows_may_be_emptied_without_touching_their_neighbours():
    block = Sampler(random_topology(30, 200), [5], seed=0).sample(KEY, np.arange(8))[0]
    starts = block.start.copy()
    block.end[2] = block.start[2]
    assert (block.start == starts).all()


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([3, 30], "seed 30 at position 1"), ([-1], "seed -1"), ([4, 5, 4], "seed 4 stands at positions 0 and 2"),
     ([2**40], "seed 1099511627776"), ([0.5], "seeds is float64"), ([[1]], "seeds is int64")],
)  # fmt: skip
def test_bad_seeds_are_refused_and_the_sampler_goes_on(seeds, message):
    sampler = Sampler(random_topology(30, 200), [3], seed=0)
    expected = sampler.sample(KEY, [1, 2])
    with pytest.raises(InputError, match=message):
        sampler.sample(KEY, seeds)
    assert_same_blocks(sampler.sample(KEY, [1, 2]), expected)


@pytest.mark.parametrize("fanouts", [[], [0], [-2], [3, 2**31]])
def test_bad_fanouts_are_refused(fanouts):
    with pytest.raises(InputError, match="fanouts"):
        Sampler(random_topology(5, 9), fanouts, seed=0)


@pytest.mark.parametrize(
    ("indptr", "message"), [([1, 2, 3], "does not run from 0"), ([0, 2, 4], "to the 3 entries"), ([0, 5, 3], "node 1")]
)
def test_bad_topologies_are_refused(indptr, message):
    empty = np.empty(0, np.int32)
    indices = np.zeros(3, np.int32)
    with pytest.raises(InputError, match=message):
        Sampler(
            Topology(indptr=np.array(indptr, np.int64), indices=indices, in_degree=empty, out_degree=empty), [1], seed=0
        )


@pytest.mark.parametrize("neighbour", [7, -1])
def test_a_neighbour_out_of_range_is_found_when_sampled(neighbour):
    with pytest.raises(InputError, match=f"node {neighbour}, but only 2 nodes"):
        Sampler(topology_with(neighbour), [-1], seed=0, threads=2).sample(KEY, [0])


def topology_with(neighbour):
    empty = np.empty(0, np.int32)
    indptr, indices = np.array([0, 2, 2], np.int64), np.array([0, neighbour], np.int32)
    return Topology(indptr=indptr, indices=indices, in_degree=empty, out_degree=empty)


def test_blocks_beyond_int32_are_refused_before_memory_is_asked_for():
    sampler = Sampler(topology([[0], [1]]), [2**30], seed=0, replace=True)
    with pytest.raises(InputError, match="more than 2147483647 edges"):
        sampler.sample(KEY, [0, 1])


def test_one_sampler_for_two_threads_is_refused_or_right():
    graph = random_topology(2000, 40000)
    sampler = Sampler(graph, [10, 10], seed=0)
    expected = Sampler(graph, [10, 10], seed=0).sample(KEY, np.arange(1000))
    wrong = []

    def work():
        for _ in range(20):
            try:
                assert_same_blocks(sampler.sample(KEY, np.arange(1000)), expected)
            except InputError as error:
                assert "one Sampler for each thread" in error.remedy
            except AssertionError as error:
                wrong.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
