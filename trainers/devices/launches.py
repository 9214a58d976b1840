"""What a device was given to do and the host does not wait for: the launches of a batch, and small results on their way to the host.

    with device.launching() as drawn:       sample: the sizes of the blocks are read here, the one wait of a batch
    with device.launching() as gathered:    drawn.join(), then the gather, on the same thread or on another
    gathered.join()                         the step, on the thread that trains: what it launches comes behind

Each of them has a stream of its own while its block lasts. What another stream reads is joined before, and its memory is kept for that
stream (`Device.keep`, `Device.hand_over`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from graphmill.trainers.devices.cuda import CudaBackend


class Launches:
    """The work of a block on a device without memory of its own: it is done when the block ends."""

    def join(self) -> None:
        """Lets what this thread launches from now on come behind them."""


class StreamLaunches(Launches):
    """The launches of a block on a stream of an accelerator.

    Attributes:
        event: the event behind the last one; None while the block lasts.
    """

    def __init__(self, backend: CudaBackend):
        self._backend = backend
        self.event: Any = None

    def join(self) -> None:
        """As `Launches.join`."""
        if self.event is not None:
            self._backend.follow(self.event)


class Note:
    """A small result of a device on its way to the host.

    Args:
        values: the copy, in pinned memory.
        event: the event of the copy.
    """

    def __init__(self, backend: CudaBackend, values: torch.Tensor, event: Any):
        self._backend, self._values, self._event = backend, values, event

    def arrived(self) -> bool:
        """Returns whether the result can be read without a wait."""
        return self._backend.passed(self._event)

    def read(self) -> list[Any]:
        """Returns the result as a list; waits for it if it has not arrived."""
        if not self.arrived():
            self._backend.wait(self._event)
        return self._values.tolist()
