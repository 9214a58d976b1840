"""The arrays that pass between kernels, stages and trainers.

Dtypes and shapes are written `dtype[shape]`. `ids` is the graph's node-id type: int32, or int64 from 2^31 nodes on. Global ids name a
node of the whole graph, local ids name a row of one block; local ids are always int32.
"""

import dataclasses
import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.errors import InputError

Array = np.ndarray[Any, Any]


class Stream(enum.IntEnum):
    """The independent random streams; each decision draws from one of them and no two share a draw."""

    TRAIN = 0
    PRESAMPLE = 1
    PROBE = 2
    EVAL = 3
    DROPOUT = 4
    SPLITS = 5
    INIT = 6
    GENERATORS = 7
    NEGATIVES = 8


class Traffic(NamedTuple):
    """Bytes to the device and back that a call moved besides its operands, and the transfers; none if it ran in the host's memory."""

    sent: int = 0
    fetched: int = 0
    sends: int = 0
    fetches: int = 0


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class BatchKey:
    """Names the random decisions of one mini-batch.

    Attributes:
        epoch: the sampling epoch (the training epoch modulo `reuse` if samples are reused).
        step: the batch's number in that sampling epoch, over all ranks.
    """

    stream: int
    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Topology:
    """In-neighbours of every node in compressed columns; may be memory-mapped.

    Attributes:
        indptr: i64[N+1]; node v's in-neighbours are indices[indptr[v]:indptr[v+1]].
        indices: ids[E], global; every row sorted by (edge type, source), or if edges have times by (edge type, time, source), so equal
            graphs have equal bytes.
        in_degree, out_degree: i32[N], of the whole graph.
        weights: f32[E] aggregation weights, or None.
        edge_types: u8[E], or None.
        edge_ids: i64[E] rows of the edges in their source table, or None.
        edge_times: f64[E], finite, or None.
        node_type_ptr: i64[T+1], node types are ranges of ids; None when there is one type.
    """

    indptr: Array
    indices: Array
    in_degree: Array
    out_degree: Array
    weights: Array | None = None
    edge_types: Array | None = None
    edge_ids: Array | None = None
    edge_times: Array | None = None
    node_type_ptr: Array | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges E."""
        return len(self.indices)

    @cached_property
    def own_loops(self) -> Array:
        """bool[N]: whether a node is its own neighbour, read from the edges of 65,536 nodes at a time, once."""
        found, step = np.zeros(self.num_nodes, bool), 1 << 16
        for low in range(0, self.num_nodes, step):
            ends = np.asarray(self.indptr[low : low + step + 1])
            destinations = np.repeat(np.arange(low, low + len(ends) - 1), np.diff(ends))
            found[destinations[destinations == self.indices[ends[0] : ends[-1]]]] = True
        return found


@dataclass(frozen=True, kw_only=True)
class Splice:
    """The source rows of a block that are the block below's output, and those from the history of embeddings (FreshGNN, section 5).

    h_src[computed] = output of the block below, in its order; h_src[hist_pos] = history[hist_slot]. Every source is in one of the two.

    Attributes:
        computed: i32[c], ascending places among the block's sources; c is the number of destinations of the block below.
        hist_pos: i32[h], ascending places among the block's sources.
        hist_slot: i32[h], rows of the history's embeddings (`graphmill.kernels.history.arena.History.embeddings`).
        rows: float[h, H], copies of these rows, if the history may have changed by the time they are read; else None.
    """

    computed: Array
    hist_pos: Array
    hist_slot: Array
    rows: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        copies = 0 if self.rows is None else self.rows.nbytes
        return self.computed.nbytes + self.hist_pos.nbytes + self.hist_slot.nbytes + copies


@dataclass(kw_only=True)
class Block:
    """One bipartite layer of a mini-batch, in CSR2 form.

    Attributes:
        start, end: i32[num_dst]; destination i's edges are start[i] to end[i]. Removing its in-edges is end[i] = start[i].
        indices: i32[nnz] local source ids.
        src_ids: ids[num_src] global ids of the sources.
        dst_pos: i32[num_dst], places of the destinations among the sources; None = the first num_dst.
        weight: f32[nnz] edge weights (GCN coefficients, importance), or None.
        share: f32[nnz], each edge's share in the mean of its row, which sum to 1, if drawn by weight or by walks. None = equal shares.
        self_weight: f32[num_dst] weight of a destination's own row in a weighted sum, or None.
        edge_type: u8[nnz]; edge_id: i64[nnz]: if the topology has them and the sampler was asked for them, else None.
        edge_rows: float[U, F], a torch tensor: feature rows of the edges of all blocks of a batch, one for each edge id; None without.
        edge_place: i32[nnz], the row of each edge among `edge_rows`; None without.
        t_start, t_edge, t_dst: the transpose: source s is used by the edges t_edge[t_start[s]:t_start[s+1]], whose destinations
            are t_dst at the same places. i32[num_src+1], i32[nnz], i32[nnz]; None if no gradient will pass.
        t_weight: f32[nnz], weight[t_edge], of a block that serves many passes: weights are read in order then. None = not kept.
        splice: origin of the source rows after pruning; None: they are the output rows of the block below, in order.
    """

    num_dst: int
    num_src: int
    start: Array
    end: Array
    indices: Array
    src_ids: Array
    dst_pos: Array | None = None
    weight: Array | None = None
    self_weight: Array | None = None
    share: Array | None = None
    edge_type: Array | None = None
    edge_id: Array | None = None
    edge_rows: Any = None
    edge_place: Array | None = None
    t_start: Array | None = None
    t_edge: Array | None = None
    t_dst: Array | None = None
    t_weight: Array | None = None
    splice: Splice | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges that are still in the block."""
        return int((self.end - self.start).sum(dtype=np.int32))  # NumPy's own choice, int64, takes twice as long

    @property
    def dst_ids(self) -> Array:
        """ids[num_dst]: global ids of the destinations."""
        return self.src_ids[: self.num_dst] if self.dst_pos is None else self.src_ids[self.dst_pos]

    def of_sources(self, values: Array) -> Array:
        """Returns [num_src], the value of each source, from values [N] of all nodes."""
        return values[self.src_ids]


