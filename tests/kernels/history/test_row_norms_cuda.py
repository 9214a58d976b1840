"""Norms of rows on the shim and on a device: the CPU's bits."""

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.history.row_norms import row_norms
from graphmill.kernels.history.row_norms_cuda import row_norms_cuda
from tests.kernels.history.test_row_norms import drawn_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("num_rows", "width"), [(0, 5), (3, 0), (7, 1), (40, 33), (9, 64), (5, 100)])
def test_norms_have_the_bits_of_the_cpu(machine, num_rows, width, dtype):
    device, rows = machine.device(), drawn_rows(num_rows, width, dtype, width)
    if num_rows > 4 and width > 2:
        rows[0, 2], rows[1, 1] = np.nan, np.inf
    found = row_norms_cuda(device.upload(rows), None, device)
    np.testing.assert_array_equal(device.download(found), row_norms(rows))


def test_what_does_not_fit_is_refused(machine):
    device, rows = machine.device(), np.ones((3, 4), np.float32)
    for wrong in ((rows.astype(np.float16), None), (rows, np.ones(2, np.float32)), (rows, np.ones(3))):
        with pytest.raises(InputError, match="remedy"):
            rows_there, out = (None if array is None else device.upload(array) for array in wrong)
            row_norms_cuda(rows_there, out, device)
