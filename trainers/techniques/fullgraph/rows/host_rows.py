"""Rows of all nodes on the host that the passes read: features, and what other passes made (outputs, cached aggregates, gradients).

What passes make is in memory, which a device with memory of its own reads over the bus, or in an unnamed file that is mapped if memory is
short; the file disappears with the process. If ranks share the parts, each has the rows of the nodes of its own parts alone.

A chunk's own nodes often have consecutive ids. If a device computes in the host's memory, and no link is modelled, their rows are a range
of the host's array already, and are read and written in place: a copy would be the same values in the same memory. The ledger counts them
as rows that cross, and the device books them as rows that it holds, as if they were copied.

The places in which the parts of a process compute, and a thread for each accelerator if there are several (HongTu, section 5).

A step is cut where one device reads what another one writes: rows are loaded into all buffers, then fetched from peers, then computed with;
gradients of all chunks are there before owners pull them (lines 6 and 10 of Algorithms 2 and 3 synchronise there, too). Between two cuts
the parts of different devices are worked on at once, each device's on its own thread. Threads only launch: kernels and copies are queued on
the device's stream of the training step, whichever thread launches them, so a device's own work needs no other order, and a copy from a
peer waits for the streams of both (`Device.send_tensor`).

Parts of one device, and those of logical devices, which share the processor, are worked on by the calling thread, one after the other.

An error on one device ends the pass when the others have finished the chunk that they are at. It names the device.
"""

import os
import tempfile
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from graphmill.assets.storage.system.filesystem import reporting_full_disk
from graphmill.kernels.cuda.device import device_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.rows.move_rows import add_rows, place_rows
from graphmill.kernels.types import Array
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device, OverBudget, kernel_array
from graphmill.trainers.record.ledger import Ledger, Line

IDS = Line("h2d", "ids")
ALIGNMENT = 64
"""Bytes to which torch aligns its tensors. Matrix products round the same only if the alignment is the same."""


