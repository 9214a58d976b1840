"""Pruning on the shim and on a device: the CPU's bytes."""

from dataclasses import fields, replace

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.history.csr2 import prune, remove_in_edges
from graphmill.kernels.history.csr2_cuda import prune_cuda, remove_in_edges_cuda
from graphmill.kernels.types import Block, Splice
from tests.kernels.history.made_batches import empty_blocks, made_blocks, made_slots
from tests.kernels.history.test_csr2 import assert_equal_blocks
from tests.kernels.layers.on_device import received, sent_block


def fetched(device, block: Block) -> Block:
    """The block in NumPy."""
    arrays = {field.name: getattr(block, field.name) for field in fields(Block)}
    numpy = {name: received(device, array) for name, array in arrays.items() if hasattr(array, "dtype")}
    splice = block.splice
    if splice is not None:
        names = [field.name for field in fields(Splice) if getattr(splice, field.name) is not None]
        splice = Splice(**{name: received(device, getattr(splice, name)) for name in names})
    return replace(block, **numpy, splice=splice)


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize(
    ("widths", "edges", "extras", "ids"),
    [
        ((3, 3), 2, True, np.int32),
        ((4, 19, 60), 4, True, np.int64),
        ((5, 9, 40, 90), 3, False, np.int32),
        ((1, 40, 41, 41, 70), 2, True, np.int32),
    ],
)
def test_blocks_are_pruned_as_on_the_cpu(machine, widths, edges, extras, ids, share):
    device = machine.device()
    blocks = made_blocks(widths, edges, 7, extras)
    for block in blocks:
        block.src_ids = block.src_ids.astype(ids)
    slots = made_slots(blocks, share, 7)
    expected = prune(blocks, slots)
    sent, there = [sent_block(device, b) for b in blocks], [device.upload(s) for s in slots]
    for beside in (None, np.array([3, 1 << 40])):
        cut = prune_cuda(sent, there, device, None if beside is None else device.upload(beside))
        np.testing.assert_array_equal(received(device, cut.origin), expected.origin)
        for one, other in zip(cut.blocks, expected.blocks, strict=True):
            assert_equal_blocks(fetched(device, one), other)
        assert (cut.inputs is None) == (beside is None)
        if cut.inputs is not None:
            lists = (expected.blocks[0].src_ids, expected.origin, beside)
            for one, other in zip(cut.inputs, lists, strict=True):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype


def test_a_batch_without_seeds_stays_empty(machine):
    device, blocks = machine.device(), empty_blocks(2)
    slots = device.upload(np.empty(0, np.int32))
    for beside in (None, device.upload(np.zeros(2, np.int64))):
        cut = prune_cuda([sent_block(device, block) for block in blocks], [slots], device, beside)
        assert len(cut.origin) == 0 and [block.num_src for block in cut.blocks] == [0, 0]


def test_edges_of_a_node_are_removed_in_place(machine):
    device = machine.device()
    (block,) = made_blocks((8, 30), 5, 2)
    sent, rows = sent_block(device, block), np.array([1, 6], np.int32)
    remove_in_edges_cuda(sent, device.upload(rows), device)
    remove_in_edges(block, rows)
    np.testing.assert_array_equal(received(device, sent.end), block.end)


def test_what_does_not_fit_is_refused(machine):
    device = machine.device()
    blocks = made_blocks((3, 9), 2, 1)
    sent = sent_block(device, blocks[0])
    sent.start = device.upload(blocks[0].start.astype(np.int64))
    with pytest.raises(InputError, match="remedy"):
        prune_cuda([sent], [], device)
