"""Masks of attention weights on the shim and on a device: the CPU's bytes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.layers.attention import edge_mask
from graphmill.kernels.layers.dropout import drop_threshold
from graphmill.kernels.layers.edge_mask_cuda import edge_mask_cuda
from graphmill.kernels.types import Block
from tests.kernels.graphs import blocks
from tests.kernels.layers.on_device import sent_block
from tests.kernels.layers.test_aggregate_cuda import drawn_block


def assert_masks(machine, block: Block, heads: int, key: int, p: float) -> None:
    device = machine.device(key % 1000)
    kept = edge_mask_cuda(sent_block(device, block), heads, key, drop_threshold(p), device)
    np.testing.assert_array_equal(device.download(kept), edge_mask(block, heads, key, p).kept)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blocks(), st.integers(1, 9), st.integers(0, 2**64 - 1), st.sampled_from([0.1, 0.5, 0.9]))
def test_drawn_blocks(machine, block, heads, key, p):
    assert_masks(machine, block, heads, key, p)


@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_repeated_sources_have_masks_of_their_own(machine, ids):
    block = drawn_block([40, 0, 1, 300, 7], 6, dst_pos=True)
    wide = replace(block, src_ids=block.src_ids.astype(ids) + ids(0 if ids is np.int32 else 2**40))
    assert_masks(machine, wide, 3, 12345, 0.4)


def test_removed_edges_are_kept(machine):
    block = drawn_block([4, 5, 6, 0, 2], 9)
    end = block.end.copy()
    end[1], end[2] = block.start[1], block.start[2] + 2
    assert_masks(machine, replace(block, end=end), 2, 7, 0.5)
