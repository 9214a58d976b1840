"""Weighted sampling and random walks against DGL 1.1.3 (FGNN, section 7.1), and the memory's own speed.

R-MAT graphs with a Pareto-distributed weight per edge, seeds drawn among the nodes that have neighbours, the same seeds and threads for
both. First it is checked that both take the same number of neighbours of every node, all of them edges of the graph; of walks, ours and
DGL's, that every source is within as many steps as a walk has. Then the competitors take turns in an order that is drawn anew for each
round.

- `weighted` draws without replacement, beside DGL's `NeighborSampler(prob="weight")`.
- `walks` takes 5 neighbours from 4 paths of length 3 at restart 0.5, beside DGL's `RandomWalkNeighborSampler`, which is what
  `PinSAGESampler` is made of, with the same numbers, and `to_block` of each layer. DGL ends a path where ours starts again: theirs take
  fewer steps. DGL walks along edges; the graph is symmetric, so both see the same neighbours.
- `roofline` makes the memory accesses of a sampler and nothing else, at the addresses of real batches: two entries of indptr a destination,
  one of indices and one of the map an edge. Weighted sampling reads an entry of the alias table per draw besides; a walk reads twice per
  step what the roofline reads once per edge, and a step waits for the one before. So this is a bound that neither can reach.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import numpy as np

from benchmarks.record import interleave, record
from benchmarks.sampling import make_graph
from graphmill.kernels import _native
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream, Topology
from graphmill.trainers.devices.malloc import keep_freed_memory

QUICK = {"nodes": 200_000, "edges": 1_650_000}
FULL = {"nodes": 2_000_000, "edges": 16_500_000}
WEIGHTED, WALKED = ((15, 10, 5), (10, 10)), ((5, 5, 5),)
THREADS = 2
LOOKED_AT = 20
"""Destinations whose edges are checked, about."""


def main(quick: bool) -> None:
    """Compares on one graph and records a row."""
    keep_freed_memory()
    graph, repeats, batch_size = (QUICK, 5, 1024) if quick else (FULL, 9, 2048)
    field = Field(*make_graph(**graph))
    print(
        f"R-MAT {graph['nodes']:,} nodes, {len(field.topology.indices):,} edges, batches of {batch_size:,}, {THREADS} threads"
    )
    lines = [compare("weighted", field, fanouts, batch_size, repeats) for fanouts in WEIGHTED]
    lines += [compare("walks", field, fanouts, batch_size, repeats) for fanouts in WALKED]
    row = {
        "scale": "quick" if quick else "full",
        "graph": graph,
        "threads": THREADS,
        "repeats": repeats,
        "lines": lines,
    }
    record("drawn", row | {"batch_size": batch_size}, ("torch", "numpy", "dgl"))


class Field:
    """One graph, ours and DGL's, and its weights."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray):
        os.environ.setdefault("DGLBACKEND", "pytorch")
        import dgl
        import torch

        empty = np.empty(0, np.int32)
        self.topology = Topology(indptr=indptr, indices=indices, in_degree=empty, out_degree=empty)
        self.weights = (np.random.default_rng(0).pareto(1.5, len(indices)) + 0.01).astype(np.float32)
        self.tables = build_alias(self.topology, self.weights, threads=THREADS)
        arrays = (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), [])
        self.dgl_graph = dgl.graph(("csc", arrays), num_nodes=len(indptr) - 1)
        self.dgl_graph.edata["weight"] = torch.from_numpy(self.weights)
        # DGL walks along out-edges, which on this symmetric graph lead where the in-edges come from.
        self.dgl_walked: Any = dgl.graph(("csr", arrays), num_nodes=len(indptr) - 1)
        self.candidates = np.flatnonzero(np.diff(indptr))
        self.map = np.zeros(len(indptr), np.uint64)


class Theirs:
    """DGL's sampler of one kind."""

    def __init__(self, kind: str, field: Field, fanouts: tuple[int, ...]):
        import dgl

        self.dgl, self.kind, self.field, self.fanouts = dgl, kind, field, fanouts
        self.neighbours = dgl.dataloading.NeighborSampler(list(reversed(fanouts)), prob="weight")
        walks = Walks()
        self.walks = [
            dgl.sampling.RandomWalkNeighborSampler(
                field.dgl_walked,
                walks.length,
                walks.restart,
                walks.paths,
                fanout,
                metapath=field.dgl_walked.canonical_etypes[:1],
            )
            for fanout in dict.fromkeys(fanouts)
        ]

    def sample(self, seeds: Any) -> list[Any]:
        """Returns DGL's blocks under seeds, from the input side."""
        if self.kind == "weighted":
            return self.neighbours.sample_blocks(self.field.dgl_graph, seeds)[2]
        blocks: list[Any] = []
        for _ in self.fanouts:
            block = self.dgl.to_block(self.walks[0](seeds), seeds)
            blocks.insert(0, block)
            seeds = block.srcdata[self.dgl.NID]
        return blocks


