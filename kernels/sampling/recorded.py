"""Launches of a batch that are recorded once and replayed by one call (a CUDA graph): the host spends its time on a batch, not on a launch.

What a batch asks for lies in memory of the device, and so do its sizes, so the launches of every batch with the same space are the same.
They write to arrays that the next batch overwrites; one more launch copies what a batch needs of them, cut to its sizes.

The space is that of the largest batch so far, its seeds rounded up to a bucket: the next of eight numbers per power of two, 12 % more at
most. A larger batch is launched piece by piece, which also compiles what is missing, and the batch after it is recorded. So an epoch of
nearly equal batches records once.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.types import Array
from graphmill.kernels.warn_once import warn_once

Made = TypeVar("Made")
WORD_BYTES, ALIGNED_WORDS = 4, 4
PIECE_BYTES = 24
"""Bytes that are sent about a piece of a copy."""


def bucket(count: int) -> int:
    """Returns the least number from `count` on among eight per power of two: 1 to 16, 18, 20, ... 32, 36, ..."""
    step = 1 << max(0, (count - 1).bit_length() - 4)
    return -(-count // step) * step


class Recording(Generic[Made]):
    """Recorded launches for batches of at most `most` seeds.

    Args:
        request: u8[n] on the device, what a batch asks for.
        draw: launches the work on `request`, and returns the arrays that it writes.
    """

    def __init__(self, device: CudaDevice, request: Any, most: int, draw: Callable[[Any, int], Made]):
        self._device, self._request, self.most = device, request, most
        self._made, self._replay = device.record(lambda: draw(request, most))

    def __call__(self, request: Array) -> Made:
        """Launches the work for u8[m], a request; returns its arrays, which the next call overwrites."""
        self._device.update(self._request[: len(request)], request)
        self._replay()
        return self._made


class Recordings(Generic[Made]):
    """The recording of a sampler, made anew when a batch needs more space.

    Args:
        request_bytes: number of seeds -> bytes of a request.
        draw: as of `Recording`.
    """

    def __init__(self, device: CudaDevice, request_bytes: Callable[[int], int], draw: Callable[[Any, int], Made]):
        self._device, self._request_bytes, self._draw = device, request_bytes, draw
        self._most, self._recording, self._works = 0, None, True

    def of(self, num_seeds: int) -> Recording[Made] | None:
        """Returns the recording for a batch; None if it is launched in pieces: the first of its size, or if nothing can be recorded."""
        if num_seeds > self._most:
            self._most, self._recording = bucket(num_seeds), None
        elif self._recording is None and self._works:
            self._record()
        return self._recording

    def _record(self) -> None:
        try:
            request = self._device.empty((self._request_bytes(self._most),), np.uint8)
            self._recording = Recording(self._device, request, self._most, self._draw)
        except Exception as error:  # whatever a driver or a library has against it
            self._works = False
            warn_once(f"batches are sampled launch by launch, since the launches cannot be recorded: {error}")


def copied(pieces: Sequence[tuple[Any, int]], device: CudaDevice, launch: Callable[..., None]) -> list[Any]:
    """Returns the first elements of each of some arrays on the device, in new memory, copied by one launch.

    Args:
        pieces: (array, number of elements), elements of 4 or 8 bytes.
        launch: (name, number of threads, arguments...), of kernels/cuda/sampling/sample.cu.
    """
    words = [count * array.dtype.itemsize // WORD_BYTES for array, count in pieces]
    aligned = [-(-number // ALIGNED_WORDS) * ALIGNED_WORDS for number in words]
    starts = np.concatenate([[0], np.cumsum(aligned)]).astype(np.int64)
    out = device.empty((int(starts[-1]),), np.int32)
    if len(pieces) and starts[-1]:
        places = [device.pointer(array, "an array") if count else 0 for array, count in pieces]
        table = np.stack([np.array(places, np.int64), starts[:-1], np.array(words, np.int64)], axis=1)
        sent = device.upload(table, waits=False)
        address = np.uint64(device.pointer(sent, "pieces"))
        launch("copy_pieces", max(words), address, np.int32(len(pieces)), np.uint64(device.pointer(out, "out")))
    return [
        out[first : first + number].view(array.dtype)
        for first, number, (array, _) in zip(starts[:-1].tolist(), words, pieces, strict=True)
    ]
