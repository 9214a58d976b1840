"""Sums of messages with rows of edges equal the sequential reference to the bit, their gradients within rounding; at any thread count."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.arrays import STORED_FLOATS, narrow, sum_dtype, widen
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.edge_messages import (
    edge_messages,
    edge_messages_backward,
    edge_messages_backward_reference,
    edge_messages_reference,
    empty_active,
)
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block
from tests.kernels.graphs import blocks, random_topology

pytestmark = pytest.mark.smoke

DTYPES = st.sampled_from(STORED_FLOATS)
WIDTHS = st.one_of(st.sampled_from([0, 1, 7, 8, 9, 15, 16, 17, 64, 129, 300]), st.integers(1, 150))
EDGE_WIDTHS = st.one_of(st.sampled_from([0, 1, 15, 16, 17, 33]), st.integers(1, 40))


class Drawn:
    """A block whose edges share rows, and what its messages are made from."""

    def __init__(self, block: Block, width: int, edge_width: int, dtype, weighted: bool, seed: int = 0):
        rng, sums, num_rows = np.random.default_rng(seed), sum_dtype(dtype), 5
        self.block = replace(block, edge_place=rng.integers(0, num_rows, len(block.indices)).astype(np.int32))
        self.h = narrow(rng.standard_normal((block.num_src, width)), dtype)
        self.rows = rng.standard_normal((num_rows, edge_width)).astype(sums)
        self.matrix, self.bias = (
            rng.standard_normal((width, edge_width)).astype(sums),
            rng.standard_normal(width).astype(sums),
        )
        self.weight = rng.standard_normal(len(block.indices)).astype(np.float32) if weighted else None
        self.grad = narrow(rng.standard_normal((block.num_dst, width)), dtype)

    def forward(self, threads: int = 1, active=None):
        given = (self.h, self.rows, self.matrix, self.bias)
        return edge_messages(self.block, *given, weight=self.weight, active=active, threads=threads)

    def backward(self, active, threads: int = 1):
        of_h = np.full((self.block.num_src, self.h.shape[1]), 7, self.h.dtype)
        found = edge_messages_backward(
            self.block, self.rows, active, self.grad, weight=self.weight, grad_h=of_h, threads=threads
        )
        return of_h, *found

    def bits(self, active):
        """The bits of edges that are left, as bool[nnz, F]; False for the others."""
        kept = np.zeros(len(self.block.indices), bool)
        for low, high in zip(self.block.start, self.block.end, strict=True):
            kept[low:high] = True
        flags = np.unpackbits(active, axis=1, bitorder="little")[:, : self.h.shape[1]].astype(bool)
        return flags & kept[:, None]


@given(blocks(), WIDTHS, EDGE_WIDTHS, DTYPES, st.booleans(), st.sampled_from([1, 2, 8]))
def test_forward_equals_the_reference(block, width, edge_width, dtype, weighted, threads):
    drawn = Drawn(block, width, edge_width, dtype, weighted)
    active = empty_active(block, width)
    expected, let_through = edge_messages_reference(
        drawn.block, drawn.h, drawn.rows, drawn.matrix, drawn.bias, drawn.weight
    )
    np.testing.assert_array_equal(drawn.forward(threads, active), expected)
    np.testing.assert_array_equal(drawn.bits(active), let_through)
    np.testing.assert_array_equal(drawn.forward(threads), expected)


@given(blocks(), WIDTHS, EDGE_WIDTHS, DTYPES, st.booleans(), st.sampled_from([1, 2, 8]))
def test_backward_equals_the_reference(block, width, edge_width, dtype, weighted, threads):
    drawn = Drawn(transpose(block), width, edge_width, dtype, weighted)
    active = empty_active(block, width)
    drawn.forward(active=active)
    flags = drawn.bits(active)
    expected = edge_messages_backward_reference(drawn.block, drawn.rows, flags, drawn.grad, drawn.weight)
    found = drawn.backward(active, threads)
    exact = 1e-12 if dtype == np.float64 else 1e-4
    tolerance = {np.dtype(np.float16): 4e-3, np.dtype(np.uint16): 3e-2}.get(np.dtype(dtype), exact)
    np.testing.assert_allclose(widen(found[0]), expected[0], rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=exact, atol=exact)


@pytest.mark.parametrize("weighted", [False, True])
def test_threads_and_neighbours_change_no_bit(weighted):
    """A skewed block with a hub; a row's sum is also that of a block with this row alone."""
    graph = random_topology(3000, 60_000)
    block = Sampler(graph, [-1], seed=0).sample(BatchKey(0, 0, 0), np.arange(1500), transpose="all")[0]
    drawn = Drawn(block, 70, 16, np.float32, weighted)
    active = [empty_active(block, 70) for _ in range(3)]
    forward = {drawn.forward(threads, bits).tobytes() for threads, bits in zip((1, 2, 8), active, strict=True)}
    assert len(forward) == 1 and len({each.tobytes() for each in active}) == 1
    backward = [drawn.backward(active[0], threads) for threads in (1, 2, 8)]
    assert all(len({each.tobytes() for each in found}) == 1 for found in zip(*backward, strict=True))
    whole = drawn.forward()
    for row in (0, 7, 1499):
        drawn.block = replace(
            block,
            num_dst=1,
            start=block.start[row : row + 1],
            end=block.end[row : row + 1],
            edge_place=drawn.block.edge_place,
        )
        np.testing.assert_array_equal(drawn.forward()[0], whole[row])


