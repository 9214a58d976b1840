"""Splits of edges into those to train on, to validate and to test, and the edges of a topology that are held out.

An edge and its reverse are one link (kernels/links/triples.py) and are in the same part: a reverse edge in the training data would give a
tested one away. Copies of an edge are one link, too.

Drawn: the links of a relation are ordered by a keyed hash of their number (stream 5) and cut by the two ratios, so each relation keeps its
share in every part. By time: they are ordered by the first time of their edges, links of one time by the hash. So a tested link is one
that was not seen before. A gap leaves time between the parts (`leave_gap`).

Peak memory: 60 bytes per edge that is split; `stored_edges` 40 per edge of a range.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.rng import absorb_ids, key
from graphmill.kernels.types import Array, Stream, Topology

TRAIN, VALID, TEST, GAP = range(4)
PARTS = ("train", "valid", "test")
EDGES_AT_ONCE = 1 << 22


def split_edges(
    triples: Triples,
    source: Array,
    target: Array,
    relation: Array | None = None,
    *,
    seed: int,
    train_ratio: float,
    valid_ratio: float,
    times: Array | None = None,
    gap: float = 0.0,
) -> Array:
    """Draws a split of edges, or cuts them by time.

    Args:
        source, target: ids[n]; relation: u8[n] or None.
        train_ratio, valid_ratio: shares of the links of each relation, rounded to the nearest link, at least one for training.
        times: [n], numbers that ascend with time: the oldest links are for training, the newest for testing. None to draw.
        gap: least time between the parts of a relation, in the unit of the times.

    Returns:
        u8[n]: 0 for training, 1 for validation, 2 for testing, 3 for links in a gap.
    """
    links, of_edge = np.unique(triples.links(source, target, relation), return_inverse=True)
    of_edge = of_edge.reshape(-1)
    hashes = absorb_ids(key(seed, Stream.SPLITS), links.view(np.int64))
    kind = triples.parts(links)[2]
    first = None if times is None else _first_times(times, of_edge, len(links))
    part = cut_in_order([hashes, *([] if first is None else [first])], kind, train_ratio, valid_ratio)
    if gap and first is not None:
        for each in np.unique(kind):
            part[kind == each] = leave_gap(part[kind == each], first[kind == each], gap)
    return part[of_edge]


def cut_in_order(sort_keys: Sequence[Array], group: Array, train_ratio: float, valid_ratio: float) -> Array:
    """Cuts groups into three parts, each group in the order of some keys.

    Args:
        sort_keys: arrays [n], the last one first.
        group: integers[n], from 0.
        train_ratio, valid_ratio: shares of each group, rounded to the nearest member, at least one for training.

    Returns:
        u8[n]: 0 for training, 1 for validation, 2 for testing.
    """
    order, sizes = np.lexsort([*sort_keys, group]), np.bincount(group)
    place = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.maximum(np.floor(sizes * train_ratio + 0.5), 1)
    second = np.maximum(np.floor(sizes * (train_ratio + valid_ratio) + 0.5), first)
    part = np.empty(len(group), np.uint8)
    part[order] = (place >= np.repeat(first, sizes)).astype(np.uint8) + (place >= np.repeat(second, sizes))
    return part


def leave_gap(part: Array, times: Array, gap: float) -> Array:
    """Takes what is too new out of the parts of a split by time.

    Args:
        part: u8[n], of each link, or seed, 0 to 2.
        times: f64[n].
        gap: least time between a part and what is tested later, in the unit of the times.

    Returns:
        u8[n]: `GAP` for what is newer than the first of a later part, less the gap; else the part.
    """
    found = part.copy()
    for own in (TRAIN, VALID):
        later = times[part > own]
        if len(later):
            found[(part == own) & (times > later.min() - gap)] = GAP
    return found


def _first_times(times: Array, of_edge: Array, num_links: int) -> Array:
    """Returns [num_links], the smallest time of the edges of each link."""
    order = np.lexsort((times, of_edge))
    first = np.flatnonzero(np.diff(of_edge[order], prepend=-1))
    assert len(first) == num_links
    return times[order][first]


def check_split(
    triples: Triples,
    source: Array,
    target: Array,
    split: Array,
    relation: Array | None = None,
    *,
    place: Callable[[int], str] = "row {}".format,
) -> None:
    """Checks a split that was given.

    Args:
        source, target: ids[n]; relation: u8[n] or None.
        split: int[n]: 0 for training, 1 for validation, 2 for testing.
        place: function row -> its place in words.

    Raises:
        InputError: a part is none of the three, or an edge is in another part than its reverse or a copy of it; names the rows.
    """
    unknown = np.flatnonzero((split < TRAIN) | (split > TEST))
    if len(unknown):
        row = int(unknown[0])
        raise InputError(f"{place(row)}: {split[row]} is not a part of a split", "give 0 train, 1 valid, 2 test")
    links = triples.links(source, target, relation)
    order = np.argsort(links, kind="stable")
    same = np.diff(links[order]) == 0
    crossing = np.flatnonzero(same & (np.diff(split[order].astype(np.int64)) != 0))
    if len(crossing):
        one, other = (int(order[crossing[0] + after]) for after in (0, 1))
        problem = (
            f"{place(other)}: the edge {source[other]} -> {target[other]} is in {PARTS[split[other]]}, and {place(one)} has it "
            f"or its reverse in {PARTS[split[one]]}; {len(crossing)} such edges"
        )
        raise InputError(problem, "put an edge, its copies and its reverse into one part")


def stored_edges(topology: Topology, known: KnownEdges) -> Iterator[tuple[tuple[int, int], Array, Array]]:
    """Yields ((low, high), targets i64[n], bool[n] true for known edges) of the edges that enter the nodes low to high - 1.

    Raises:
        InputError: the known edges have several relations, and the topology has none.
    """
    if topology.edge_types is None and len(known.triples.reverse_of) > 1:
        raise InputError("edges that are held out have relations, and the graph has none", "give edges of relation 0")
    for low, high in row_ranges(topology.indptr):
        rows = slice(int(topology.indptr[low]), int(topology.indptr[high]))
        target = np.repeat(np.arange(low, high), np.diff(topology.indptr[low : high + 1]))
        relation = None if topology.edge_types is None else topology.edge_types[rows]
        yield (low, high), target, known.contains(topology.indices[rows], target, relation)


def row_ranges(indptr: Array, most: int = EDGES_AT_ONCE) -> Iterator[tuple[int, int]]:
    """Yields (low, high), ranges of rows with `most` entries at most, or of one row; row i has `indptr[i + 1] - indptr[i]` entries."""
    low = 0
    while low < len(indptr) - 1:
        high = int(np.searchsorted(indptr, indptr[low] + most, "right")) - 1
        high = min(max(high, low + 1), len(indptr) - 1)
        yield low, high
        low = high
