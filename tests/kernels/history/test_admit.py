"""Admission and lookups: native code against NumPy, on drawn histories and steps."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.history.admit import (
    Entries,
    Index,
    Rule,
    admit,
    admit_reference,
    look_up,
    look_up_reference,
    num_stable,
)

NORMS = [0.0, -0.0, 1e-30, 0.5, 1.0, 3.0e38, np.inf, np.nan, -np.nan]


def drawn_index(num_slots: int, num_layers: int, num_nodes: int, seed: int) -> Index:
    """A history some of whose slots are owned, by distinct nodes."""
    rng = np.random.default_rng(seed)
    places = num_layers * num_nodes
    owned = min(num_slots, places) * rng.integers(0, 5) // 4
    slots, nodes = rng.permutation(num_slots)[:owned], rng.permutation(places)[:owned]
    index = Index(
        slot_of=np.full(places, -1, np.int32),
        owner=np.full(num_slots, -1, np.int64),
        born=rng.integers(0, 20, num_slots),
        num_nodes=num_nodes,
    )
    index.owner[slots], index.slot_of[nodes] = nodes, slots
    return index


def drawn_entries(num_layers: int, num_nodes: int, batches: int, seed: int) -> Entries:
    rng = np.random.default_rng(seed)
    where, counts = [], []
    for layer in range(num_layers):
        lists = [
            rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)] + layer * num_nodes for _ in range(batches)
        ]
        where.append(np.concatenate(lists))
        counts.append(len(where[-1]))
    total = sum(counts)
    return Entries(
        where=np.concatenate(where).astype(np.int64),
        layer_ptr=np.cumsum([0, *counts]),
        norms=rng.choice(NORMS, total).astype(np.float32),
        saved=rng.integers(0, 4, total).astype(np.float32),
        computed=rng.random(total) < 0.7,
        repeated=batches > 1,
    )


def copied(index: Index) -> Index:
    return Index(
        slot_of=index.slot_of.copy(), owner=index.owner.copy(), born=index.born.copy(), num_nodes=index.num_nodes
    )


def assert_same(found, expected, index, other) -> None:
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    for name in ("slot_of", "owner", "born"):
        np.testing.assert_array_equal(getattr(index, name), getattr(other, name), err_msg=name)


@settings(max_examples=150, deadline=None)
@given(
    slots=st.integers(0, 60),
    layers=st.integers(1, 3),
    nodes=st.integers(1, 40),
    batches=st.integers(1, 3),
    p_grad=st.sampled_from(["0", "0.3", "0.9", "1"]),
    least=st.sampled_from([0.0, 1.0, 2.5]),
    reuse=st.booleans(),
    seed=st.integers(0, 999),
)
def test_native_code_admits_as_numpy_does(slots, layers, nodes, batches, p_grad, least, reuse, seed):
    index, entries = drawn_index(slots, layers, nodes, seed), drawn_entries(layers, nodes, batches, seed)
    free = np.flatnonzero((index.owner < 0) | (index.born < 9)).astype(np.int32) if reuse else None
    rule = Rule(Fraction(p_grad), least, seed % slots if slots else 0, 21, free)
    expected_index = copied(index)
    expected = admit_reference(expected_index, entries, rule)
    for threads in (1, 3):
        found_index = copied(index)
        assert_same(admit(found_index, entries, rule, threads), expected, found_index, expected_index)
    for node_type in (np.int32, np.int64):
        asked = np.random.default_rng(seed).integers(0, nodes, 20).astype(node_type)
        for layer in range(1, layers + 1):
            for t_stale in (0, 3, 1 << 62):
                one = look_up(index, layer, asked, 15, t_stale, threads=2)
                np.testing.assert_array_equal(one, look_up_reference(index, layer, asked, 15, t_stale))


def test_a_share_is_taken_as_it_is_written():
    assert [num_stable(Fraction(share), 100) for share in ("0.29", "0.9", "1", "0")] == [29, 90, 100, 0]
    assert num_stable(Fraction("0.9"), 9) == 8


def test_wrong_entries_are_refused_and_nothing_is_written():
    index, entries = drawn_index(9, 1, 20, 1), drawn_entries(1, 20, 1, 1)
    rule, before = Rule(Fraction(1), 0.0, 0, 21), copied(index)
    for wrong in (
        entries._replace(where=entries.where + 20),
        entries._replace(norms=entries.norms[1:]),
        entries._replace(computed=entries.computed[1:]),
    ):
        with pytest.raises(InputError, match="remedy"):
            admit(index, wrong, rule)
    for name in ("slot_of", "owner", "born"):
        np.testing.assert_array_equal(getattr(index, name), getattr(before, name))
    with pytest.raises(InputError, match="slot 9 is none of 9"):
        admit(index, entries, rule._replace(free=np.array([9], np.int32)))
    with pytest.raises(InputError, match="remedy"):
        look_up(index, 1, np.array([20]), 1, 1)
