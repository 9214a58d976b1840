"""Edge weights on the shim and on a device: the CPU's bits."""

from dataclasses import replace

import numpy as np
import pytest

from graphmill.kernels.blocks.coefficients import gcn_weights, sum_weights
from graphmill.kernels.blocks.coefficients_cuda import gcn_weights_cuda, sum_weights_cuda
from tests.kernels.layers.on_device import received, sent_block
from tests.kernels.layers.test_aggregate_cuda import drawn_block


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize(("dst_pos", "shared"), [(False, False), (True, False), (False, True)])
def test_weights_are_those_of_the_cpu(machine, dst_pos, shared, ids):
    device, block = machine.device(), drawn_block([3, 0, 40, 1], 30, dst_pos=dst_pos)
    generator = np.random.default_rng(2)
    share = generator.random(len(block.indices), np.float32) if shared else None
    block = replace(block, src_ids=block.src_ids.astype(ids), share=share)
    degrees = [generator.integers(0, 1000, 300).astype(np.int32) for _ in range(2)]
    there, sent = sent_block(device, block), [device.upload(each) for each in degrees]
    for sampled in (True, False):
        found, expected = gcn_weights_cuda(there, *sent, device, sampled), gcn_weights(block, *degrees, sampled)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(received(device, one), other)
    np.testing.assert_array_equal(
        received(device, sum_weights_cuda(there, sent[0], device)), sum_weights(block, degrees[0])
    )
