"""Edges on their way from a source to the topology: a scratch file of fixed-size records, in any order.

Sources that may not fit in memory append their edges batch by batch; the graph stage sorts the file afterwards (assets/graph/edge_sort.py).
A record holds the two ends and only the attributes that are wanted:

    dst ids, src ids, [tie i64], [weight f32], [time f64], [type u8]

`tie` is the edge's row in its source table. It decides which of several equal edges comes first, and is stored as `edge_ids` if these are
wanted. A coarse histogram of the destinations is kept while edges pass, so that the sort can cut the nodes into ranges of about equal
numbers of edges without another pass.

Peak memory: one batch, and 1 MiB.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.directions import Directions
from graphmill.assets.sources.edge_marks import EdgeMarks
from graphmill.assets.storage.files.arrays import write_whole
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, id_dtype

COARSE_BINS = 1 << 16
"""Most ranges of destinations that the histogram distinguishes."""

BATCH_EDGES = 1 << 20
"""Edges of one batch that is read back."""

SORT_BYTES = 112
"""Most bytes that sorting needs for one edge: its record, columns, order, merged columns."""

MOST_RANGES = 512
"""Most files that are open at once while edges are distributed."""


@dataclass(frozen=True, kw_only=True)
class EdgeColumns:
    """The attributes of edges besides their ends."""

    # f32 aggregation weights
    weights: bool = False
    # relations; 0 = edges have no types
    num_types: int = 0
    # rows of the edges in their source table
    edge_ids: bool = False
    # f64, by which rows are sorted
    times: bool = False
    # "first" keeps the weight of the first of several merged edges, "sum" adds them up
    merge_weights: str = "first"
    # "own" gives the reverse of an edge of type t the type num_types + t, "same" leaves it t
    reverse_types: str = "same"

    def __post_init__(self) -> None:
        stored = self.num_types * (2 if self.reverse_types == "own" else 1)
        if stored > 256:
            own = ", reverse ones included" if self.reverse_types == "own" else ""
            raise InputError(f"{stored} edge types{own}; at most 256 are possible", "merge rare types into one")


class EdgeSpool:
    """The file of records; sources append, the sort reads batches.

    Attributes:
        largest_weight: largest absolute weight of them; 0 without weights.

    Args:
        undirected: whether reverse edges will be added; the histogram counts them.
        watched: whether `directions` samples the edges.
        marked: whether edges are marked for a split of links or have labels, in memory: 16 bytes per edge.
        labelled: whether they have labels: 8 bytes more.
    """

    def __init__(
        self,
        folder: Path,
        num_nodes: int,
        columns: EdgeColumns,
        *,
        undirected: bool,
        watched: bool = False,
        marked: bool = False,
        labelled: bool = False,
    ):
        self.directions = Directions() if watched else None
        self._marks: list[tuple[Array, ...]] | None = [] if marked else None
        self.labelled = labelled
        self.folder, self.num_nodes, self.columns, self.undirected = folder, num_nodes, columns, undirected
        self.num_edges, self.largest_weight = 0, 0.0
        self.shift = max(0, (max(num_nodes, 1) - 1).bit_length() - COARSE_BINS.bit_length() + 1)
        self.histogram = np.zeros(((max(num_nodes, 1) - 1) >> self.shift) + 1, np.int64)
        self.dtype = record_dtype(num_nodes, columns)
        self.path = folder / "edges.spool"
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115

    def append(
        self,
        src: Array,
        dst: Array,
        *,
        tie: Array | None = None,
        weight: Array | None = None,
        type: Any = None,
        mark: Array | None = None,
        label: Array | None = None,
    ) -> None:
        """Adds edges whose ends are known to be in range.

        Args:
            src, dst: integers[n], global ids.
            tie: i64[n] rows in the source table; needed with weights, edge ids or marks.
            mark, label: f64[n], see `EdgeMarks`; None if none of these edges is predicted, or none has a label. The marks are times, if
                edges have times.
            weight: f32[n], if edges have weights.
            type: u8[n] or one number, if edges have types.
        """
        records = np.empty(len(src), self.dtype)
        records["src"], records["dst"] = src, dst
        for name, values in (("tie", tie), ("weight", weight), ("time", mark), ("type", type)):
            if name in (self.dtype.names or ()):
                assert values is not None, f"edges lack {name}"
                records[name] = values
        if weight is not None and len(weight):
            self.largest_weight = max(self.largest_weight, float(np.abs(weight).max()))
        if self.directions is not None:
            self.directions.add(
                records["src"], records["dst"], records["type"] if "type" in (records.dtype.names or ()) else 0
            )
        for ends in (dst, src) if self.undirected else (dst,):
            self.histogram += np.bincount(ends >> self.shift, minlength=len(self.histogram))
        if self._marks is not None:
            assert tie is not None, "marked edges have rows"
            # Copies: the arrays of a batch may stand in memory that its reader frees.
            none, given = np.full(len(src), np.nan), (mark, label) if self.labelled else (mark,)
            self._marks.append((np.array(tie), *(none if each is None else np.array(each) for each in given)))
        write_whole(self._file, self.path, records)
        self.num_edges += len(records)

    def marks(self, place: Callable[[int], str]) -> EdgeMarks | None:
        """Returns the marks of all edges; None if they are not marked.

        Args:
            place: function row in the source table -> its place in words.
        """
        if self._marks is None:
            return None
        parts = range(3 if self.labelled else 2)
        rows, values, *labels = (
            np.concatenate([each[part] for each in self._marks] or [np.zeros(0)]) for part in parts
        )
        return EdgeMarks(values=values, labels=next(iter(labels), None), place=lambda number: place(int(rows[number])))

    def batches(self) -> Iterator[Array]:
        """Yields records[n] in the order in which they were appended."""
        with open(self.path, "rb", buffering=0) as file:
            while len(batch := np.fromfile(file, self.dtype, BATCH_EDGES)):
                yield batch

    def keep(self, kept: Callable[[Array], Array]) -> None:
        """Ends writing and leaves out records; the histogram still counts them.

        Args:
            kept: function records[n] -> bool[n].
        """
        self.close()
        chosen, self.num_edges = self.folder / "edges.kept", 0
        with open(chosen, "xb", buffering=0) as file:
            for batch in self.batches():
                write_whole(file, chosen, records := batch[kept(batch)])
                self.num_edges += len(records)
        chosen.replace(self.path)

    def close(self) -> None:
        """Ends writing."""
        self._file.close()

    def remove(self) -> None:
        """Frees the disk space; the records are not needed any more."""
        self.close()
        self.path.unlink(missing_ok=True)


def record_dtype(num_nodes: int, columns: EdgeColumns) -> np.dtype[Any]:
    """Returns the packed record of an edge."""
    ids = id_dtype(num_nodes)
    fields: list[tuple[str, Any]] = [("dst", ids), ("src", ids)]
    if columns.weights or columns.edge_ids:
        fields.append(("tie", np.int64))
    if columns.weights:
        fields.append(("weight", np.float32))
    if columns.times:
        fields.append(("time", np.float64))
    if columns.num_types:
        fields.append(("type", np.uint8))
    return np.dtype(fields)


def range_edges(memory_bytes: int, num_edges: int) -> int:
    """Returns the most edges of a range that is sorted at a time, unless one coarse bin of destinations has more.

    Args:
        memory_bytes: working memory of the sort.
        num_edges: edges of all ranges, reverse ones included.
    """
    return max(1, min(num_edges, max(memory_bytes // SORT_BYTES, -(-num_edges // (MOST_RANGES // 2)))))
