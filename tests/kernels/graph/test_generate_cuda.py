"""Generated edges on the shim and on a device: the bytes of the CPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.graph.generate_cuda import RmatRule, rmat_cuda
from tests.kernels.cuda.shim import ShimDevice


def same(device, num_nodes, num_edges, seed, **more):
    here, there = (rmat_edges(num_nodes, num_edges, seed, **more, **where) for where in ({}, {"device": device}))
    for one, other in zip(here, there, strict=True):
        found = np.asarray(device.download(other))
        assert one.dtype == found.dtype and one.tobytes() == found.tobytes()


@pytest.mark.parametrize("scramble", [True, False])
@pytest.mark.parametrize("num_nodes", [1, 2, 3, 1000, 1024, 111_000_000, (1 << 31) + 5, 1 << 40])
def test_edges_have_the_bytes_of_the_processor(machine, num_nodes, scramble):
    """Ids of 4 and of 8 bytes, nodes that are powers of two and others."""
    same(machine.device(), num_nodes, 2000, 3, scramble=scramble, lo=17, hi=1417)


@settings(max_examples=20)
@given(st.integers(1, 1 << 34), st.integers(0, 1 << 40), st.integers(0, 300), st.integers(0, 2**31), st.data())
def test_any_range_of_any_graph(num_nodes, low, count, seed, data):
    shares = data.draw(st.permutations([0.57, 0.19, 0.19, 0.05]))
    same(ShimDevice(checked=False), num_nodes, low + count, seed, abcd=tuple(shares), lo=low)


def test_every_end_is_written_once(machine):
    device, rule = machine.device(), RmatRule(1, 2, True, 1000, 10, 37000, 50000, 62000)
    ends = [device.upload(np.empty(700, np.int32)) for _ in range(2)]
    rmat_cuda(rule, 0, *ends, device)
    for number, end in enumerate(ends):
        machine.assert_stored_once(f"uploaded array {number}", end)
    rmat_cuda(rule, 0, *(device.upload(np.empty(0, np.int32)) for _ in range(2)), device)


def test_what_is_no_graph_is_refused(machine):
    device = machine.device()
    for wrong in ({"abcd": (0.5, 0.5, 0.5, 0.5)}, {"lo": 3, "hi": 2}, {"hi": 21}):
        with pytest.raises(InputError, match="give"):
            rmat_edges(10, 20, 1, **wrong, device=device)
