"""From a spool of edges to compressed columns without holding them: an external distribution sort.

1. Deal. The nodes are cut into ranges that receive about equal numbers of edges, few enough that one range fits in
   memory. One pass over the spool adds reverse edges, drops self-loops, and appends every edge to the file of its
   destination's range.
2. Sort. Range by range, the edges are ordered by (destination, edge type, source, row in the source table), or if they have
   times by (destination, edge type, time, source, row), equal ones are merged, and the columns are appended to the arrays of the
   artifact. Edges of different times are not equal.

The order is total up to equal bytes, so neither the batches nor the number of ranges changes the result: it equals that of
`graphmill.kernels.graph.csc.build_csc` on the same edges.

Peak memory: the largest of `memory_bytes`, SORT_BYTES times the edges of the fullest of 65,536 equal ranges of nodes, and SORT_BYTES times
1/256 of all edges; beside it 8 N bytes for degrees, 4 N if the graph is undirected. Disk: two records for every edge of the spool, three
when it is made undirected, beside the result.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.sources.spool import EdgeSpool, range_edges
from graphmill.assets.storage.files.arrays import ArrayAppender, open_array, write_whole
from graphmill.kernels import _native
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.edge_order import edge_order
from graphmill.kernels.graph.edge_records import deal_records, sort_ends
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array, Topology, id_dtype

LARGEST_DEGREE = 2**31 - 1


class ArrayFolder(Protocol):
    """A place for sorted arrays: the writer of an artifact, or a folder of working files."""

    def path(self, name: str) -> Path:
        """Returns the place of a file."""
        ...

    def create(self, name: str, shape: Any, dtype: Any) -> Any:
        """Returns a new mapped array of zeros."""
        ...

    def append(self, name: str, dtype: Any) -> ArrayAppender:
        """Makes an array whose length is known at the end of the context that this is."""
        ...


@dataclass(frozen=True, kw_only=True)
class EdgePolicy:
    """The treatment of reverse edges, self-loops and edges that occur several times."""

    undirected: bool
    merge: bool
    drop_loops: bool


def sort_edges(
    spool: EdgeSpool, policy: EdgePolicy, memory_bytes: int, threads: int, writer: ArrayFolder, progress: Progress
) -> tuple[Topology, dict[str, int]]:
    """Writes `indptr`, `indices` and the attribute arrays of the topology, and removes the spool.

    Args:
        spool: the edges, all appended.
        memory_bytes: working memory; see the module's docstring.
        progress: listener, which gets every edge once in each of the two passes.

    Returns:
        (the topology, memory-mapped except its degrees; num_duplicates and num_self_loops as `build_csc` counts them).

    Raises:
        InputError: a node has 2^31 edges or more, or the disk is full.
    """
    spool.close()
    sort = _Sort(spool, policy, memory_bytes, progress)
    sort.distribute()
    spool.remove()
    topology = sort.sort(threads, writer)
    return topology, {"num_duplicates": sort.num_duplicates, "num_self_loops": sort.num_self_loops}


def _cut(spool: EdgeSpool, memory_bytes: int) -> Array:
    """Returns the bounds i64[R+1] of ranges of nodes, each with at most the edges that fit, or one coarse bin."""
    most = range_edges(memory_bytes, int(spool.histogram.sum()))
    cuts, held = [0], 0
    for bin_number, size in enumerate(spool.histogram.tolist()):
        if held and held + size > most:
            cuts.append(bin_number)
            held = 0
        held += size
    bounds = np.array([*cuts, len(spool.histogram)], np.int64) << spool.shift
    bounds[-1] = spool.num_nodes
    return bounds


class _Sort:
    """The two passes over the edges of a spool, with the files between them and the counts."""

    def __init__(self, spool: EdgeSpool, policy: EdgePolicy, memory_bytes: int, progress: Progress):
        self.spool, self.policy, self.progress = spool, policy, progress
        self.bounds = _cut(spool, memory_bytes)
        self.files = [spool.folder / f"range.{number}" for number in range(len(self.bounds) - 1)]
        self.num_duplicates = self.num_self_loops = 0
        self.in_degree = np.zeros(spool.num_nodes, np.int32)
        # Every edge has its reverse in an undirected graph, so the degrees are equal.
        self.out_degree = np.zeros(0 if policy.undirected else spool.num_nodes, np.uint32)

    def distribute(self) -> None:
        """Appends every edge that is kept, and its reverse, to the file of its destination's range."""
        spool, policy = self.spool, self.policy
        self.progress.start("distribute edges", spool.num_edges, "edges")
        own = spool.columns.reverse_types == "own"
        # The bounds of ranges are bounds of bins.
        bins = np.arange(len(spool.histogram), dtype=np.int64) << spool.shift
        range_of = (np.searchsorted(self.bounds, bins, side="right") - 1).astype(np.uint16)
        with ExitStack() as stack:
            open_files = [stack.enter_context(open(path, "xb", buffering=0)) for path in self.files]
            for batch in spool.batches():
                records, counts, loops = deal_records(
                    batch,
                    range_of,
                    spool.shift,
                    len(self.files),
                    reverse=policy.undirected,
                    drop_loops=policy.drop_loops,
                    type_step=spool.columns.num_types if own else 0,
                )
                self.num_self_loops += loops
                ends = pairwise(accumulate(counts, initial=0))
                for number, (begin, end) in enumerate(ends):
                    if end > begin:
                        write_whole(open_files[number], self.files[number], records[begin:end])
                self.progress.advance(len(batch))
        self.progress.done()

    def sort(self, threads: int, writer: ArrayFolder) -> Topology:
        """Sorts and merges range after range, and writes the arrays of the topology."""
        spool, columns = self.spool, self.spool.columns
        wanted = {"indices": id_dtype(spool.num_nodes)}
        wanted |= {"weights": np.dtype(np.float32)} if columns.weights else {}
        wanted |= {"edge_types": np.dtype(np.uint8)} if columns.num_types else {}
        wanted |= {"edge_ids": np.dtype(np.int64)} if columns.edge_ids else {}
        wanted |= {"edge_times": np.dtype(np.float64)} if columns.times else {}
        num_records = sum(path.stat().st_size for path in self.files) // spool.dtype.itemsize
        self.progress.start("sort edges", num_records, "edges")
        with ExitStack() as stack:
            out = {name: stack.enter_context(writer.append(name, dtype)) for name, dtype in wanted.items()}
            for path, (low, high) in zip(self.files, pairwise(self.bounds.tolist()), strict=True):
                records = np.fromfile(path, spool.dtype)
                self._sort_range(records, low, high, threads, out)
                self.progress.advance(len(records))
                path.unlink()
        indptr = writer.create("indptr", spool.num_nodes + 1, np.int64)
        for low, high in node_ranges(spool.num_nodes):
            indptr[low + 1 : high + 1] = indptr[low] + np.cumsum(self.in_degree[low:high], dtype=np.int64)
        mapped = {name: open_array(writer.path(f"{name}.npy")) for name in wanted}
        out_degree = self.in_degree
        if not self.policy.undirected:
            out_degree = _counted_degrees(self.out_degree, int(indptr[-1]))
        self.progress.done()
        return Topology(indptr=indptr, in_degree=self.in_degree, out_degree=out_degree, **mapped)

    def _sort_range(self, records: Array, low: int, high: int, threads: int, out: Mapping[str, ArrayAppender]) -> None:
        """Sorts and merges the edges of the nodes low to high - 1, and appends their columns."""
        names, policy = records.dtype.names or (), self.policy
        if names == ("dst", "src"):
            src, lengths, repeats = sort_ends(records, low, high - low, merge=policy.merge, threads=threads)
            self.num_duplicates += repeats
            self.in_degree[low:high] = _as_degrees(lengths, low)
            self._count_out(src)
            out["indices"].append(src)
            return
        rows = (records["dst"] - low).astype(np.int32)
        src = np.ascontiguousarray(records["src"])
        types = np.ascontiguousarray(records["type"]) if "type" in names else None
        ties = np.ascontiguousarray(records["tie"]) if "tie" in names else None
        times = np.ascontiguousarray(records["time"]) if "time" in names else None
        order = edge_order(rows, src if times is None else _rank(times, src), high - low, types, ties, threads)
        rows, src = rows[order], src[order]
        types = None if types is None else types[order]
        repeats = np.zeros(len(rows), bool)
        repeats[1:] = (rows[1:] == rows[:-1]) & (src[1:] == src[:-1])
        if types is not None:
            repeats[1:] &= types[1:] == types[:-1]
        if times is not None:
            times = times[order]
            repeats[1:] &= times[1:] == times[:-1]
        self.num_duplicates += int(np.count_nonzero(repeats))
        kept = ~repeats if policy.merge else np.ones(len(rows), bool)
        self.in_degree[low:high] = _as_degrees(np.bincount(rows[kept], minlength=high - low), low)
        src = src[kept]
        self._count_out(src)
        out["indices"].append(src)
        if types is not None:
            out["edge_types"].append(types[kept])
        if "edge_ids" in out and ties is not None:
            out["edge_ids"].append(ties[order][kept])
        if times is not None:
            out["edge_times"].append(times[kept])
        if "weights" in out:
            weights = records["weight"][order]
            if policy.merge and self.spool.columns.merge_weights == "sum":
                # bincount adds in the order of the rows, in float64: the same bytes everywhere
                weights = np.bincount(np.cumsum(kept) - 1, weights=weights).astype(np.float32)
            else:
                weights = weights[kept]
            out["weights"].append(weights)

    def _count_out(self, src: Array) -> None:
        if not self.policy.undirected:
            # Counted in place: an array of all nodes for every range of nodes would make the work grow with N squared.
            _native.count_prefixes(src, [len(src)], self.out_degree[:, None])


