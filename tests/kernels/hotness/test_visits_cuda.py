"""Visits on the shim and on a device: the numbers of the CPU."""

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.visits import count_visits
from graphmill.kernels.hotness.visits_cuda import count_visits_cuda


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
@pytest.mark.parametrize("num_nodes", [1, 300, 5000])
def test_every_node_of_a_list_gets_one_visit(machine, num_nodes, id_type):
    device, draw = machine.device(), np.random.default_rng(num_nodes)
    host = draw.integers(0, 9, num_nodes).astype(np.int32)
    visits, expected = device.upload(host), host.copy()
    for count in (0, 1, num_nodes // 2, num_nodes):
        ids = draw.permutation(num_nodes)[:count].astype(id_type)
        count_visits_cuda(device.upload(ids), visits, device)
        count_visits(ids, host)
        expected[ids] += 1
    np.testing.assert_array_equal(device.download(visits), expected)
    np.testing.assert_array_equal(host, expected)


def test_what_does_not_fit_is_refused(machine):
    device, ids = machine.device(), np.arange(3, dtype=np.int32)
    for given, visits in ((ids.astype(np.float32), np.zeros(3, np.int32)), (ids, np.zeros(3, np.int64))):
        with pytest.raises(InputError, match="remedy"):
            count_visits_cuda(device.upload(given), device.upload(visits), device)
    with pytest.raises(InputError, match="give int32"):
        count_visits(ids, np.zeros(3, np.uint32))
    with pytest.raises(InputError, match=r"outside 0\.\.1"):
        count_visits(ids, np.zeros(2, np.int32))