def compare(kind: str, field: Field, fanouts: tuple[int, ...], batch_size: int, repeats: int) -> dict[str, Any]:
    """Times both on the same seeds and returns a line of the table."""
    import dgl
    import torch

    torch.set_num_threads(THREADS)
    dgl.utils.set_num_threads(THREADS)
    ours: Sampler = (
        WeightedSampler(field.topology, field.tables, fanouts, seed=1, threads=THREADS)
        if kind == "weighted"
        else WalkSampler(field.topology, Walks(), fanouts, seed=1, threads=THREADS)
    )
    theirs, generator = Theirs(kind, field, fanouts), np.random.default_rng(3)
    rounds = [generator.choice(field.candidates, batch_size, replace=False) for _ in range(repeats + 2)]
    check(kind, field, fanouts, theirs, ours, rounds.pop())
    wide, edges = [torch.from_numpy(seeds) for seeds in rounds], {"dgl": [], "ours": []}
    traces = [trace(ours, seeds, step) for step, seeds in enumerate(rounds)]
    turn: dict[str, int] = dict.fromkeys(("dgl", "ours", "roofline"), 0)

    def run(name: str) -> None:
        place = turn[name]
        turn[name] += 1
        if name == "dgl":
            edges[name].append(sum(block.num_edges() for block in theirs.sample(wide[place])))
        elif name == "ours":
            made = ours.sample(BatchKey(Stream.TRAIN, 0, place), rounds[place], transpose="none")
            edges[name].append(sum(len(block.indices) for block in made))
        else:
            for dst_ids, positions in traces[place]:
                _native.random_gather(
                    field.topology.indptr, field.topology.indices, dst_ids, positions, field.map, THREADS
                )

    seconds = interleave({name: lambda name=name: run(name) for name in turn}, repeats)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    line = {
        "kind": kind,
        "fanouts": fanouts,
        "dgl_over_ours": round(median["dgl"] / median["ours"], 2),
        "roofline_over_ours": round(median["roofline"] / median["ours"], 3),
        "median_ms": {name: round(1e3 * value, 3) for name, value in median.items()},
        "mean_edges": {name: round(statistics.mean(counts)) for name, counts in edges.items()},
    }
    print(
        f"{kind:9}{fanouts!s:14} {line['dgl_over_ours']:6.2f} x DGL   ms {line['median_ms']}   edges {line['mean_edges']}",
        flush=True,
    )
    return line


def trace(sampler: Sampler, seeds: np.ndarray, step: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the destinations of each layer, and as many places of the topology as they have sources."""
    size, generator = len(sampler.topology.indices), np.random.default_rng(step)
    blocks = sampler.sample(BatchKey(Stream.PROBE, 0, step), seeds, transpose="none")
    return [
        (np.ascontiguousarray(block.dst_ids), generator.integers(0, size, len(block.indices)))
        for block in reversed(blocks)
    ]


def check(kind: str, field: Field, fanouts: tuple[int, ...], theirs: Theirs, ours: Sampler, seeds: np.ndarray) -> None:
    """Both give every destination its number of sources, which are neighbours, or within reach of a walk."""
    import torch

    degree = np.diff(field.topology.indptr)
    mine = ours.sample(BatchKey(Stream.TRAIN, 9, 9), seeds, transpose="none")
    their_blocks = theirs.sample(torch.from_numpy(seeds))
    for block, other, fanout in zip(mine, their_blocks, reversed(fanouts), strict=True):
        taken = block.end - block.start
        if kind == "walks":
            assert taken.max() <= fanout and other.in_degrees().max() <= fanout
            continue
        wanted = np.minimum(degree[block.dst_ids], fanout)
        assert (taken == wanted).all(), "not min(degree, fanout) neighbours"
        their_ids = other.dstdata["_ID"].numpy()
        assert (other.in_degrees().numpy() == np.minimum(degree[their_ids], fanout)).all(), "DGL drew another number"
    last, their_last = mine[-1], their_blocks[-1]
    steps = 1 if kind == "weighted" else Walks().length
    check_edges(field.topology, last.src_ids[last.indices], np.repeat(last.dst_ids, last.end - last.start), steps)
    src, dst = (each.numpy() for each in their_last.edges())
    check_edges(field.topology, their_last.srcdata["_ID"].numpy()[src], their_last.dstdata["_ID"].numpy()[dst], steps)
    if kind == "walks":
        check_shares(last)


def check_edges(topology: Topology, src_ids: Array, dst_ids: Array, steps: int) -> None:
    """Looks at some destinations: so many steps along in-edges reach each of their sources.

    Args:
        topology: in-neighbours.
        src_ids, dst_ids: the ends of the edges, global ids.
        steps: 1 where sources are neighbours.

    Raises:
        AssertionError: a source is out of reach.
    """
    found = np.unique(dst_ids)
    for v in found[:: max(1, len(found) // LOOKED_AT)]:
        sources = src_ids[dst_ids == v]
        assert reached(topology, v, steps)[sources].all(), f"a source of {v} is not within {steps} steps"


def reached(topology: Topology, node: int, steps: int) -> Array:
    """Returns bool[N]: the nodes that 1 to `steps` steps along in-edges lead to; the node itself where they lead back."""
    found, frontier = np.zeros(topology.num_nodes, bool), np.array([node])
    for _ in range(steps):
        first, degree = topology.indptr[frontier], topology.indptr[frontier + 1] - topology.indptr[frontier]
        # Places of all rows of the frontier, side by side.
        shift = np.repeat(first - np.concatenate([[0], np.cumsum(degree)[:-1]]), degree)
        there = np.zeros_like(found)
        there[topology.indices[shift + np.arange(len(shift))]] = True
        frontier = np.flatnonzero(there & ~found)
        found |= there
    return found


def check_shares(block: Block) -> None:
    """Looks at some destinations: their sources' shares add up to 1, and none is its own source."""
    assert block.share is not None
    for i in range(0, block.num_dst, max(1, block.num_dst // LOOKED_AT)):
        row = slice(block.start[i], block.end[i])
        assert abs(block.share[row].sum() - 1) < 1e-5, "shares do not add up to 1"
        assert block.dst_ids[i] not in block.src_ids[block.indices[row]], "a node is its own source"