def _rank(times: Array, src: Array) -> Array:
    """Returns i64[n], the place of each edge's (time, source) among the different ones in ascending order."""
    order = np.lexsort((src, times))
    new = (np.diff(times[order], prepend=np.nan) != 0) | (np.diff(src[order], prepend=-1) != 0)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(new)
    return rank


def _counted_degrees(counts: Array, num_edges: int) -> Array:
    """Returns i32[N], the counted out-degrees, which add up to the number of edges unless a count has wrapped around."""
    if int(counts.sum(dtype=np.uint64)) != num_edges:
        problem = f"a node has more than {2**32 - 1} out-edges; a row may have {LARGEST_DEGREE}"
        raise InputError(problem, 'merge duplicate edges: duplicates = "merge"')
    _require_degrees(counts, "out")
    return counts.view(np.int32)


def _as_degrees(counts: Array, low: int) -> Array:
    _require_degrees(counts, "in", low)
    return counts.astype(np.int32)


def _require_degrees(counts: Array, direction: str, low: int = 0) -> None:
    if len(counts) and counts.max() > LARGEST_DEGREE:
        node = int(np.argmax(counts))
        problem = f"node {low + node} has {counts[node]} {direction}-edges; a row may have {LARGEST_DEGREE}"
        raise InputError(problem, 'merge duplicate edges: duplicates = "merge"')
