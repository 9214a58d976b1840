"""The sums of a part of stored samples: how many of its batches visit each node, and the seeds of its batches.

The index of the samples adds these up, so it reads some bytes per node of a part in place of its batches; of a part in an object store it
fetches nothing else. The sums follow from the batches and are not content of their own (`Summary.derived`): a part that an older version
of graphmill built without them is the same part, and its batches are read for them.
"""

import threading
from collections.abc import Iterator, Sequence

import numpy as np

from graphmill.assets.samples.record import Record, decode
from graphmill.assets.storage.files.records import read_record
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.hotness.presample import counts_itself
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array, Block

FILES = ("visited.npy", "visited_by.npy", "seeds.npy")
"""The files of a part that hold its sums."""
WIDTHS = (np.uint8, np.uint16, np.uint32)


class PartTally:
    """Adds up the batches of one part, visits if they are `counted` for training; threads may add to it at the same time."""

    def __init__(self, num_nodes: int, num_layers: int, counted: bool):
        self._counter = VisitCounter(num_nodes if counted else 0, num_layers)
        self._counted, self._seeds = counted, list[Array]()

    def visit(self, sampler: AnySampler, blocks: Sequence[Block]) -> None:
        """Counts the inputs of a batch, unless its sampler does."""
        if self._counted and not counts_itself(sampler):
            self._counter.add(blocks)

    def append_seeds(self, seeds: Array) -> None:
        """Keeps the seeds ids[b] of the next batch, in the order of the batches."""
        self._seeds.append(seeds)

    def save(self, samplers: Sequence[AnySampler], writer: Writer) -> tuple[str, ...]:
        """Stores the sums, with the inputs that samplers counted, and returns the names of their files."""
        for sampler in samplers if self._counted else ():
            if counts_itself(sampler):
                sampler.take_visits(self._counter.visits)
        visits, seeds = self._counter.visits, np.concatenate(self._seeds)
        most, count, end = int(visits.max(initial=0)), int(np.count_nonzero(visits)), 0
        visited = writer.create("visited", count, seeds.dtype)
        by = writer.create("visited_by", count, next(each for each in WIDTHS if most <= np.iinfo(each).max))
        for low, high in node_ranges(len(visits)):
            found = np.flatnonzero(visits[low:high])
            begin, end = end, end + len(found)
            by[begin:end], visited[begin:end] = visits[low:high][found], found + low
        writer.save("seeds", seeds)
        return FILES


class VisitSum:
    """Adds up parts to visits u32[N], training batches with the node among their inputs; threads may add at the same time."""

    def __init__(self, num_nodes: int, num_layers: int):
        self._counter, self._lock = VisitCounter(num_nodes, num_layers), threading.Lock()
        self.visits = self._counter.visits

    def add(self, part: Artifact, counted: bool) -> Array:
        """Adds the visits of a part, and returns ids[s], the seeds of all its batches.

        Args:
            counted: whether its batches are those of training, whose visits count.

        Raises:
            InputError: the part is damaged.
        """
        if not part.files.keys() >= set(FILES):
            return self._read(part, counted)
        nodes, counts = part.small_array("visited"), part.small_array("visited_by")
        with self._lock:
            self.visits[nodes] += counts
        return part.small_array("seeds")

    def _read(self, part: Artifact, counted: bool) -> Array:
        seeds = [np.zeros(0, np.int32)]
        for record in _records(part):
            if counted:
                self._counter.add(record.blocks)
            seeds.append(record.seeds.copy())
        return np.concatenate(seeds)


def _records(part: Artifact) -> Iterator[Record]:
    """Yields the batches of a part one after the other, each compared with its digest."""
    path, bounds = part.file("batches.npy", verified=False), np.array(part.array("bounds"))
    for number, digest in enumerate(part.array("digests")):
        offset, length = int(bounds[number]), int(bounds[number + 1] - bounds[number])
        yield decode(
            read_record(path, offset, length, int(digest), lambda number=number: f"batch {number} of {part.label}")
        )
