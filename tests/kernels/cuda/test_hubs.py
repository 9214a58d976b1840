"""One node with very many neighbours, on the shim without its checks (these would take minutes) and on a device: the CPU's bits.

Both numbers of neighbours are more than a grid has blocks in its second dimension, 65,535.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from graphmill.kernels.types import Topology
from tests.kernels.blocks.test_transpose_cuda import assert_transposes
from tests.kernels.cuda.machines import ShimMachine
from tests.kernels.layers import test_aggregate_cuda, test_attention_cuda
from tests.kernels.layers.test_aggregate_cuda import drawn_block
from tests.kernels.sampling.test_sample_cuda import assert_samples

MANY = 150_000
LONG = pytest.param(10**6, marks=pytest.mark.slow("one node with a million neighbours; the short form has 150,000"))


@pytest.fixture(params=[MANY, LONG])
def many(request):
    """The number of neighbours."""
    return request.param


@pytest.fixture
def quick(machine):
    """The machine, the shim without its checks."""
    return SimpleNamespace(device=partial(machine.device, checked=False)) if type(machine) is ShimMachine else machine


@pytest.mark.parametrize("reduce", ["sum", "mean", "weighted"])
def test_the_rows_of_a_hub_are_summed_in_edge_order(quick, many, reduce):
    test_aggregate_cuda.assert_aggregates(quick, drawn_block([3, many, 0, 1], 300), reduce, 4, np.float16)


def test_the_rows_of_a_hub_are_attended_to(quick, many):
    test_attention_cuda.assert_attends(quick, drawn_block([3, many, 0, 1], 300), 2, 4, np.float32, p=0.3)


def test_very_many_edges_of_one_source_are_transposed(quick, many):
    assert_transposes(quick, drawn_block([1] * 70_000 + [many], 70_001))


@pytest.mark.parametrize("fanout", [10, 1000, -1])
@pytest.mark.parametrize("replace", [False, True])
def test_a_few_or_all_of_very_many_neighbours_are_sampled(quick, many, fanout, replace):
    indptr = np.concatenate([[0], np.full(many, many)]).astype(np.int64)
    degree = np.zeros(many, np.int32)
    graph = Topology(indptr=indptr, indices=np.arange(many, dtype=np.int32), in_degree=degree, out_degree=degree)
    assert_samples(quick, graph, (fanout,), np.array([0, 5]), replace=replace)