class HostRows:
    """Rows of all nodes on the host, from which passes load what they need.

    Attributes:
        width: number of columns of the rows on a device.
        sharded: whether this rank's host has the rows of the nodes of its parts alone.
    """

    width: int
    sharded = False

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int]:
        """Returns rows of nodes on a device, on any thread, which are not to be changed; then the bytes that cross the link for it."""
        raise NotImplementedError

    def finish(self, staged: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns staged rows in the form that passes read, on the thread that computes."""
        return staged

    def in_place(self, ids: Array, device: Device) -> Tensor | None:
        """Returns finished rows of nodes where they are; None if a device needs a copy."""
        raise NotImplementedError

    def loads_to(self, device: Device) -> bool:
        """Returns whether `load` works: rows need no work between the host and their places in a device's buffer."""
        return True

    def load(self, ids: Array, device: Device, ledger: Ledger, out: Tensor, places: Array | None) -> tuple[Tensor, int]:
        """Writes finished rows of nodes to rows of a tensor on a device.

        Args:
            ids: ids[c], the nodes; at least one.
            ledger: receives the lists' transfer; the caller books the rows', since it knows their purpose.
            out: float[R, F] on the device.
            places: i32[c], rows of `out`; None for all in order.

        Returns:
            `out`, and the bytes that crossed the link for it.
        """
        raise NotImplementedError


class KeptRows(HostRows):
    """Rows that a pass makes, and others read and add to.

    Args:
        num_rows, width, dtype: N, F and the NumPy type.
        folder: folder of the file; None for memory.
        lends: whether rows may be read where they are; not by layers that might write to what they read.
        places: i32[all nodes], the row of each node that this rank has, if ranks share the nodes; then N is the number of these.

    Raises:
        InputError: the disk has no space.
    """

    def __init__(
        self,
        num_rows: int,
        width: int,
        dtype: Any,
        device: Device,
        folder: Path | None,
        threads: int,
        lends: bool = True,
        places: Array | None = None,
    ):
        self.width, self.threads, self.lends = width, threads, lends
        self.places, self.sharded = places, places is not None
        self.row_bytes = width * np.dtype(dtype).itemsize
        self.mapped = folder is not None
        if folder is None:
            self.values: Array = device.host_array((num_rows, width), dtype)
            return
        num_bytes = max(1, num_rows * self.row_bytes)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        with reporting_full_disk(folder, num_bytes):
            os.posix_fallocate(self.file.fileno(), 0, num_bytes)
        self.values = np.memmap(self.file, dtype, mode="r+", shape=(num_rows, width))

    def load(self, ids: Array, device: Device, ledger: Ledger, out: Tensor, places: Array | None) -> tuple[Tensor, int]:
        """As `HostRows.load`."""
        ids = self._rows_of(ids)
        lists = [ids] if places is None else [ids, places]
        if device.holds(self.values):
            place_rows(self.values, ids, kernel_array(out), places, self.threads)
        elif not self.mapped:
            sent = device.send(lists, IDS, ledger)
            place_rows(self.values, sent[0], out, None if places is None else sent[1])
        else:
            # A device cannot read the pages of a file: they go through memory that it can read.
            staged = device.staging((len(ids), self.width), self.values.dtype)
            gather(self.values, ids, staged, threads=self.threads)
            place_rows(staged, None, out, None if places is None else device.send([places], IDS, ledger)[0])
            device_of(out).synchronize()  # the staged rows are lent again after this call
        return out, len(ids) * self.row_bytes

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int]:
        """As `HostRows.stage`, in place or in a separate tensor."""
        found = self.in_place(ids, device)
        if found is not None:
            return found, len(ids) * self.row_bytes
        out = device.alloc((len(ids), self.width), self.values.dtype, "staged")
        return self.load(ids, device, ledger, out, None)

    def in_place(self, ids: Array, device: Device, purpose: str = "staged") -> Tensor | None:
        """Returns float[c, F], the rows of nodes where they are, to be read or written; None if a device needs a copy."""
        return rows_in_place(self.values, self._rows_of(ids), device, purpose) if self.lends else None

    def store(self, ids: Array, rows: Tensor) -> None:
        """Writes rows, float[c, F] on the host, as those of nodes; results that were made in place are there already."""
        ids = self._rows_of(ids)
        if len(ids) and rows.data_ptr() == self.values[ids[0]].ctypes.data:
            return
        place_rows(rows.contiguous().numpy(), None, self.values, ids, self.threads)

    def add(self, ids: Array, rows: Tensor) -> None:
        """Adds rows, float[c, F] on the host, to those of nodes, which are distinct."""
        add_rows(rows.contiguous().numpy(), None, self.values, self._rows_of(ids), self.threads)

    def copied(self, ids: Array) -> Array:
        """Returns float[c, F], a copy of the rows of nodes on the host."""
        out = np.empty((len(ids), self.width), self.values.dtype)
        place_rows(self.values, self._rows_of(ids), out, None, self.threads)
        return out

    def _rows_of(self, ids: Array) -> Array:
        """Returns the rows of nodes, which this rank has."""
        return ids if self.places is None else self.places[ids]


def consecutive(ids: Array) -> bool:
    """Returns whether ids[c], at least one, are low, low + 1, low + 2 and so on."""
    return len(ids) > 0 and int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((np.diff(ids) == 1).all())


def rows_in_place(values: Array, ids: Array, device: Device, purpose: str) -> Tensor | None:
    """Returns float[c, F], the rows of nodes as a part of the host's array, booked on a device; None if they must be copied.

    Args:
        values: [N, F], the rows of all nodes.
        ids: ids[c], the nodes.

    Raises:
        OverBudget: the device's budget does not allow them.
    """
    if not device.in_host_memory or not consecutive(ids):
        return None
    low = int(ids[0])
    part = values[low : low + len(ids)]
    if part.ctypes.data % ALIGNMENT or not part.flags.c_contiguous or not part.flags.writeable:
        return None
    found = torch.from_numpy(part)
    device.adopt([found], purpose)
    return found


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place in which a part computes; if several devices do, each books its own memory."""

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
    """Does work for all parts of this process; those of a turn at once: one of each device with threads, else one part."""

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
