"""The places in which the parts of a process compute, and a thread for each accelerator if there are several (HongTu, section 5).

A step is cut where one device reads what another one writes: rows are loaded into all buffers, then fetched from peers, then computed with;
gradients of all chunks are there before owners pull them (lines 6 and 10 of Algorithms 2 and 3 synchronise there, too). Between two cuts
the parts of different devices are worked on at once, each device's on its own thread. Threads only launch: kernels and copies are queued on
the device's stream of the training step, whichever thread launches them, so a device's own work needs no other order, and a copy from a
peer waits for the streams of both (`Device.send_tensor`).

Parts of one device, and those of logical devices, which share the processor, are worked on by the calling thread, one after the other.

An error on one device ends the pass when the others have finished the chunk that they are at. It names the device.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from torch.utils._python_dispatch import _disable_current_modes

from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device, OverBudget

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place in which a part computes.

    Attributes:
        part: i, number of the part.
        several: whether other devices compute as well, so that each books its own memory.
    """

    part: int
    device: Device
    several: bool

    @contextmanager
    def active(self) -> Iterator[None]:
        """Returns a context in which memory is booked on this device."""
        if not (self.several and isinstance(self.device, LogicalDevice)):
            yield
            return
        with _disable_current_modes(), self.device.active():
            yield


def devices_of(places: Sequence[Place]) -> list[Device]:
    """Returns the distinct devices of places, in their order."""
    return list({place.device.index: place.device for place in places}.values())


class PlaceThreads:
    """Does work for all parts of this process.

    Attributes:
        turns: the places that are worked on at once: the t-th part of each device if there are threads, else one part.
    """

    def __init__(self, places: Sequence[Place]):
        devices = devices_of(places)
        self.turns: list[list[Place]] = [[place] for place in places]
        self._threads: dict[int, ThreadPoolExecutor] = {}
        if len(devices) > 1:  # the threads end with this object
            self._threads = {device.index: thread for device in devices if (thread := device.own_thread()) is not None}
        if not self._threads:
            return
        of_devices = ([place for place in places if place.device is device] for device in devices)
        self.turns = [[place for place in turn if place is not None] for turn in zip_longest(*of_devices)]

    def each(
        self, work: Callable[[Place], T], parts: Container[int] | None = None, *, down: bool = False
    ) -> Iterator[tuple[Place, T]]:
        """Yields each place with the result of its work, which is done turn after turn as results are asked for.

        Args:
            parts: the parts that have some; None for all.
            down: whether turns go from the last one to the first.

        Raises:
            BaseException: the error of a place; of several at once that of the first device.
        """
        for turn in reversed(self.turns) if down else self.turns:
            places = [place for place in turn if parts is None or place.part in parts]
            if self._threads:
                yield from zip(places, self._at_once(work, places), strict=True)
            else:
                for place in places:
                    yield place, work(place)

    def run(self, work: Callable[[Place], object], parts: Container[int] | None = None) -> None:
        """Does work that has no result, for all places."""
        for _ in self.each(work, parts):
            pass

    def _at_once(self, work: Callable[[Place], T], places: Sequence[Place]) -> list[T]:
        """Returns the results of a turn when all of it is done."""

        def done(place: Place) -> T:
            with place.device.working():
                return work(place)

        futures = [self._threads[place.device.index].submit(done, place) for place in places]
        wait(futures)
        for place, future in zip(places, futures, strict=True):
            error = future.exception()
            if error is not None:
                raise _named(error, place.device)
        return [future.result() for future in futures]


def _named(error: BaseException, device: Device) -> BaseException:
    """Returns an error that names the device on which it happened."""
    name = str(device.torch_device)
    if isinstance(error, InputError) and not isinstance(error, OverBudget) and name not in error.problem:
        named = InputError(f"on device {name}: {error.problem}", error.remedy)
        named.__cause__ = error
        return named
    error.add_note(f"on device {name}; the others have stopped")
    return error
