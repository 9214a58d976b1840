"""One face for the shim and a GPU, so that a kernel's tests are written once."""

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from tests.kernels.cuda.shim import ShimDevice


class ShimMachine:
    """The shim: NumPy arrays are device memory, and stores are counted."""

    def device(self, seed=0, **options):
        self.opened = ShimDevice(seed, **options)
        return self.opened

    def put(self, array):
        return array

    def pin(self, array):
        return array

    def get(self, array):
        return array

    def assert_stored_once(self, name, array):
        """Every byte of the array was stored exactly once."""
        counts = self.opened.stores.get(name, np.zeros(array.nbytes, np.uint8))
        assert (counts == 1).all(), f"{(counts != 1).sum()} of {counts.size} bytes of {name} were not stored once"


class CudaMachine:
    """A GPU through CuPy. Stores cannot be counted there; what was stored can be compared."""

    def device(self, seed=0, **options):
        return CudaDevice(0)

    def put(self, array):
        """A copy in device memory; rows that are apart stay apart."""
        import cupy

        if array.ndim == 2 and array.size and not array.flags.c_contiguous:
            whole = np.zeros((len(array), array.strides[0] // array.itemsize), array.dtype)
            whole[:, : array.shape[1]] = array
            return cupy.asarray(whole)[:, : array.shape[1]]
        return cupy.asarray(array)

    def pin(self, array):
        """A copy in pinned host memory."""
        import cupyx

        if not array.size:
            return array
        pinned = cupyx.empty_pinned(array.shape, array.dtype)
        pinned[...] = array
        return pinned

    def get(self, array):
        import cupy

        return cupy.asnumpy(array)

    def assert_stored_once(self, name, array):
        """Nothing can be counted here."""
