"""Fused neighbour sampling straight into blocks.

FastSample (section 3.2, Algorithm 1) samples in compressed-column form: while a destination's neighbours are chosen its row length is
known, so the block's rows are laid out as they are drawn; global ids are renamed to local ones through a map a few rows later, while their
entries of the map are still on the way. No edge list is made, nothing is sorted by node, nothing is converted.

Choosing: a row of d neighbours with fanout k < d is cut down by Floyd's algorithm, k draws however large d is, each a pure
function of (seed, stream, epoch, step, layer, node). Positions are ascending, so a row's bytes are canonical. Up to 32 of them are
drawn and sorted in vector registers if the processor has AVX-512; the bytes are the same without. Rows pass through a pipeline of three
steps (choose, read, rename), 8 rows apart, each step prefetching the next one's data.

Renaming: the destinations of a block are the sources of the block above, in order, so one map and one list of nodes serve all layers, and
the src_ids of every block are a prefix of the same array. The map comes in two sizes, which name the same nodes in the same order:

    direct   one 64-bit entry per node of the graph: a stamp of the batch, the local id, and in how many batches the node had one. A new
             batch is a new stamp; nothing is hashed, and the map is cleared every 65,536 batches only. So visits
             (kernels/hotness/visits.py) are counted where the entry is written anyway.
    hashed   16 to 32 bytes per source of the largest batch, whatever the graph: open addressing, at most half full, cleared before
             each batch and grown as nodes come.

A graph of more than `MOST_DIRECT_NODES` nodes takes the hashed one.

Cost: O(sampled edges); one random read of the topology and one of the map per edge, which take most of the time: see
`benchmarks/sampling.py` for the distance from a loop that does only those. Memory that a Sampler keeps: the map (touched
pages only, of 2 MiB if the system has them), and an id for each source of the largest batch; `scratch_bytes` says how much. While it
samples, an array of local ids has space for `fanout` edges per row (without replacement no more than the topology has); its unused part is
not touched, and is given back.

One thread does all of it in one pass. Threads share the choosing in pieces of 128 to 1,024 rows, whose edges wait until they are renamed:
in edge order, by one thread at a time, beside the choosing of later pieces. Rows that are taken whole are shared by edges, in pieces of
16,384, so a row of a million neighbours is read by all threads. Two threads gain most of a core, more of them wait for
it. To use many cores run one Sampler per thread.

This is node-wise neighbour sampling (GraphSAGE). Not checked: that a row of the topology names a neighbour once; a repeated one counts as
several edges.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, as_out, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb, bounded, draws, key
from graphmill.kernels.sampling.relations import Fanout, layer_fanouts, native_fanouts, runs_reference
from graphmill.kernels.types import Array, BatchKey, Block, Topology

Transposes = Literal["none", "hidden", "all"]


def choose_reference(row_key: int, degree: int, fanout: int, replace: bool = False) -> list[int]:
    """Returns the ascending positions that are chosen from a row of `degree` neighbours (the rule in plain Python)."""
    if degree == 0 or fanout < 0 or (not replace and degree <= fanout):
        return list(range(degree))
    bits = [int(x) for x in draws(row_key, np.arange(fanout))]
    if replace:
        return sorted(bounded(x, degree) for x in bits)
    chosen: set[int] = set()
    for x, last in zip(bits, range(degree - fanout, degree), strict=True):
        drawn = bounded(x, last + 1)
        chosen.add(last if drawn in chosen else drawn)
    return sorted(chosen)


def sample_reference(
    topology: Topology, fanouts: Sequence[Fanout], batch: BatchKey, seeds: Array, *, seed: int, replace: bool = False
) -> tuple[Block, ...]:
    """Returns the blocks of a batch as `Sampler.sample` does, without transposes (the rule in plain Python)."""

    def pick(layer_key: int, v: int, fanout: Fanout) -> tuple[list[int], None]:
        first, last = int(topology.indptr[v]), int(topology.indptr[v + 1])
        row_key = absorb(layer_key, v)
        if isinstance(fanout, int):
            positions = choose_reference(row_key, last - first, fanout, replace)
            return [int(topology.indices[first + position]) for position in positions], None
        assert topology.edge_types is not None
        found: list[int] = []
        for relation, begin, end in runs_reference(topology.edge_types[first:last]):
            chosen = choose_reference(absorb(row_key, relation), end - begin, fanout[relation], replace)
            found += [int(topology.indices[first + begin + position]) for position in chosen]
        return found, None

    return blocks_reference(fanouts, batch, seeds, pick, seed=seed, dtype=topology.indices.dtype)


def blocks_reference(
    fanouts: Sequence[Any],
    batch: BatchKey,
    seeds: Array,
    pick: Callable[[int, int, Any], tuple[Sequence[int], Sequence[float] | None]],
    *,
    seed: int,
    dtype: Any,
) -> tuple[Block, ...]:
    """Returns the blocks of a batch, whose destinations get the sources that a rule picks for them (plain Python).

    Args:
        pick: function from (key of the layer, node, fanout) to the sources of a destination, and their shares or None.
    """
    nodes = [int(v) for v in seeds]
    local = {v: i for i, v in enumerate(nodes)}
    blocks: list[Block] = []
    for layer, fanout in zip(reversed(range(len(fanouts))), fanouts, strict=True):
        layer_key = key(seed, batch.stream, batch.epoch, batch.step, layer)
        num_dst, indices, ends, shares = len(nodes), [], [], []
        shared = False
        for v in nodes[:num_dst]:
            sources, given = pick(layer_key, v, fanout)
            for u in sources:
                if u not in local:
                    local[u] = len(nodes)
                    nodes.append(u)
                indices.append(local[u])
            shared |= given is not None
            shares += given or []
            ends.append(len(indices))
        block = Block(
            num_dst=num_dst,
            num_src=len(nodes),
            start=np.array([0, *ends][:-1], np.int32),
            end=np.array(ends, np.int32),
            indices=np.array(indices, np.int32),
            src_ids=np.array(nodes, dtype),
            share=np.array(shares, np.float32) if shared else None,
        )
        blocks.insert(0, block)
    return tuple(blocks)


def as_fanouts(fanouts: Sequence[Any]) -> tuple[int, ...]:
    """Returns numbers of neighbours per layer; raises InputError if there are none, or one is neither positive nor -1."""
    found = tuple(fanout for fanout in layer_fanouts(fanouts) if isinstance(fanout, int))
    if len(found) < len(fanouts):
        problem = f"fanouts = {list(fanouts)} has numbers per relation, which uniform sampling draws alone"
        raise InputError(problem, "give one number of neighbours per layer, or -1 for all")
    return found


def seeds_of(seeds: Any, num_nodes: int) -> Array:
    """Returns ids[b], the seeds of a batch; raises InputError if one is not a node of the graph."""
    seeds = as_ids(seeds, "seeds")
    if len(seeds) and not 0 <= seeds.min() <= seeds.max() < num_nodes:
        place = int(np.flatnonzero((seeds < 0) | (seeds >= num_nodes))[0])
        problem = f"seed {seeds[place]} at position {place} is not a node of this graph of {num_nodes} nodes"
        raise InputError(problem, f"give node ids in 0..{num_nodes - 1}")
    return seeds


class Sampler:
    """Samples the blocks of mini-batches from one topology; many Samplers may work at the same time, one per thread.

    Args:
        topology: the in-neighbours; indptr i64[N+1], indices int32[E] or int64[E], memory-mapped or not. indptr is checked
            once, here; a neighbour id out of range is found when it is sampled.
        fanouts: number of neighbours per node, from the seeds outwards: fanouts[0] belongs to the last block; -1 takes all. An entry may
            be a tuple of numbers per relation, as long as the topology has relations (kernels/sampling/relations.py).
        replace: whether to draw with replacement: a row with neighbours gives exactly `fanout`, repeats included.
    """

    FUSED = True  # `TwoStepSampler` is the other way
    BY_RELATION = True  # whether fan-outs may be numbers per relation
    EDGES = True  # whether an edge of a block is one of the topology, with a weight, a type and an id
    MOST_DIRECT_NODES = 1 << 25  # nodes of a graph whose map has an entry for each; docs/log.md has the measurements

    def __init__(
        self,
        topology: Topology,
        fanouts: Sequence[int | Sequence[int]],
        *,
        seed: int,
        replace: bool = False,
        threads: int = 1,
    ):
        self.topology, self.seed = topology, seed
        self.fanouts = layer_fanouts(fanouts) if self.BY_RELATION else as_fanouts(fanouts)
        if topology.indptr.dtype != np.int64 or topology.indptr.ndim != 1 or len(topology.indptr) == 0:
            raise InputError(f"indptr is {topology.indptr.dtype}{list(topology.indptr.shape)}", "give int64[N+1]")
        if topology.indices.dtype not in (np.int32, np.int64) or topology.indices.ndim != 1:
            raise InputError(f"indices is {topology.indices.dtype}{list(topology.indices.shape)}", "give ids[E]")
        self._native = self._open(replace, check_threads(threads), fused=self.FUSED)

    def _open(self, replace: bool, threads: int, **more: Any) -> _native.Sampler32:
        """Returns the native sampler; `more` are its arguments for other ways of drawing."""
        topology = self.topology
        hashed = topology.num_nodes > self.MOST_DIRECT_NODES
        if topology.indices.dtype == np.int32:
            native = _native.HashedSampler32 if hashed else _native.Sampler32
        else:
            native = _native.HashedSampler64 if hashed else _native.Sampler64
        indptr, indices = (np.require(array, requirements=["C", "A"]) for array in (topology.indptr, topology.indices))
        most, by_relation = native_fanouts(self.fanouts, topology)
        return native(indptr, indices, most, bool(replace), threads, **by_relation, **more)

    def read_ahead(self) -> None:
        """From now on asks the system for the pages of a layer's rows, all at once, before it reads them.

        That is for a topology in a mapped file that is larger than the memory for it: else each page is waited for by itself.
        """
        self._native.read_ahead()

    @property
    def scratch_bytes(self) -> int:
        """Bytes that this Sampler keeps between batches: the map (resident once touched), and an id per source of the largest batch."""
        return self._native.scratch_bytes

    @property
    def counts_visits(self) -> bool:
        """Whether the map counts visits, so that `take_visits` may be called."""
        return self._native.counts_visits

    def sample(
        self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden", edge_ids: bool = False
    ) -> tuple[Block, ...]:
        """Samples the blocks under the seeds.

        Args:
            seeds: ids[b] global, each once; may be empty.
            transpose: blocks that get a transpose: "hidden" all but blocks[0], whose input rows need no gradient.
            edge_ids: whether edge_id is filled, if the topology has edge ids.

        Returns:
            One Block per fanout; blocks[0] consumes features and the last one's destinations are the seeds. In every block the
            destinations are the first num_dst sources, new sources follow in the order of their first edge. weight and edge_type are filled
            if the topology has them.

        Raises:
            InputError: a seed is out of range or repeated (before any work), a block would need local ids beyond int32, or two
                threads use this Sampler at once.
        """
        if transpose not in get_args(Transposes):
            raise InputError(f"transpose = {transpose!r}", f"give one of {', '.join(get_args(Transposes))}")
        graph = self.topology
        wants_ids = edge_ids and graph.edge_ids is not None and self.EDGES
        positions = wants_ids or (self.EDGES and (graph.weights is not None or graph.edge_types is not None))
        batch_key = key(self.seed, batch.stream, batch.epoch, batch.step)
        code = get_args(Transposes).index(transpose)
        src_ids, layers = self._native.sample(batch_key, self.check_seeds(seeds), code, bool(positions))
        return tuple(self._block(src_ids, layer, wants_ids) for layer in layers)

    def take_visits(self, visits: Array) -> Array:
        """Adds the batches in which each node was an input since the last call, and forgets them.

        A batch that was refused may have been counted in part. Call it while no thread samples.

        Args:
            visits: u32[N] to add to.

        Raises:
            InputError: visits does not fit, or the map counts none.
        """
        if not self.counts_visits:
            problem = "a hashed map counts no visits"
            raise InputError(problem, "count the blocks: graphmill.kernels.hotness.visits.VisitCounter")
        visits = as_out(visits, (self.topology.num_nodes,), np.uint32)
        self._native.take_visits(visits)
        return visits

    def check_seeds(self, seeds: Any) -> Array:
        """Returns the seeds in the topology's id type; ids beyond it are kept out by the range, not by a cast."""
        seeds = seeds_of(seeds, self.topology.num_nodes)
        return seeds.astype(self.topology.indices.dtype, copy=False)

    def _block(self, src_ids: Array, layer: tuple[Any, ...], wants_ids: bool) -> Block:
        num_dst, num_src, start, end, indices, position, t_start, t_edge, t_dst, share = layer
        graph = self.topology
        return Block(
            num_dst=num_dst,
            num_src=num_src,
            start=start,
            end=end,
            indices=indices,
            src_ids=src_ids[:num_src],
            weight=None if graph.weights is None or position is None else graph.weights[position],
            share=share,
            edge_type=None if graph.edge_types is None or position is None else graph.edge_types[position],
            edge_id=graph.edge_ids[position] if wants_ids and graph.edge_ids is not None else None,
            t_start=t_start,
            t_edge=t_edge,
            t_dst=t_dst,
        )


class TwoStepSampler(Sampler):
    """Gives the blocks of `Sampler`, to the byte, by way of an edge list; an ablation (FastSample, section 3.2). Arguments are the same.

    Step 1 writes the sampled edges of a layer as a list of (source, destination) in global ids. Step 2 reads the list again, renames both
    sides and sorts the edges by destination into compressed columns. Row lengths that step 1 knew are counted anew, and every edge is
    written and read two times more. Choosing, map and draws are those of the fused sampler, so the difference in time is that of fusing
    alone: the middle bar of FastSample's Fig. 6.

    Cost beside the fused sampler: 2 ids and 8 bytes per edge, written and read; one more random read of the map per edge. Do not train
    with it.
    """

    FUSED, BY_RELATION = False, False