@dataclass(kw_only=True)
class WholeBlock(Block):
    """A block whose sources are all nodes by their ids. It has no list of them: `src_ids` is empty, and `dst_pos` has the destinations."""

    src_ids: Array = dataclasses.field(default_factory=lambda: np.empty(0, np.int32))

    @property
    def dst_ids(self) -> Array:
        """i32[num_dst]: ids of the destinations."""
        assert self.dst_pos is not None
        return self.dst_pos

    def of_sources(self, values: Array) -> Array:
        """Returns the values themselves."""
        return values


@dataclass(frozen=True, kw_only=True)
class ChunkStep:
    """The work of one device in one step of a full-graph pass (HongTu 4.1, 5.2, 6): the chunk that it computes and the rows that it moves.

    Chunk j of part i is computed by device i in step j; all devices' chunks of a step form a batch. A device keeps rows in one buffer:
    its transition rows, those of the batch's neighbours that belong to its own part, and copies of other parts' rows that its chunk
    reads. A node that is in the buffer in two successive steps keeps its row, so steps run in order: upwards in a forward pass, where
    the rows of `load` and `fetch` come into the buffer before the step; downwards in a backward pass, where the gradients of the same
    rows leave it after the step (first to the owners, then to the host), and the rows become zero.

    Attributes:
        part, step: i and j.
        dst_ids: ids[v], global ids of the chunk's destinations, ascending.
        block: the chunk's edges. `indices` and `dst_pos` are rows of the buffer; `src_ids` names the node of each row, -1 for a row that is
            not used in this step; `num_src` is one more than the largest row in use. `dst_pos` is None if destinations are not loaded with
            the neighbours (`self_term = false`).
        load_ids: ids[c], nodes of the own part that come from the host; load_rows: i32[c], their rows.
        fetch: one entry per other device that has rows for this one, in the order i + 1, i + 2, ... (modulo devices):
            (peer, i32[f] rows of the peer's buffer, i32[f] rows of this buffer).
        num_transition: transition rows of this device in this step.
    """

    part: int
    step: int
    dst_ids: Array
    block: Block
    load_ids: Array
    load_rows: Array
    fetch: tuple[tuple[int, Array, Array], ...]
    num_transition: int


def id_dtype(num_nodes: int) -> np.dtype[Any]:
    """Returns the node-id dtype of a graph: int32 below 2^31 nodes, else int64."""
    if num_nodes < 0:
        raise InputError(f"number of nodes {num_nodes} is negative", "give a count of 0 or more")
    return np.dtype(np.int32 if num_nodes < 2**31 else np.int64)
