"""One node with a million neighbours, on the shim without its checks (these would take minutes) and on a device: the CPU's bits."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from kernels.types import Topology
from tests.kernels.cuda.machines import ShimMachine
from tests.kernels.layers import test_aggregate_cuda, test_attention_cuda
from tests.kernels.layers.test_aggregate_cuda import drawn_block
from tests.kernels.sampling.test_sample_cuda import assert_samples
from tests.kernels.sampling.test_transpose_cuda import assert_transposes

MILLION = 10**6


@pytest.fixture
def quick(machine):
    """The machine, the shim without its checks."""
    return SimpleNamespace(device=partial(machine.device, checked=False)) if type(machine) is ShimMachine else machine


@pytest.mark.parametrize("reduce", ["sum", "mean", "weighted"])
def test_a_million_rows_are_summed_in_edge_order(quick, reduce):
    test_aggregate_cuda.assert_aggregates(quick, drawn_block([3, MILLION, 0, 1], 300), reduce, 4, np.float16)


def test_a_million_rows_are_attended_to(quick):
    test_attention_cuda.assert_attends(quick, drawn_block([3, MILLION, 0, 1], 300), 2, 4, np.float32, p=0.3)


def test_a_million_edges_of_one_source_are_transposed(quick):
    assert_transposes(quick, drawn_block([1] * 70_000 + [MILLION], 70_001))


@pytest.mark.parametrize("fanout", [10, 1000, -1])
@pytest.mark.parametrize("replace", [False, True])
def test_a_few_or_all_of_a_million_neighbours_are_sampled(quick, fanout, replace):
    indptr = np.concatenate([[0], np.full(MILLION, MILLION)]).astype(np.int64)
    degree = np.zeros(MILLION, np.int32)
    graph = Topology(indptr=indptr, indices=np.arange(MILLION, dtype=np.int32), in_degree=degree, out_degree=degree)
    assert_samples(quick, graph, (fanout,), np.array([0, 5]), replace=replace)
