"""The walking sampler gives the blocks of its reference, to the byte, and its visits have the distribution of a walk with restart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key
from graphmill.kernels.sampling.walk import Walks, WalkSampler, visits_reference, walk_reference
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import assert_same_blocks, random_topology, topologies, topology
from tests.kernels.sampling.chi_square import assert_fits

pytestmark = pytest.mark.usefixtures("each_map")

KEY = BatchKey(0, 1, 2)
FIELDS = ("start", "end", "indices", "src_ids", "share")
WALKS = st.builds(Walks, paths=st.integers(1, 5), length=st.integers(1, 4), restart=st.sampled_from([0.25, 0.5, 1.0]))


@settings(deadline=None)
@given(
    topologies(), WALKS, st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3), st.integers(1, 3), st.data()
)
def test_blocks_equal_the_reference(graph, walks, fanouts, threads, data):
    seeds = np.array(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True)), graph.indices.dtype)
    sampler = WalkSampler(graph, walks, fanouts, seed=5, threads=threads)
    for step in range(2):
        batch = BatchKey(0, 3, step)
        expected = walk_reference(graph, walks, fanouts, batch, seeds, seed=5)
        for block in expected:
            block.share = np.empty(0, np.float32) if block.share is None else block.share
        assert_same_blocks(sampler.sample(batch, seeds), expected, FIELDS)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_many_paths_and_a_hub_equal_the_reference(dtype):
    """More paths per node than go side by side, and a node that nearly every path passes."""
    rows = [[0, 7], list(range(300)), *[[1, v - 1] for v in range(2, 300)]]
    graph, walks = topology(rows, dtype), Walks(paths=300, length=3, restart=0.3)
    seeds = np.arange(0, 300, 40, dtype=dtype)
    expected = walk_reference(graph, walks, [6, 3], KEY, seeds[:2], seed=2)
    assert_same_blocks(WalkSampler(graph, walks, [6, 3], seed=2).sample(KEY, seeds[:2]), expected, FIELDS)


def test_blocks_are_the_same_bytes_at_any_number_of_threads():
    graph = random_topology(20_000, 200_000)
    seeds = np.arange(0, 20_000, 3)
    one = WalkSampler(graph, Walks(), (5, 5), seed=1).sample(KEY, seeds, transpose="all")
    for threads in (2, 8):
        made = WalkSampler(graph, Walks(), (5, 5), seed=1, threads=threads).sample(KEY, seeds, transpose="all")
        assert_same_blocks(made, one, (*FIELDS, "t_start", "t_edge", "t_dst"))


def steps(graph, restart, length, start):
    """f64[length, N]: the exact distribution of each step of a walk with restart, by powers of the transition matrix."""
    size = graph.num_nodes
    matrix = np.zeros((size, size))
    for v in range(size):
        row = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
        np.add.at(matrix[v], row, 1 / max(1, len(row)))
    ends = np.diff(graph.indptr) == 0
    at, found = np.eye(size)[start], []
    for step in range(length):
        stays = at if step == 0 else (1 - restart) * at
        back = 0 if step == 0 else restart
        lost = stays[ends].sum()  # dead ends start again
        stays = np.where(ends, 0, stays)
        stays[start] += back + lost
        at = stays @ matrix
        found.append(at)
    return np.array(found)


GRAPH = topology([[1, 2, 3], [0, 4], [0, 0, 5], [], [1], [4, 2, 0, 5]])


@pytest.mark.parametrize("restart", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("start", [0, 2, 5])
def test_visits_have_the_distribution_of_transition_powers(restart, start):
    """One path per batch, so the distinct nodes of a batch of one, two or three steps tell where the last one ended."""
    batches, length = 4000, 3
    exact = steps(GRAPH, restart, length, start)
    walks = Walks(paths=1, length=length, restart=restart)
    counts = np.zeros((length, GRAPH.num_nodes))
    for step in range(batches):
        # The reference tells the steps apart; the test above holds the native code to it.
        for number, node in enumerate(visits_reference(GRAPH, walks, start, key(4, 0, 0, step, 0, start))):
            counts[number, node] += 1
    for number in range(length):
        possible = exact[number] > 0
        assert counts[number][~possible].sum() == 0
        assert_fits(counts[number][possible], exact[number][possible])


@pytest.mark.parametrize("restart", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("start", [0, 2, 5])
def test_shares_of_many_paths_are_the_mean_visits(restart, start):
    """The native code: shares of all visited nodes tend to the exact mean over the steps, the start left out."""
    length, paths = 3, 2000
    exact = steps(GRAPH, restart, length, start).sum(axis=0)
    exact[start] = 0
    walks, total = Walks(paths=paths, length=length, restart=restart), np.zeros(GRAPH.num_nodes)
    for step in range(20):
        (block,) = WalkSampler(GRAPH, walks, [-1], seed=4).sample(BatchKey(0, 0, step), [start])
        total[block.src_ids[block.indices]] += block.share
        assert abs(block.share.sum() - 1) < 1e-6
    assert np.allclose(total / 20, exact / exact.sum(), atol=6e-3)  # about 5 deviations of 40,000 paths


def test_the_most_visited_come_first_and_the_start_is_left_out():
    graph = topology([[0, 1, 1, 1, 1, 1, 1, 1, 2, 3], [1], [2], [3]])
    (block,) = WalkSampler(graph, Walks(paths=500, length=1), [2], seed=1).sample(KEY, [0, 1, 2])
    first = block.src_ids[block.indices[block.start[0] : block.end[0]]].tolist()
    assert first[0] == 1 and len(first) == 2 and 0 not in first
    assert block.share[0] > 0.75 and block.end[1] == block.start[1]  # node 1 knows itself alone


def test_ties_go_to_what_was_visited_first_and_favour_no_id():
    """A ring of equal rows: of 12 visits nearly all are single, and no id may be taken more often than others."""
    size = 1000
    rows = [[(v + d) % size for d in range(1, 400)] for v in range(size)]
    graph, taken = topology(rows), np.zeros(size)
    for step in range(8):
        (block,) = WalkSampler(graph, Walks(), [5], seed=3).sample(BatchKey(0, 0, step), np.arange(size))
        np.add.at(taken, block.src_ids[block.indices], 1)
    assert_fits(taken.reshape(20, 50).sum(axis=1), np.full(20, 1 / 20))


@pytest.mark.parametrize(
    ("walks", "problem"),
    [
        ({"restart": 0.0}, "restart = 0.0 is not a probability above 0 and up to 1"),
        ({"restart": 1.5}, "restart = 1.5 is not a probability"),
        ({"restart": float("nan")}, "restart = nan is not a probability"),
        ({"paths": 0}, "paths = 0 is less than 1"),
        ({"length": 0}, "length = 0 is less than 1"),
        ({"paths": 2**10, "length": 2**10}, "1048576 visits are more than 65536"),
    ],
)
def test_walks_out_of_range_are_refused(walks, problem):
    with pytest.raises(InputError, match=problem):
        Walks(**walks)


def test_weights_of_the_graph_do_not_matter_to_a_walk():
    plain = random_topology(30, 200)
    graph = type(plain)(
        indptr=plain.indptr, indices=plain.indices, in_degree=plain.in_degree, out_degree=plain.out_degree,
        weights=np.arange(200, dtype=np.float32), edge_ids=np.arange(200),
    )  # fmt: skip
    (block,) = WalkSampler(graph, Walks(), [3], seed=0).sample(KEY, np.arange(30), edge_ids=True)
    assert block.weight is None and block.edge_id is None and block.share is not None
