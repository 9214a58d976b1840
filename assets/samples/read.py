"""Reading stored samples: the order of their batches, and one sequential read per batch, checked against its digest.

It needs only NumPy and xxhash.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphmill.assets.samples.config import BatchRange
from graphmill.assets.samples.record import Record, decode
from graphmill.assets.storage.files.records import damaged_record, read_record
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block


@dataclass(frozen=True, kw_only=True)
class StoredOrder:
    """The order in which mini-batches are stored, and so their numbers among all.

        plan = "shuffled"    by epoch and step
        plan = "parts"       by part, epoch and round: the batches of a part stand together

    By parts, the batches that a rank reads lie in files of their own, and batches that share many nodes share disk caches. Batches of
    evaluations belong to no part and are the last.

    Attributes:
        num_epochs: K, number of sampling epochs.
        num_parts: P, number of parts whose batches stand together; 1 if they do not.
        sizes: number of batches of each stored epoch, those of evaluations last.
    """

    num_epochs: int
    num_parts: int
    sizes: tuple[int, ...]

    @staticmethod
    def of(artifact: Artifact) -> StoredOrder:
        """Returns the order of a samples artifact."""
        config = artifact.config
        return StoredOrder.of_names(
            artifact.parts, config["epochs"], config["epochs"] + 2 * bool(config.get("evaluate"))
        )

    @staticmethod
    def of_names(names: Iterable[str], num_epochs: int, num_stored: int) -> StoredOrder:
        """Returns the order of the parts' `names`, of `num_stored` epochs; an epoch without seeds has no artifact."""
        ranges = [BatchRange.of(name) for name in names]
        counts = np.zeros((num_stored, 1 + max([0, *(each.part for each in ranges)])), np.int64)
        for each in ranges:
            place = each.epoch, max(0, each.part)
            counts[place] = max(counts[place], each.high)
        return StoredOrder(num_epochs=num_epochs, num_parts=counts.shape[1], sizes=tuple(counts.sum(axis=1).tolist()))

    @cached_property
    def starts(self) -> Array:
        """i64[E + 1]: the number of batches before each stored epoch, by epoch, and of all."""
        return np.cumsum([0, *self.sizes])

    @property
    def rounds(self) -> int:
        """Batches of a part in a sampling epoch."""
        return self.sizes[0] // self.num_parts

    def number(self, epoch: int, step: int) -> int:
        """Returns the number of a batch among all, by its stored epoch and its step."""
        if self.num_parts == 1 or epoch >= self.num_epochs:
            return int(self.starts[epoch]) + step
        round_, part = divmod(step, self.num_parts)
        return (part * self.num_epochs + epoch) * self.rounds + round_

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns stored epoch and step of a batch, by its number among all."""
        if self.num_parts == 1 or number >= self.starts[self.num_epochs]:
            epoch = int(np.searchsorted(self.starts, number, side="right")) - 1
            return epoch, number - int(self.starts[epoch])
        place, round_ = divmod(number, self.rounds)
        part, epoch = divmod(place, self.num_epochs)
        return epoch, round_ * self.num_parts + part

    def epochs_of(self, uses: Array) -> Array:
        """Returns i64[B], the value of its epoch, of i64[K], for each batch of the sampling epochs, and 0 for those of evaluations."""
        trained = (
            np.tile(np.repeat(uses, self.rounds), self.num_parts)
            if self.num_parts > 1
            else np.repeat(uses, self.sizes[0])
        )
        return np.concatenate([trained, np.zeros(int(self.starts[-1]) - len(trained), uses.dtype)])

    @property
    def blocks(self) -> Sequence[tuple[int, int]]:
        """(first batch, one behind the last) of each part, and of the evaluations; of all batches if there are no parts."""
        end = int(self.starts[-1])
        if self.num_parts == 1:
            return [(0, end)]
        each, trained = self.num_epochs * self.rounds, int(self.starts[self.num_epochs])
        found = [(first, first + each) for first in range(0, trained, each)]
        return [*found, (trained, end)] if trained < end else found


class Samples:
    """The mini-batches of K sampling epochs, and of evaluations if these are stored; several threads may read at once.

    Epochs K and K + 1 are then the batches of the validation nodes and of the test nodes.

    Args:
        verify: whether each batch is compared with its digest when it is read.
        parts: parts of the graph whose batches are read, the only ones whose files are opened; None for all batches.
        stored: names of the artifact's parts whose batches are read, the only ones whose files are opened; None for all.

    Attributes:
        num_batches: batches in each of the K epochs.
        starts: i64[E + 1], number of batches before each stored epoch, and of all.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        verify: bool = True,
        parts: Collection[int] | None = None,
        stored: Collection[str] | None = None,
    ):
        index = {name: {"dtype": "int64", "ndim": 1} for name in ("offsets", "num_bytes", "num_inputs")}
        index |= {"part_of": {"dtype": "int32", "ndim": 1}, "digests": {"dtype": "uint64", "ndim": 1}}
        require(artifact, {"stage": "samples", "arrays": index | {"num_edges": {"ndim": 2}, "visits": {"ndim": 1}}})
        self.artifact, self.verify = artifact, verify
        self.num_epochs: int = artifact.config["epochs"]
        self.part_of, self.offsets = np.array(artifact.array("part_of")), np.array(artifact.array("offsets"))
        self.num_bytes, self.digests = np.array(artifact.array("num_bytes")), np.array(artifact.array("digests"))
        self.num_inputs, self.num_edges = artifact.array("num_inputs"), artifact.array("num_edges")
        self.order = StoredOrder.of(artifact)
        self.starts = self.order.starts
        self.num_batches, self.num_stored = int(self.starts[1]), len(self.offsets)
        # Each record is compared with its own digest when it is read.
        self.files = {
            number: artifact.open_part(name).file("batches.npy", verified=False)
            for number, name in enumerate(artifact.parts)
            if (parts is None or BatchRange.of(name).part in parts) and (stored is None or name in stored)
        }

    def batch(self, epoch: int, step: int) -> tuple[Array, tuple[Block, ...]]:
        """Returns (seeds ids[b] global, blocks) of a batch, as the sampler drew them; without transposes.

        Raises:
            InputError: the batch does not exist, or its bytes are damaged.
        """
        record = self.record(epoch, step)
        return record.seeds, record.blocks

    def record(self, epoch: int, step: int) -> Record:
        """Returns a batch with its epoch and step; see `batch`."""
        try:
            found = decode(self.bytes(epoch, step))
        except InputError as error:
            raise self._damaged(epoch, step, error.problem) from error
        if (found.epoch, found.step) != (epoch, step):
            raise self._damaged(epoch, step, f"it is batch {found.step} of epoch {found.epoch}")
        return found

    def bytes(self, epoch: int, step: int) -> Array:
        """Returns u8[n]: the record of a batch, n a multiple of 4,096; see assets/samples/record.py.

        Raises:
            InputError: the batch does not exist, its file is cut short, or its bytes do not match their digest.
        """
        place = self._place(epoch, step)
        path, span = self.files[int(self.part_of[place])], (int(self.offsets[place]), int(self.num_bytes[place]))
        digest = int(self.digests[place]) if self.verify else None
        return read_record(path, *span, digest, lambda: self._name(epoch, step))

    def will_read(self, epoch: int, step: int) -> None:
        """Asks the system to read a batch into its page cache, without waiting; does nothing if the system cannot."""
        place = self._place(epoch, step)
        span = int(self.offsets[place]), int(self.num_bytes[place])
        if not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError):  # the reader reports a missing file
            descriptor = os.open(self.files[int(self.part_of[place])], os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, *span, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def record_bytes(self, epoch: int, step: int) -> int:
        """Returns the number of bytes of a batch's record."""
        return int(self.num_bytes[self._place(epoch, step)])

    def records(self) -> Iterator[Record]:
        """Yields every batch, in their order, one at a time."""
        for number in range(self.num_stored):
            yield self.record(*self.place_of(number))

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns epoch and step of a batch, by its number among all."""
        return self.order.place_of(number)

    def access_counts(self) -> Array:
        """Returns u32[N]: number of training batches with each node among their inputs; counted while the samples were built."""
        return self.artifact.array("visits")

    def require_batches(self, num_batches: int, epochs: int, needs: Mapping[str, object]) -> None:
        """Checks that a run can use the samples.

        Args:
            needs: config key -> value that the samples must have.

        Raises:
            InputError: the samples were drawn otherwise, or are too few.
        """
        require(self.artifact, {"config": needs})
        if num_batches != self.num_batches or epochs > self.num_epochs:
            have = f"{self.num_epochs} epochs of {self.num_batches} batches"
            problem = f"{self.artifact.label} has {have}, but {epochs} epochs of {num_batches} are asked for"
            raise InputError(problem, "set `reuse` in [sampling], or `epochs` in [samples], and build again")

    def _place(self, epoch: int, step: int) -> int:
        there = 0 <= epoch < len(self.starts) - 1 and 0 <= step < self.starts[epoch + 1] - self.starts[epoch]
        if not there:
            have = f"{self.num_epochs} epochs of {self.num_batches} batches"
            problem = f"batch {step} of epoch {epoch} is not in {self.artifact.label}, which has {have}"
            raise InputError(problem, "set `reuse` in [sampling], or `epochs` in [samples], and build again")
        return self.order.number(epoch, step)

    def _name(self, epoch: int, step: int) -> str:
        return f"batch {step} of epoch {epoch} of {self.artifact.label}"

    def _damaged(self, epoch: int, step: int, problem: str) -> InputError:
        return damaged_record(self.files[int(self.part_of[self._place(epoch, step)])], self._name(epoch, step), problem)


open_samples = Samples
