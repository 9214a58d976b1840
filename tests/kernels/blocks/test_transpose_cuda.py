"""The transpose of a block on the shim and on a device: the CPU's bytes."""

import numpy as np
import pytest

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.blocks.transpose_cuda import transpose_cuda
from tests.kernels.layers.on_device import received, sent_block
from tests.kernels.layers.test_aggregate_cuda import drawn_block


def assert_transposes(machine, block):
    device = machine.device()
    found, expected = transpose_cuda(sent_block(device, block), device), transpose(block)
    for name in ("t_start", "t_edge", "t_dst"):
        np.testing.assert_array_equal(received(device, getattr(found, name)), getattr(expected, name))


@pytest.mark.parametrize("degrees", [[0], [1], [3, 0, 2, 9], [500, 1, 400]])
def test_edges_are_turned_as_on_the_cpu(machine, degrees):
    assert_transposes(machine, drawn_block(degrees, 7 if len(degrees) < 4 else 40))
