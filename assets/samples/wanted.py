"""The rows of a feature table that stored batches need: those of their input nodes, or those of their edges.

A plan and its packed chunks are about one table. Which rows of it a batch needs, and in which order its slots name them, is said here
alone: inputs in their order, or the ids of its edges in all layers, ascending, each once, as `MiniBatch.edge_ids` has them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.samples.read import Samples
from graphmill.assets.samples.record import input_ids_place
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, id_dtype


class WantedRows:
    """The rows that each stored batch needs of one table.

    Args:
        samples: the stored batches; each is compared with its digest when it is read.
        num_edge_rows: rows of a table of rows of edges; None for a table of rows of nodes.
    """

    def __init__(self, samples: Samples, num_edge_rows: int | None = None):
        self.samples, self.num_edge_rows = samples, num_edge_rows

    def ids(self, number: int) -> Array:
        """Returns ids[n], the rows that a batch needs, in the order of its slots, each once.

        Args:
            number: number of the batch among all.

        Raises:
            InputError: the batch is damaged, or its edges have no ids, or ids of other rows than the table has.
        """
        if self.num_edge_rows is None:
            data = self.samples.bytes(*self.samples.place_of(number))
            start, length, dtype = input_ids_place(data)
            return (
                data[start : start + length * np.dtype(dtype).itemsize].view(dtype).copy()
            )  # a view would keep the whole record
        blocks = self.samples.batch(*self.samples.place_of(number))[1]
        found = [block.edge_id for block in blocks if block.edge_id is not None]
        if len(found) < len(blocks):
            problem = f"{self.samples.artifact.label} has edges without ids, by which rows of edges are found"
            raise InputError(problem, "draw by another method of [sampling], or leave edge_disk out of [memory]")
        ids = np.unique(np.concatenate(found))
        if len(ids) and not 0 <= ids[0] <= ids[-1] < self.num_edge_rows:
            problem = (
                f"{self.samples.artifact.label} names edge {int(ids[-1])}, and {self.num_edge_rows} edges have rows"
            )
            raise InputError(problem, "build both from one source: graphmill build PIPELINE")
        return ids.astype(id_dtype(self.num_edge_rows))

    def counted(self, threads: int, progress: Progress) -> tuple[Array, Array]:
        """Returns (u32[rows of the table], training batches that need each row; i64[B], rows that each batch needs).

        Those of nodes were counted when the samples were built; for edges every batch is read once.
        """
        samples = self.samples
        if self.num_edge_rows is None:
            return np.asarray(samples.access_counts()), np.asarray(samples.num_inputs)
        visits, counts = np.zeros(self.num_edge_rows, np.uint32), np.zeros(samples.num_stored, np.int64)
        progress.start("count edges", samples.num_stored, "batches")
        for number, ids in enumerate(in_order(self.ids, samples.num_stored, threads)):
            counts[number] = len(ids)
            if samples.place_of(number)[0] < samples.num_epochs:
                visits[ids] += 1
            progress.advance(1)
        progress.done()
        return visits, counts


def in_order(work: Callable[[int], Array], count: int, threads: int) -> Iterator[Array]:
    """Yields the results for 0 to count - 1, in order, with no more than two for each thread at once."""
    with ThreadPoolExecutor(threads) as pool:
        step = 2 * threads
        for low in range(0, count, step):
            yield from pool.map(work, range(low, min(low + step, count)))
