"""Steps equal their rule, deliver every row forwards, and collect every gradient backwards."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose, transpose_reference
from graphmill.kernels.chunks.counts import StepCounts, cost, count_step
from graphmill.kernels.chunks.cut import cut_chunks
from graphmill.kernels.chunks.schedule import identity_schedule
from graphmill.kernels.chunks.steps import chunk_steps, iterate_steps, iterate_steps_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import ChunkStep
from tests.kernels.chunks.drawn import Drawn, count, drawn
from tests.kernels.graphs import random_topology

SCHEDULES = st.sampled_from(["identity", "hongtu", "best"])


def steps_of(case: Drawn, schedule: str) -> list[tuple[ChunkStep, ...]]:
    graph = case.topology
    return chunk_steps(
        graph.indptr,
        graph.indices,
        case.part_of,
        case.num_parts,
        chunks_per_part=case.chunks_per_part,
        order=case.order,
        schedule=schedule,  # pyright: ignore[reportArgumentType]
        self_term=case.self_term,
        threads=2,
    )


def counts_of(steps: list[tuple[ChunkStep, ...]]) -> StepCounts:
    return StepCounts.of(np.array([[count_step(each) for each in devices] for devices in steps]))


def arrays(step: ChunkStep) -> list[np.ndarray]:
    block = step.block
    found = [step.dst_ids, step.load_ids, step.load_rows, block.start, block.end, block.indices, block.src_ids]
    found += [] if block.dst_pos is None else [block.dst_pos]
    return found + [array for _, *both in step.fetch for array in both]


def assert_equal(one: ChunkStep, other: ChunkStep) -> None:
    assert (one.part, one.step, one.num_transition) == (other.part, other.step, other.num_transition)
    assert [peer for peer, *_ in one.fetch] == [peer for peer, *_ in other.fetch]
    for a, b in zip(arrays(one), arrays(other), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


@given(drawn(), st.integers(0, 99))
def test_steps_equal_the_rule(case: Drawn, seed: int) -> None:
    graph, m, n = case.topology, case.num_parts, case.chunks_per_part
    chunks = cut_chunks(graph.indptr, case.part_of, m, n, case.order)
    schedule = np.random.default_rng(seed).permuted(identity_schedule(m, n), axis=1)
    given_to = graph.indptr, graph.indices, case.part_of, chunks, schedule
    found = iterate_steps(*given_to, self_term=case.self_term, threads=2)
    expected = iterate_steps_reference(*given_to, self_term=case.self_term)
    for ours, rule in zip(found, expected, strict=True):
        for one, other in zip(ours, rule, strict=True):
            assert_equal(one, other)


@given(drawn(), SCHEDULES)
def test_a_forward_pass_finds_every_row(case: Drawn, schedule: str) -> None:
    """Integers as rows: sums are exact. A row that was not loaded, fetched or kept is NaN."""
    graph, steps = case.topology, steps_of(case, schedule)
    value = np.random.default_rng(0).integers(1, 1000, graph.num_nodes).astype(float)
    expected = np.zeros(graph.num_nodes)
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    np.add.at(expected, dst, value[graph.indices])
    found, seen = np.full(graph.num_nodes, np.nan), []
    buffers = [np.full(2 * graph.num_nodes, np.nan) for _ in range(case.num_parts)]
    for devices in steps:
        for each in devices:
            buffers[each.part][each.load_rows] = value[each.load_ids]
        # Rows that peers read are transition rows, which no fetch writes: any order of devices gives the same.
        for each in reversed(devices):
            for peer, theirs, own in each.fetch:
                buffers[each.part][own] = buffers[peer][theirs]
        for each in devices:
            rows, block = buffers[each.part][: each.block.num_src], each.block
            used = block.src_ids >= 0
            assert np.array_equal(rows[used], value[block.src_ids[used]])
            assert (block.dst_pos is not None) == case.self_term
            if block.dst_pos is not None:
                assert np.array_equal(block.src_ids[block.dst_pos], each.dst_ids)
            for i, node in enumerate(each.dst_ids):
                found[node] = rows[block.indices[block.start[i] : block.end[i]]].sum()
            seen += each.dst_ids.tolist()
    assert np.array_equal(found, expected) and sorted(seen) == list(range(graph.num_nodes))


@given(drawn(), SCHEDULES)
def test_a_backward_pass_downwards_collects_every_gradient(case: Drawn, schedule: str) -> None:
    """What was loaded is what is sent to the host, each row after the last step that adds to it; nothing is left behind."""
    graph, steps = case.topology, steps_of(case, schedule)
    gradient = np.random.default_rng(0).integers(1, 1000, graph.num_nodes).astype(float)
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    expected = gradient * case.self_term
    np.add.at(expected, graph.indices, gradient[dst])
    host, buffers = np.zeros(graph.num_nodes), [np.zeros(2 * graph.num_nodes) for _ in range(case.num_parts)]
    for devices in reversed(steps):
        for each in devices:
            block = transpose(each.block)
            assert block.t_start is not None and block.t_dst is not None
            for row in range(block.num_src):
                pulled = each.dst_ids[block.t_dst[block.t_start[row] : block.t_start[row + 1]]]
                buffers[each.part][row] += gradient[pulled].sum()
            if block.dst_pos is not None:
                buffers[each.part][block.dst_pos] += gradient[each.dst_ids]
        for each in devices:
            for peer, theirs, own in each.fetch:
                buffers[peer][theirs] += buffers[each.part][own]
                buffers[each.part][own] = 0
        for each in devices:
            host[each.load_ids] += buffers[each.part][each.load_rows]
            buffers[each.part][each.load_rows] = 0
    assert np.array_equal(host, expected) and not any(buffer.any() for buffer in buffers)


@given(drawn(), SCHEDULES)
def test_counts_equal_brute_force(case: Drawn, schedule: str) -> None:
    steps = steps_of(case, schedule)
    counts = counts_of(steps)
    counted = count(case.topology, [[each.dst_ids for each in devices] for devices in steps], case.self_term)
    assert (counts.v_ori, counts.v_p2p, counts.v_ru) == counted[:3]
    assert counts.transition.sum(axis=1).max() == counted.largest_union
    assert counted.distinct <= counts.v_ru <= counts.v_p2p <= counts.v_ori
    assert counts.edges.sum() == case.topology.num_edges and counts.destinations.sum() == case.topology.num_nodes


@given(drawn(), SCHEDULES)
def test_a_buffer_needs_no_more_rows_than_its_largest_step_has_nodes(case: Drawn, schedule: str) -> None:
    counts = counts_of(steps_of(case, schedule))
    assert np.array_equal(counts.most("buffer_rows"), (counts.transition + counts.copies).max(axis=0))


@given(drawn())
def test_a_node_that_stays_keeps_its_row(case: Drawn) -> None:
    steps = steps_of(case, "best")
    for last, now in itertools.pairwise(steps):
        for before, after in zip(last, now, strict=True):
            row_of = {int(node): row for row, node in enumerate(before.block.src_ids) if node >= 0}
            moved = {*after.load_rows.tolist(), *(row for _, _, own in after.fetch for row in own.tolist())}
            for row, node in enumerate(after.block.src_ids):
                if node >= 0 and int(node) in row_of:
                    assert row_of[int(node)] == row and row not in moved


def test_peers_come_in_turn() -> None:
    graph = random_topology(400, 4000)
    steps = chunk_steps(graph.indptr, graph.indices, np.arange(400, dtype=np.int32) % 4, 4, chunks_per_part=3)
    for devices in steps:
        for each in devices:
            hops = [(peer - each.part) % 4 for peer, *_ in each.fetch]
            assert hops == sorted(hops) and 0 not in hops


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_graphs_without_edges_and_parts_beyond_the_nodes(num_nodes: int) -> None:
    empty = np.zeros(num_nodes + 1, np.int64), np.zeros(0, np.int32)
    part_of = np.zeros(num_nodes, np.int32)
    for self_term in (True, False):
        steps = chunk_steps(*empty, part_of, 5, chunks_per_part=4, self_term=self_term)
        assert [len(devices) for devices in steps] == [5] * 4
        assert counts_of(steps).v_ru == num_nodes * self_term


def test_one_part_and_one_chunk_load_every_needed_row_once() -> None:
    graph = random_topology(300, 1500)
    ((step,),) = chunk_steps(graph.indptr, graph.indices, np.zeros(300, np.int32), 1, chunks_per_part=1)
    assert step.load_ids.tolist() == list(range(300)) and not step.fetch
    assert np.array_equal(step.block.indices, graph.indices)


def test_a_giant_hub() -> None:
    """One node has an edge from every other, and one has an edge to every other."""
    num_nodes = 20_000
    degrees = np.ones(num_nodes, np.int64)
    degrees[7] = num_nodes
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.full(indptr[-1], 3, np.int32)
    indices[indptr[7] : indptr[8]] = np.arange(num_nodes)
    part_of = (np.arange(num_nodes) % 4).astype(np.int32)
    counts = counts_of(chunk_steps(indptr, indices, part_of, 4, chunks_per_part=8, threads=2))
    # All of step 0's rows but node 3's are needed by the hub alone.
    assert counts.transition.sum(axis=1).max() == num_nodes and counts.edges.sum() == len(indices)


@pytest.mark.parametrize(
    ("indptr", "indices", "said"),
    [
        ([0, 2], [0], "indptr does not fit"),
        ([0, 1, 0, 2], [0, 1], "indptr does not fit"),
        ([0, 1], [1], "leads to node 1 of 1"),
        ([0, 1], [-1], "leads to node -1 of 1"),
        ([], [], "indptr does not fit"),
    ],
)
def test_a_broken_topology_is_named(indptr: list[int], indices: list[int], said: str) -> None:
    part_of = np.zeros(max(0, len(indptr) - 1), np.int32)
    with pytest.raises(InputError, match=said):
        chunk_steps(np.array(indptr, np.int64), np.array(indices, np.int32), part_of, 1, chunks_per_part=2)


def test_transposes_of_buffer_rows_equal_the_rule() -> None:
    graph = random_topology(60, 300)
    part_of = np.arange(60, dtype=np.int32) % 3
    for devices in chunk_steps(graph.indptr, graph.indices, part_of, 3, chunks_per_part=4):
        for each in devices:
            made, rule = transpose(each.block), transpose_reference(each.block)
            for ours, expected in zip((made.t_start, made.t_edge, made.t_dst), rule, strict=True):
                assert np.array_equal(ours, expected)


def test_cost_is_equation_4() -> None:
    assert cost(100, 60, 30, (10, 20, 30)) == pytest.approx(30 / 10 + 40 / 20 + 30 / 30)
