"""Moving rows on the shim and on a device: the CPU's bits."""

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.move_rows import add_rows_reference, place_rows_reference, take_rows_reference
from graphmill.kernels.rows.move_rows_cuda import add_rows_cuda, place_rows_cuda, take_rows_cuda
from tests.kernels.rows.test_move_rows import drawn


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 4, 47, 128])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_device_moves_them_alike(machine, width, dtype, ids, pinned):
    device = machine.device()
    source, source_rows, out, out_rows = drawn(30, 50, 33, width, dtype, width, ids)
    lists = device.upload(source_rows), device.upload(out_rows)
    there = device.pinned(source.shape, dtype) if pinned else device.upload(source)
    if pinned:
        there[...] = source
    for on_device, reference in ((place_rows_cuda, place_rows_reference), (add_rows_cuda, add_rows_reference)):
        expected, found = out.copy(), device.upload(out)
        reference(source, source_rows, expected, out_rows)
        on_device(there, lists[0], found, lists[1], device)
        np.testing.assert_array_equal(device.download(found), expected)
    expected, found, held = np.empty((33, width), dtype), device.empty((33, width), dtype), device.upload(out)
    take_rows_reference(out, out_rows, expected)
    take_rows_cuda(held, lists[1], found, device)
    np.testing.assert_array_equal(device.download(found), expected)
    np.testing.assert_array_equal(device.download(held), out)


def test_what_does_not_fit_is_refused(machine):
    rows, floats = np.arange(3, dtype=np.int32), np.ones((5, 4), np.float32)
    device = machine.device()
    there, lists = device.upload(floats), device.upload(rows)
    for wrong in (
        (there, lists, device.upload(np.ones((5, 3), np.float32)), lists),
        (there, lists, device.upload(np.ones((5, 4))), lists),
        (there, lists, device.upload(np.ones((5, 4), np.float32)), device.upload(rows[:2])),
    ):
        with pytest.raises(InputError, match="remedy"):
            place_rows_cuda(*wrong, device)
