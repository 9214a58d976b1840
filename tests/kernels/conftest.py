"""The two machines that every CUDA kernel's tests run on."""

import pytest


@pytest.fixture(params=["shim", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request):
    """Opens a device and moves NumPy arrays to it: the shim of the CPU, or a GPU under -m gpu."""
    from tests.kernels.cuda.machines import CudaMachine, ShimMachine

    return ShimMachine() if request.param == "shim" else CudaMachine()
