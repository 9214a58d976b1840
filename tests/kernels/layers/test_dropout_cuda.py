"""Dropout on the shim and on a device: the CPU's bits."""

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.dropout import drop_threshold, dropout
from graphmill.kernels.layers.dropout_cuda import dropout_cuda
from tests.kernels.layers.on_device import float_rows


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("num_rows", "width", "p"), [(0, 4, 0.5), (5, 0, 0.5), (70, 1, 0.5), (9, 47, 0.1), (3, 768, 0.999), (7, 8, 0)]
)
def test_elements_are_dropped_as_on_the_cpu(machine, num_rows, width, p, dtype, ids):
    device, key = machine.device(), 0xFEDCBA9876543210
    x = float_rows(num_rows, width, dtype)
    x[: num_rows // 3] = np.nan
    names = (np.arange(num_rows) * 7919).astype(ids)
    if ids is np.int64:
        names += 2**40
    start = device.upload(x)
    found = dropout_cuda(start, device.upload(names), key, drop_threshold(p), device.empty(x.shape, dtype), device)
    np.testing.assert_array_equal(device.download(found), dropout(x, names, key, p))
    dropout_cuda(start, device.upload(names), key, drop_threshold(p), start, device)
    np.testing.assert_array_equal(device.download(start), dropout(x, names, key, p))


def test_what_does_not_fit_is_refused(machine):
    device = machine.device()
    x, ids = device.upload(np.ones((2, 3), np.float32)), device.upload(np.arange(2))
    for wrong in (
        (x, device.upload(np.arange(3)), x),
        (x, device.upload(np.ones(2, np.float32)), x),
        (x, ids, device.upload(np.ones((2, 3), np.float64))),
        (device.upload(np.ones((2, 3), np.float16)), ids, device.upload(np.ones((2, 3), np.float16))),
    ):
        with pytest.raises(InputError, match="remedy"):
            dropout_cuda(wrong[0], wrong[1], 1, 100, wrong[2], device)
