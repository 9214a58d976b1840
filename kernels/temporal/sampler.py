"""Neighbours as of the time of a seed: a seed of the time t sees, at every depth, only edges that are earlier than t.

    admissible   edges of a row with  t - window <= time < t;  without a window, all with  time < t
    choose       "uniform": k of them, each set equally likely; "recent": the k latest, of equally late ones those last in the row;
                 with weights k of them one after the other, each in proportion to the weights of those that are left

What the frontier is made of. All nodes below a seed are seen as of that seed's time, so a source of a block is a **pair (node, time)**, and
a node that two seeds of different times reach is a source twice: its neighbours differ, hence its embedding does. Equal pairs are one
source, whichever seeds they stand below: what they see is the same, and so are their draws. A batch whose seeds have one time is a batch
of `graphmill.kernels.sampling.sample.Sampler`, to the byte, on the graph without the other edges; a batch whose seeds all have different
times is a forest of one tree per seed, in each of which a node is one source.

So `src_ids` of a block may name a node several times, with the times in `TimedBlocks.times`, and its input row is gathered as often. All
else of a block holds: destinations are the first sources, new sources follow in the order of their first edge, and the sources of every
block are a prefix of one list.

Draws are keyed by (seed, stream, epoch, step, layer, node), with the relation after it for fan-outs per relation, and not by the time. So
a bound or a window changes what may be drawn and nothing else: a row all of whose edges are admissible gives what it gives without times.
A node that stands in a batch at several times draws from each of its ranges with the same random words; each range's draw is uniform.

Weights. Alias tables (kernels/sampling/alias.py) are those of whole rows. A position that a draw of a table gives and that is not
admissible is rejected as a repeated one is, which leaves each admissible one its weight among them; after 4 k + 16 draws masses of the
admissible ones are added up (kernels/sampling/weighted.py). So probabilities are those of the masses of the admissible edges, exactly, and
a row all of whose edges are admissible draws what it draws without times. A mass is a whole number, 2^32 for a weight that is the mean of
its row: a weight of a millionth of it is met within 3e-4, and weights below 2^-32 of it are all alike. Shares of a row that is taken
whole are the masses among the admissible edges. A node whose admissible edges all have the weight 0 is refused, drawn from uniformly, or
has none, as `empty` says.

Rows are stored in the order of (edge type, time, source), so the admissible edges of one relation are a range. The last time of a row
tells whether all of its edges are earlier; other bounds are searched for, those of 32 rows at a time (native/temporal/time_search.h).
Chosen edges keep the order of the row: those of one relation ascend in time.

Times are float64 of any unit, the same for edges, seeds and window. Rounding to float64 keeps the order of two times or makes them
equal, and equal is not earlier, so rounding lets no later edge in.

Cost: that of the sampled edges, as of `Sampler`, and per destination and relation one read of times, or about four if some edges are
later, at most 2 log2(degree). With weights, the row's length where the admissible ones have little of the row's weight. One thread draws
a batch. Memory: 16 to 64 bytes per source of the largest batch for the map of pairs, and 8 to 24 for their list. A batch has more
sources than without times, up to as many as its seeds' trees have together.

PyG's `NeighborLoader` has the same trees, one per seed, also for seeds of equal time, and includes edges of the seed's own time
(`torch.ops.pyg.neighbor_sample`, `temporal_strategy` "uniform" and "last"). A bound that moves down with each edge's own time is
another rule (TGAT, Xu et al., ICLR 2020), which is not here.

Not checked: that rows are in the order of time.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb, key
from graphmill.kernels.sampling.alias import AliasTables, EmptyRows
from graphmill.kernels.sampling.relations import Fanout, native_fanouts, runs_reference
from graphmill.kernels.sampling.sample import Sampler, Transposes, as_fanouts, choose_reference
from graphmill.kernels.sampling.weighted import choose_weighted_reference, native_tables, shares_reference
from graphmill.kernels.types import Array, BatchKey, Block, Topology

Choice = Literal["uniform", "recent"]


class TimedBlocks(NamedTuple):
    """The blocks of a batch, and the times as of which its sources are seen."""

    # From the inputs to the seeds.
    blocks: tuple[Block, ...]
    # f64[n]: the time of each source of blocks[0], of which the sources of the others are a prefix.
    times: Array


def admissible_reference(topology: Topology, v: int, time: float, window: float) -> list[int]:
    """Returns the places of the edges of node v that a seed of a time sees, ascending (the rule in plain Python)."""
    assert topology.edge_times is not None
    places = range(int(topology.indptr[v]), int(topology.indptr[v + 1]))
    return [place for place in places if time - window <= topology.edge_times[place] < time]


def take_reference(
    topology: Topology, places: list[int], row_key: int, fanout: int, choose: Choice, replace: bool
) -> list[int]:
    """Returns those of admissible places that are taken, ascending (the rule in plain Python)."""
    if choose == "recent":
        assert topology.edge_times is not None
        latest = sorted(places, key=lambda place: (topology.edge_times[place], place))  # pyright: ignore[reportOptionalSubscript]
        return sorted(latest if fanout < 0 else latest[max(0, len(latest) - fanout) :])
    return [places[position] for position in choose_reference(row_key, len(places), fanout, replace)]


def take_typed_reference(
    topology: Topology, places: list[int], row_key: int, fanout: Fanout, choose: Choice, replace: bool
) -> list[int]:
    """Returns those of admissible places that are taken, of each relation by its own fan-out if it has one (the rule in plain Python)."""
    if isinstance(fanout, int):
        return take_reference(topology, places, row_key, fanout, choose, replace)
    assert topology.edge_types is not None
    taken = []
    for relation, begin, end in runs_reference(topology.edge_types[places]):
        run_key = absorb(row_key, relation)
        taken += take_reference(topology, places[begin:end], run_key, fanout[relation], choose, replace)
    return taken


def take_weighted_reference(
    topology: Topology,
    tables: AliasTables,
    empty: EmptyRows,
    v: int,
    places: list[int],
    row_key: int,
    fanout: int,
    replace: bool,
) -> tuple[list[int], list[float]]:
    """Returns those of the admissible places of node v that are taken by weight, ascending, and their shares (the rule in plain Python)."""
    first, last = int(topology.indptr[v]), int(topology.indptr[v + 1])
    table, admitted = tables.table[first:last], [place - first for place in places]
    if places and not table[admitted, 0].any():
        assert empty != "error", "refused by the sampler"
        taken = (
            [places[i] for i in choose_reference(row_key, len(places), fanout, replace)] if empty == "uniform" else []
        )
        return taken, [1 / len(taken) for _ in taken]
    chosen = choose_weighted_reference(row_key, table, fanout, replace, admitted)
    return [first + each for each in chosen], shares_reference(table, chosen, fanout, replace, admitted)


def temporal_reference(
    topology: Topology,
    fanouts: Sequence[Fanout],
    batch: BatchKey,
    seeds: Array,
    times: Array,
    *,
    seed: int,
    window: float = math.inf,
    choose: Choice = "uniform",
    replace: bool = False,
    tables: AliasTables | None = None,
    empty: EmptyRows = "error",
) -> TimedBlocks:
    """Returns the blocks of a batch as `TemporalSampler.timed` does, without transposes (the rule in plain Python)."""

    def take(v: int, places: list[int], row_key: int, fanout: Fanout) -> tuple[list[int], list[float]]:
        if tables is not None:
            assert isinstance(fanout, int)
            return take_weighted_reference(topology, tables, empty, v, places, row_key, fanout, replace)
        taken = take_typed_reference(topology, places, row_key, fanout, choose, replace)
        return taken, [0.0] * len(taken)

    pairs = [(int(v), float(time)) for v, time in zip(seeds, times, strict=True)]
    local = {pair: i for i, pair in enumerate(pairs)}
    blocks: list[Block] = []
    for layer, fanout in zip(reversed(range(len(fanouts))), fanouts, strict=True):
        layer_key = key(seed, batch.stream, batch.epoch, batch.step, layer)
        num_dst, indices, ends, shares = len(pairs), [], [], []
        for v, time in pairs[:num_dst]:
            places, row_key = admissible_reference(topology, v, time, window), absorb(layer_key, v)
            for place, share in zip(*take(v, places, row_key, fanout), strict=True):
                shares.append(share)
                pair = int(topology.indices[place]), time
                if pair not in local:
                    local[pair] = len(pairs)
                    pairs.append(pair)
                indices.append(local[pair])
            ends.append(len(indices))
        block = Block(
            num_dst=num_dst,
            num_src=len(pairs),
            start=np.array([0, *ends][:-1], np.int32),
            end=np.array(ends, np.int32),
            indices=np.array(indices, np.int32),
            src_ids=np.array([v for v, _ in pairs], topology.indices.dtype),
            share=None if tables is None else np.array(shares, np.float32),
        )
        blocks.insert(0, block)
    return TimedBlocks(tuple(blocks), np.array([time for _, time in pairs], np.float64))


class TemporalSampler(Sampler):
    """Samples the blocks of mini-batches as of the times of their seeds; see `graphmill.kernels.sampling.sample.Sampler` for the rest.

    Args:
        topology: the in-neighbours with `edge_times`, rows in the order of (edge type, time).
        times: f64[N], the time of each node when it is a seed, NaN for a node that never is; None if each batch names the times.
        window: the most that an edge is older than the seed, above 0; infinite for no bound.
        choose: "uniform" or "recent".
        replace: whether a draw is with replacement.
        tables: the alias tables of the topology, whose weights neighbours are drawn by; None for draws without weights.
        empty: treatment of a node whose edges as of its time all have the weight 0: refused, drawn from uniformly, or without neighbours.

    Raises:
        InputError: edges have no times, an array or a number does not fit.
    """

    def __init__(
        self,
        topology: Topology,
        fanouts: Sequence[int | Sequence[int]],
        *,
        seed: int,
        times: Array | None = None,
        window: float = math.inf,
        choose: Choice = "uniform",
        replace: bool = False,
        tables: AliasTables | None = None,
        empty: EmptyRows = "error",
    ):
        if choose not in get_args(Choice):
            raise InputError(f"choose = {choose!r}", f"give one of {', '.join(get_args(Choice))}")
        if choose == "recent" and replace:
            raise InputError("replace = True takes the latest edges several times", "set choose = 'uniform'")
        if choose == "recent" and tables is not None:
            raise InputError("the latest edges are taken whatever their weights are", "set choose = 'uniform'")
        if not window > 0:
            raise InputError(f"window = {window} has no time in it", "give a length above 0")
        if times is not None and times.shape != (topology.num_nodes,):
            problem = f"times is {times.dtype}{list(times.shape)}, and the graph has {topology.num_nodes} nodes"
            raise InputError(problem, "give a time for each node")
        self.times, self.window, self.choose, self.tables, self.empty = times, float(window), choose, tables, empty
        fanouts = fanouts if tables is None else as_fanouts(fanouts)
        super().__init__(topology, fanouts, seed=seed, replace=replace)

    def _open(self, replace: bool, threads: int, **more: Any) -> Any:
        topology, edge_times = self.topology, self.topology.edge_times
        if edge_times is None:
            raise InputError("the edges of the graph have no times", "build the graph with a time for each edge")
        if edge_times.dtype != np.float64 or edge_times.shape != (topology.num_edges,):
            problem = (
                f"edge_times is {edge_times.dtype}{list(edge_times.shape)}, the graph has {topology.num_edges} edges"
            )
            raise InputError(problem, "give float64[E]")
        native = _native.TemporalSampler32 if topology.indices.dtype == np.int32 else _native.TemporalSampler64
        most, by_relation = native_fanouts(self.fanouts, topology)
        if topology.edge_types is not None:
            by_relation["edge_types"] = np.require(topology.edge_types, requirements=["C", "A"])
        arrays = (topology.indptr, topology.indices, edge_times)
        indptr, indices, times = (np.require(array, requirements=["C", "A"]) for array in arrays)
        weights = {} if self.tables is None else native_tables(self.tables, topology)
        weights |= {"empty": get_args(EmptyRows).index(self.empty)}
        recent = self.choose == "recent"
        return native(indptr, indices, times, most, bool(replace), recent, self.window, **by_relation, **weights)

    @property
    def counts_visits(self) -> bool:
        """False: a node may be several sources of a batch, each of which is a visit."""
        return False

    def sample(
        self,
        batch: BatchKey,
        seeds: Any,
        *,
        transpose: Transposes = "hidden",
        edge_ids: bool = False,
        times: Any = None,
    ) -> tuple[Block, ...]:
        """Samples the blocks under the seeds, each as of its own time: of f64[b] `times`, or that of its node; see `timed`."""
        seeds = self.check_seeds(seeds)
        as_of = self.times_of(seeds, times)
        return self.timed(batch, seeds, as_of, transpose=transpose, edge_ids=edge_ids).blocks

    def times_of(self, seeds: Array, times: Any = None) -> Any:
        """Returns f64[b], the given times of seeds, or those of their nodes; raises InputError if there are none."""
        if times is not None:
            return times
        if self.times is None:
            raise InputError("the seeds have no times", "give `times`, or those of the batch")
        return self.times[seeds]

    def timed(
        self, batch: BatchKey, seeds: Any, times: Any, *, transpose: Transposes = "hidden", edge_ids: bool = False
    ) -> TimedBlocks:
        """Samples the blocks under seeds of given times.

        Args:
            seeds: ids[b] global; a node may be repeated with another time.
            times: f64[b].
            transpose, edge_ids: as for `Sampler.sample`.

        Raises:
            InputError: a seed is out of range, or has no time, or a pair is repeated.
        """
        if transpose not in get_args(Transposes):
            raise InputError(f"transpose = {transpose!r}", f"give one of {', '.join(get_args(Transposes))}")
        seeds, times = self.check_seeds(seeds), np.require(times, np.float64, ["C", "A"])
        if times.shape != seeds.shape:
            raise InputError(f"{len(seeds)} seeds and times {list(times.shape)}", "give a time for each seed")
        if len(wrong := np.flatnonzero(~np.isfinite(times))):
            raise InputError(f"seed {seeds[wrong[0]]} has the time {times[wrong[0]]}", "give each seed its time")
        graph = self.topology
        wants_ids = edge_ids and graph.edge_ids is not None
        positions = wants_ids or graph.weights is not None or graph.edge_types is not None
        batch_key = key(self.seed, batch.stream, batch.epoch, batch.step)
        code = get_args(Transposes).index(transpose)
        src_ids, src_times, layers = self._native.sample(batch_key, np.ascontiguousarray(seeds), times, code, positions)  # pyright: ignore[reportCallIssue]
        return TimedBlocks(tuple(self._block(src_ids, layer, wants_ids) for layer in layers), src_times)