def test_a_hub_is_shared_by_columns():
    """A row of more edges than one thread takes has the sums of the reference, in edge order."""
    rng = np.random.default_rng(4)
    ends = np.array([30_000, 30_003], np.int32)
    block = Block(
        num_dst=2, num_src=300, start=np.array([0, 30_000], np.int32), end=ends,
        indices=rng.integers(0, 300, ends[-1]).astype(np.int32), src_ids=np.arange(300),
    )  # fmt: skip
    drawn = Drawn(transpose(block), 70, 3, np.float32, weighted=True)
    active = [empty_active(block, 70) for _ in range(3)]
    found = [drawn.forward(threads, bits) for threads, bits in zip((1, 2, 8), active, strict=True)]
    expected, let_through = edge_messages_reference(
        drawn.block, drawn.h, drawn.rows, drawn.matrix, drawn.bias, drawn.weight
    )
    for each, bits in zip(found, active, strict=True):
        np.testing.assert_array_equal(each, expected)
        np.testing.assert_array_equal(drawn.bits(bits), let_through)
    backward = [drawn.backward(active[0], threads) for threads in (1, 2, 8)]
    assert all(len({each.tobytes() for each in found}) == 1 for found in zip(*backward, strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_go_through_as_in_torch(value):
    torch = pytest.importorskip("torch")
    drawn = Drawn(_line(), 20, 2, np.float32, weighted=False)
    drawn.h[3] = value
    messages = torch.from_numpy(drawn.rows[drawn.block.edge_place] @ drawn.matrix.T + drawn.bias) + torch.from_numpy(
        drawn.h
    )
    expected = torch.relu(messages)
    np.testing.assert_allclose(drawn.forward(), expected.numpy(), rtol=1e-6, atol=1e-6)


def _line(nodes: int = 6) -> Block:
    """Edge i from source i to destination i."""
    places = np.arange(nodes, dtype=np.int32)
    return Block(num_dst=nodes, num_src=nodes, start=places, end=places + 1, indices=places, src_ids=np.arange(nodes))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda drawn: setattr(drawn.block, "edge_place", None), "no places among rows of edges"),
        (
            lambda drawn: setattr(drawn.block, "edge_place", drawn.block.edge_place + 5),
            "an edge whose row is not there",
        ),
        (
            lambda drawn: setattr(drawn.block, "edge_place", drawn.block.edge_place - 9),
            "an edge whose row is not there",
        ),
        (lambda drawn: setattr(drawn.block, "indices", drawn.block.indices + 1), "local source id outside"),
        (lambda drawn: setattr(drawn, "rows", drawn.rows.astype(np.float64)), "rows is float64"),
        (lambda drawn: setattr(drawn, "rows", drawn.rows[:, :1]), "for rows of 1 columns"),
        (lambda drawn: setattr(drawn, "bias", drawn.bias[:-1]), r"bias float32\[19\]"),
        (lambda drawn: setattr(drawn, "weight", np.ones(2, np.float32)), r"weight is float32\[2\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, problem):
    drawn = Drawn(_line(), 20, 2, np.float32, weighted=False)
    change(drawn)
    with pytest.raises(InputError, match=problem):
        drawn.forward()


def test_a_gradient_of_sources_needs_the_transpose():
    drawn = Drawn(_line(), 20, 2, np.float32, weighted=False)
    active = empty_active(drawn.block, 20)
    drawn.forward(active=active)
    edge_messages_backward(drawn.block, drawn.rows, active, drawn.grad)
    with pytest.raises(InputError, match="no transpose"):
        drawn.backward(active)
