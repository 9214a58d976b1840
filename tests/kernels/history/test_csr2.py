"""Pruned batches: against plain recursion from the seeds, and all versions against each other."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.csr2 import prune, prune_reference, remove_in_edges, remove_in_edges_reference
from graphmill.kernels.types import Block
from tests.kernels.history.made_batches import empty_blocks, made_blocks, made_slots


def assert_equal_blocks(found: Block, expected: Block) -> None:
    for field in fields(Block):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "splice" and other is not None:
            pairs = [(getattr(one, name), getattr(other, name)) for name in ("computed", "hist_pos", "hist_slot")]
        else:
            pairs = [(one, other)]
        for left, right in pairs:
            assert (left is None) == (right is None), field.name
            if right is not None:
                np.testing.assert_array_equal(left, right, err_msg=field.name)
                assert getattr(left, "dtype", None) == getattr(right, "dtype", None), field.name


def computed_by_recursion(blocks, slots, h, cached, layer, nodes):
    """Rows of nodes (places among the destinations of blocks[layer]) as sums over edges; rows of the history end the recursion."""
    block, rows, seen = blocks[layer], [], set()
    for i in nodes:
        total = np.zeros(h.shape[1])
        own = (i, block.self_weight[i])
        edges = [(block.indices[e], block.weight[e]) for e in range(block.start[i], block.end[i])]
        for source, weight in [*edges, own]:
            if layer == 0:
                seen.add(int(source))
                row = h[source]
            elif slots[layer - 1][source] >= 0:
                row = cached[slots[layer - 1][source]]
            else:
                below, more = computed_by_recursion(blocks, slots, h, cached, layer - 1, [source])
                row, seen = below[0], seen | more
            total = total + weight * row
        rows.append(total)
    return np.array(rows), seen


def computed_by_blocks(pruned, h, cached):
    rows = h[pruned.origin]
    for layer, block in enumerate(pruned.blocks):
        if layer and block.splice is not None:
            spliced = np.empty((block.num_src, h.shape[1]))
            spliced[block.splice.computed] = rows
            spliced[block.splice.hist_pos] = cached[block.splice.hist_slot]
            rows = spliced
        assert len(rows) == block.num_src
        own = np.arange(block.num_dst) if block.dst_pos is None else block.dst_pos
        out = rows[own] * block.self_weight[:, None]
        for i in range(block.num_dst):
            for e in range(block.start[i], block.end[i]):
                out[i] += block.weight[e] * rows[block.indices[e]]
        rows = out
    return rows


WIDTHS = st.lists(st.integers(0, 12), min_size=1, max_size=3).map(lambda steps: tuple(np.cumsum([3, *steps])))


@settings(max_examples=60, deadline=None)
@given(WIDTHS, st.integers(0, 4), st.sampled_from([0, 0.2, 0.6, 1]), st.integers(0, 99))
def test_what_is_left_computes_the_same_from_the_fewest_inputs(widths, edges, share, seed):
    blocks = made_blocks(widths, edges, seed)
    slots = made_slots(blocks, share, seed)
    rng = np.random.default_rng(seed)
    h, cached = rng.random((blocks[0].num_src, 3)), rng.random((3 * widths[-1], 3))
    pruned = prune(blocks, slots)
    expected, seen = computed_by_recursion(blocks, slots, h, cached, len(blocks) - 1, range(blocks[-1].num_dst))
    np.testing.assert_allclose(computed_by_blocks(pruned, h, cached), expected, rtol=1e-12)
    assert sorted(seen) == pruned.origin.tolist()
    np.testing.assert_array_equal(pruned.blocks[0].src_ids, blocks[0].src_ids[pruned.origin])
    np.testing.assert_array_equal(pruned.blocks[-1].dst_ids, blocks[-1].dst_ids)


@settings(max_examples=60, deadline=None)
@given(WIDTHS, st.integers(0, 4), st.sampled_from([0, 0.1, 0.5, 1]), st.booleans(), st.integers(0, 99))
def test_all_versions_agree_at_any_thread_count(widths, edges, share, extras, seed):
    blocks = made_blocks(widths, edges, seed, extras)
    slots = made_slots(blocks, share, seed)
    expected = prune_reference(blocks, slots)
    for threads in (1, 2, 5):
        found = prune(blocks, slots, threads=threads)
        np.testing.assert_array_equal(found.origin, expected.origin)
        for one, other in zip(found.blocks, expected.blocks, strict=True):
            assert_equal_blocks(one, other)


def test_without_a_hit_the_bytes_stay_as_they_are():
    blocks = made_blocks((5, 20, 60, 90), 3, 1)
    pruned = prune(blocks, made_slots(blocks, 0, 1))
    for one, other in zip(pruned.blocks, blocks, strict=True):
        assert_equal_blocks(one, other)
    np.testing.assert_array_equal(pruned.origin, np.arange(90))


def test_a_batch_without_seeds_stays_empty():
    blocks = empty_blocks(3)
    for found in (
        prune(blocks, made_slots(blocks, 0.5, 1), "all"),
        prune_reference(blocks, made_slots(blocks, 0.5, 1)),
    ):
        assert len(found.origin) == 0 and [block.num_src for block in found.blocks] == [0, 0, 0]


@pytest.mark.parametrize(("wanted", "first"), [("none", 3), ("hidden", 1), ("all", 0)])
def test_transposes_are_of_what_is_left(wanted, first):
    blocks = made_blocks((5, 20, 60, 90), 3, 1)
    slots = made_slots(blocks, 0.4, 1)
    bare, found = prune(blocks, slots), prune(blocks, slots, wanted)
    for layer, (one, other) in enumerate(zip(found.blocks, bare.blocks, strict=True)):
        assert_equal_blocks(one, transpose(other) if layer >= first else other)


@given(st.integers(1, 9), st.integers(0, 5), st.data(), st.integers(0, 99))
def test_edges_of_nodes_are_removed_in_place(num_dst, edges, data, seed):
    rows = np.array(data.draw(st.lists(st.integers(0, num_dst - 1))), np.int32)
    (block,), (other,) = (made_blocks((num_dst, 30), edges, seed) for _ in range(2))
    degrees = block.end - block.start
    remove_in_edges(block, rows)
    remove_in_edges_reference(other, rows)
    assert_equal_blocks(block, other)
    degrees[rows] = 0
    np.testing.assert_array_equal(block.end - block.start, degrees)


def test_edges_of_what_is_no_destination_are_not_removed():
    (block,) = made_blocks((8, 30), 5, 2)
    with pytest.raises(InputError, match="remedy"):
        remove_in_edges(block, np.array([8], np.int32))


def test_what_does_not_fit_is_refused():
    blocks = made_blocks((4, 9, 30), 2, 3)
    slots = made_slots(blocks, 0.5, 3)
    pruned = prune(blocks, slots)
    for wrong in ((blocks, []), (blocks[::-1], slots), (blocks, [slots[0][:-1]]), (pruned.blocks, slots), ((), [])):
        with pytest.raises(InputError, match="remedy"):
            prune(*wrong)
