"""Sets, volumes and schedules against set arithmetic."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels import _native
from graphmill.kernels.chunks.counts import cost
from graphmill.kernels.chunks.cut import cut_chunks
from graphmill.kernels.chunks.schedule import choose_schedule, hongtu_schedule_reference, identity_schedule
from graphmill.kernels.chunks.sets import (
    listed_sets,
    neighbour_sets,
    neighbour_sets_reference,
    overlaps,
    set_sizes,
    shared_sets,
    volumes,
    volumes_reference,
)
from graphmill.kernels.errors import InputError
from tests.kernels.chunks.drawn import Drawn, count, drawn
from tests.kernels.graphs import random_topology


def members(sets: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()) for row in sets]


@given(drawn(), st.sampled_from([1, 3]))
def test_sets_volumes_and_schedules_equal_set_arithmetic(case: Drawn, threads: int) -> None:
    graph, m, n = case.topology, case.num_parts, case.chunks_per_part
    chunks = cut_chunks(graph.indptr, case.part_of, m, n, case.order)
    expected = neighbour_sets_reference(graph.indptr, graph.indices, chunks, case.self_term)
    bits = neighbour_sets(graph.indptr, graph.indices, chunks, self_term=case.self_term, threads=threads)
    assert members(bits) == expected
    assert set_sizes(bits, threads=threads).tolist() == [len(each) for each in expected]
    assert overlaps(bits, bits, threads=threads).tolist() == [[len(a & b) for b in expected] for a in expected]
    sets = shared_sets(bits, threads=threads)
    assert sets.sizes.tolist() == [len(each) for each in expected]
    assert sets.num_distinct == len(set().union(*expected))
    hongtu = choose_schedule(sets, m, "hongtu", threads=threads)
    assert np.array_equal(hongtu.schedule, hongtu_schedule_reference(expected, m))
    best = choose_schedule(sets, m, "best", threads=threads)
    for name, schedule in {
        "identity": identity_schedule(m, n),
        "hongtu": hongtu.schedule,
        best.chosen: best.schedule,
    }.items():
        by_step = [[chunks.nodes(i, schedule[i, j]) for i in range(m)] for j in range(n)]
        counted = count(graph, by_step, case.self_term)
        assert best.found[name] == volumes(sets, schedule) == volumes_reference(expected, schedule) == counted[:3]
        assert all(sorted(row) == list(range(n)) for row in schedule.tolist())
    assert best.found[best.chosen].v_ru <= min(best.found["identity"].v_ru, best.found["hongtu"].v_ru)


@given(drawn(), st.sampled_from([1, 2, 8, 1000]))
def test_shared_sets_lack_only_what_one_set_holds(case: Drawn, memory: int) -> None:
    """Made of bits, and of lists for any range of nodes."""
    graph = case.topology
    chunks = cut_chunks(graph.indptr, case.part_of, case.num_parts, case.chunks_per_part, case.order)
    bits = neighbour_sets(graph.indptr, graph.indices, chunks, self_term=case.self_term)
    full = members(bits)
    kept = [v for v in range(graph.num_nodes) if sum(v in each for each in full) > 1]
    held, listed = shared_sets(bits, threads=2), listed_sets(*lists_of(full, graph.num_nodes), len(full), memory)
    every = np.arange(len(full))[None, :]
    for sets in (held, listed):
        assert sets.num_shared == len(kept) and sets.num_distinct == len(set().union(*full))
        assert sets.sizes.tolist() == [len(each) for each in full]
        low = 0
        for one, union in sets.unions(every, every.T):  # one range after the other, numbered from 0 in each
            width = len(set().union(*members(one)))
            assert members(one) == [
                {kept.index(v) - low for v in each if v in kept[low : low + width]} for each in full
            ]
            assert members(union) == [set(range(width))]
            low += width
        assert low == len(kept)


@given(
    drawn(), st.sampled_from([1, 3, 1000]), st.sampled_from([0, 5, 40, 10**6]), st.sampled_from([None, (10, 1, 100)])
)
@settings(max_examples=60, deadline=None)
def test_the_schedule_does_not_depend_on_the_ranges(
    case: Drawn, memory: int, words: int, rates: tuple[float, float, float] | None
) -> None:
    graph, m = case.topology, case.num_parts
    chunks = cut_chunks(graph.indptr, case.part_of, m, case.chunks_per_part, case.order)
    bits = neighbour_sets(graph.indptr, graph.indices, chunks, self_term=case.self_term)
    lists = listed_sets(*lists_of(members(bits), graph.num_nodes), len(bits), memory)
    one, many = (choose_schedule(sets, m, rates=rates, search_words=words) for sets in (shared_sets(bits), lists))
    assert one.schedule.tobytes() == many.schedule.tobytes() and one.found == many.found
    assert (one.chosen, one.search_words) == (many.chosen, many.search_words)


def lists_of(sets: list[set[int]], num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """For each node the sets that hold it, as rows."""
    rows = [[number for number, each in enumerate(sets) if v in each] for v in range(num_nodes)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return indptr, np.array([number for row in rows for number in row], np.int32)


def test_shared_sets_of_many_words() -> None:
    bits = np.random.default_rng(0).random((5, 64 * 300)) < 0.2
    packed = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    kept = bits[:, bits.sum(0) > 1]
    (found,) = next(shared_sets(packed, threads=2).unions(np.arange(5)[None, :]))
    made = np.unpackbits(found.view(np.uint8), axis=1, bitorder="little")
    assert np.array_equal(made[:, : kept.shape[1]], kept) and not made[:, kept.shape[1] :].any()


def test_lists_with_a_set_that_is_none_are_refused() -> None:
    for numbers in ([0, 3], [0, 9]):
        with pytest.raises(InputError, match="of 3"):
            listed_sets(np.array([0, 2]), np.array(numbers, np.int32), 3, 64)


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_the_assignment_is_the_best_of_all(n: int, seed: int) -> None:
    gains = np.random.default_rng(seed).integers(0, 20, (n, n))
    chosen = _native.assign_most(gains)
    assert sorted(chosen) == list(range(n))
    best = max(sum(gains[j, k] for j, k in enumerate(each)) for each in itertools.permutations(range(n)))
    assert sum(gains[j, k] for j, k in enumerate(chosen)) == best


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_a_path_never_gets_worse_and_stays_a_permutation(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    overlap = generator.integers(0, 50, (n, n))
    overlap = overlap + overlap.T
    order = generator.permutation(n).astype(np.int64)
    before = overlap[order[1:], order[:-1]].sum()
    _native.improve_path(overlap, order, 10**6)
    assert sorted(order) == list(range(n)) and overlap[order[1:], order[:-1]].sum() >= before
    # Nothing that was tried helps any more.
    improved = order.copy()
    _native.improve_path(overlap, improved, 10**6)
    assert np.array_equal(improved, order)


def test_a_shuffled_chain_is_put_in_order() -> None:
    """Batches of a band matrix in a drawn order: the path's moves find the band again."""
    n = 40
    place = np.random.default_rng(5).permutation(n)
    overlap = np.maximum(0, 5 - np.abs(place[:, None] - place[None, :])).astype(np.int64)
    order = np.arange(n)
    _native.improve_path(overlap, order, 10**7)
    assert overlap[order[1:], order[:-1]].sum() == 4 * (n - 1)


