"""What is on a device and what is not; a device that is missing is an error that says what to install."""

import numpy as np
import pytest
import torch

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice, device_of, on_device
from graphmill.kernels.errors import InputError


def test_a_missing_device_is_named():
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match=r"CuPy is not installed\n  remedy: pip install|no CUDA device"):
        CudaDevice()


def test_host_memory_is_not_on_a_device():
    assert not on_device(np.zeros(1)) and not on_device(torch.zeros(1)) and not on_device([0])


def test_dtypes_have_one_name():
    assert dtype_name(np.dtype(np.uint16)) == dtype_name(torch.bfloat16) == dtype_name(torch.uint16) == "bfloat16"
    assert dtype_name(np.dtype(np.float16)) == dtype_name(torch.half) == "float16"


@pytest.mark.gpu
def test_pinned_and_device_memory_is_seen_and_pageable_memory_refused():
    import cupy
    import cupyx

    device = CudaDevice()
    for rows in (cupy.ones((3, 4), cupy.float32), torch.ones(3, 4, device="cuda"), torch.ones(3, 4).pin_memory()):
        view = device.rows(rows, "rows")
        assert (view.count, view.width, view.row_bytes, view.dtype) == (3, 4, 16, "float32") and view.pointer
    pinned = cupyx.empty_pinned((3, 4), np.uint16)
    assert device.rows(pinned[:, :2], "rows").row_bytes == 8 and device.rows(pinned, "rows").dtype == "bfloat16"
    with pytest.raises(InputError, match=r"host memory that the device cannot read\n  remedy: pin"):
        device.rows(np.ones((3, 4)), "rows")
    with pytest.raises(InputError, match="columns are not adjacent"):
        device.rows(cupy.ones((4, 3)).T, "rows")
    with pytest.raises(InputError, match="CUDA device 99"):
        CudaDevice(99)


@pytest.mark.gpu
def test_kernels_run_on_the_stream_of_the_tensor():
    from graphmill.kernels.rows.gather import gather_tiered
    from graphmill.kernels.rows.slots import Tiers

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = torch.full((5, 8), 7.0, device="cuda")
        assert device_of(out).stream == stream.cuda_stream
        tiers = Tiers(device=torch.ones(2, 8, device="cuda"), host=torch.full((2, 8), 2.0).pin_memory())
        gather_tiered(np.array([0, -1, 1 << 29, 1, 1 << 29 | 1], np.int32), tiers, out)
        assert out[:, 3].tolist() == [1, 0, 2, 1, 2]
    brain = torch.arange(64, dtype=torch.float32, device="cuda").reshape(8, 8).bfloat16()
    out = torch.empty((8, 8), device="cuda")
    gather_tiered(torch.arange(8, dtype=torch.int32, device="cuda"), Tiers(device=brain), out)
    assert torch.equal(out, brain.float())