@pytest.mark.parametrize("threads", [2, 5])
def test_the_schedule_does_not_depend_on_threads_and_a_small_budget_is_kept(threads: int) -> None:
    graph = random_topology(3000, 20000, seed=4)
    part_of = np.random.default_rng(1).integers(0, 4, 3000).astype(np.int32)
    bits = neighbour_sets(graph.indptr, graph.indices, cut_chunks(graph.indptr, part_of, 4, 12))
    sets = shared_sets(bits)
    for words in (0, 5000, 10**8):
        one, many = (choose_schedule(sets, 4, "best", search_words=words, threads=team) for team in (1, threads))
        assert np.array_equal(one.schedule, many.schedule) and one.found == many.found and one.chosen == many.chosen
        assert one.search_words <= words + 3 * 12 * 50  # what was begun is ended


def test_swaps_lower_the_volume_where_batches_are_mixed_up() -> None:
    """Two parts over the same ranges of sources, the second in reverse: only swaps or assignments can match them."""
    rows = [list(range(10 * c, 10 * c + 10)) for c in range(8)]
    num_nodes = 160
    indptr, indices = [0], []
    for node in range(num_nodes):
        part, chunk = divmod(node // 10, 8)
        indices += rows[chunk if part == 0 else 7 - chunk]
        indptr.append(len(indices))
    part_of = (np.arange(num_nodes) >= 80).astype(np.int32)
    chunks = cut_chunks(np.array(indptr), part_of, 2, 8)
    bits = neighbour_sets(np.array(indptr, np.int64), np.array(indices, np.int32), chunks, self_term=False)
    sets = shared_sets(bits)
    best = choose_schedule(sets, 2, "best")
    assert best.found["identity"].v_ru > best.found[best.chosen].v_ru == 80 == sets.num_distinct


@given(drawn(), st.sampled_from([(12.0, 200.0, 1500.0), (10.0, 1.0, 100.0), (1.0, 1.0, 1.0)]))
@settings(max_examples=30)
def test_given_speeds_choose_the_fewest_seconds(case: Drawn, rates: tuple[float, float, float]) -> None:
    m, n = case.num_parts, case.chunks_per_part
    chunks = cut_chunks(case.topology.indptr, case.part_of, m, n, case.order)
    bits = neighbour_sets(case.topology.indptr, case.topology.indices, chunks, self_term=case.self_term)
    sets = shared_sets(bits)
    by_rows, by_seconds = choose_schedule(sets, m, "best"), choose_schedule(sets, m, "best", rates=rates)
    assert volumes_reference(members(bits), by_seconds.schedule) == by_seconds.found[by_seconds.chosen]
    assert sorted(by_seconds.schedule.reshape(-1).tolist()) == sorted(m * [*range(n)])
    chosen = cost(*by_seconds.found[by_seconds.chosen], rates)
    assert chosen == min(cost(*each, rates) for each in by_seconds.found.values())
    fewest = by_seconds.found[by_seconds.fewest_rows()]
    assert chosen <= min(cost(*fewest, rates), *(cost(*by_rows.found[name], rates) for name in ("identity", "hongtu")))
    assert by_seconds.found["hongtu"] == by_rows.found["hongtu"]


def test_slow_peers_take_another_schedule_than_rows_would() -> None:
    """Two parts over three ranges of sources: together the chunks load every row once, apart they fetch none of each other's."""
    indptr, indices = [0], []
    for node in range(60):
        first = 10 * (node // 10 % 3)
        indices += range(first, first + 10)
        indptr.append(len(indices))
    part_of = (np.arange(60) >= 30).astype(np.int32)
    chunks = cut_chunks(np.array(indptr), part_of, 2, 3)
    bits = neighbour_sets(np.array(indptr, np.int64), np.array(indices, np.int32), chunks, self_term=False)
    sets = shared_sets(bits)
    orders = [*itertools.permutations(range(3))]
    every = {volumes_reference(members(bits), np.array(both)) for both in itertools.product(orders, orders)}
    found = {}
    for peers in (50, 1):  # rows per second, beside 10 from the host and 100 inside a device
        best = choose_schedule(sets, 2, "best", rates=(10, peers, 100))
        found[peers] = best.found[best.chosen]
        assert cost(*found[peers], (10, peers, 100)) == min(cost(*each, (10, peers, 100)) for each in every)
    by_rows = choose_schedule(sets, 2, "best")
    assert by_rows.found[by_rows.chosen].v_ru == found[50].v_ru == 30 and found[1] == (60, 60, 40)


@given(drawn())
@settings(max_examples=20)
def test_an_edge_to_nowhere_is_named(case: Drawn) -> None:
    graph = case.topology
    if not graph.num_edges:
        return
    wrong = graph.indices.copy()
    wrong[-1] = graph.num_nodes
    chunks = cut_chunks(graph.indptr, case.part_of, case.num_parts, case.chunks_per_part)
    with pytest.raises(InputError, match="leads to node"):
        neighbour_sets(graph.indptr, wrong, chunks, threads=2)
