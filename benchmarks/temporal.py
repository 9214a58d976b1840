"""Sampling as of the times of seeds: beside sampling without times, with a window beside none, and beside GraphBolt.

    python -m benchmarks temporal

    one time    all seeds have a time after every edge: blocks equal those of the sampler without times, to the byte. The ratio is the
                price of times: that sampler's seconds over those with times, and over those with a window that excludes nothing
    own times   each seed has a time of its own, with and without a window: nanoseconds of an edge, since a window draws fewer
    graphbolt   `temporal_sample_neighbor` (DGL 2.1) on the same seeds and times. Each drawn edge is a source of its own there, so deeper
                layers have more edges: the ratio is in seconds of an edge

First ours shows that its blocks are those of the sampler without times, and GraphBolt a batch: each row has min(earlier edges, fan-out)
neighbours, all of them earlier. Each batch is drawn by one thread of ours; GraphBolt has its threads. GraphBolt needs the interpreter that
GRAPHBOLT_PYTHON names. PyG's temporal sampler needs pyg-lib, which PyPI does not have.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.disk_inputs import home
from benchmarks.record import in_turn, record
from benchmarks.rival_process import RivalProcess, contestants, medians
from benchmarks.rivals_sampling import drawn_seeds
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.temporal.sampler import TemporalSampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream, Topology
from tests.graphs import build_graph

QUICK = {"nodes": 50_000, "edges": 400_000}
FULL = {"nodes": 2_000_000, "edges": 16_500_000}
FANOUTS, BATCH_SIZE, ROUNDS = (15, 10, 5), 1024, 4
LAST, WINDOW = 1_000_000, 250_000
"""Latest time, and the window: a quarter of all times."""


def main(quick: bool) -> None:
    """Measures, and records a row."""
    size = QUICK if quick else FULL
    with home() as store, tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        graph = build_graph(store, config_class("rmat")(seed=1, features=1, **size), threads=2)
        topology = with_times(graph.open().topology)
        row = measure(topology, Path(folder), opened, quick)
    row = {"scale": "quick" if quick else "full", "graph": size, "fanouts": FANOUTS, "batch_size": BATCH_SIZE} | row
    record("temporal", row, ("numpy",))


def with_times(topology: Topology) -> Topology:
    """Returns a topology whose edges have drawn times, rows in their order."""
    times = np.random.default_rng(2).integers(0, LAST, topology.num_edges).astype(np.float64)
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    order = np.lexsort((times, target))
    return replace(topology, indices=topology.indices[order], edge_times=times[order])


def measure(topology: Topology, folder: Path, opened: ExitStack, quick: bool) -> dict[str, Any]:
    """Returns the seconds, edges and ratios.

    Args:
        folder: gets what the rival reads.

    Raises:
        AssertionError: blocks as of one time are not those without times, or the rival draws what is not earlier.
    """
    seeds = drawn_seeds(topology, BATCH_SIZE)
    own = np.random.default_rng(3).integers(LAST // 2, LAST, seeds.shape).astype(np.float64)
    late = np.full(seeds.shape, float(LAST))
    plain = Sampler(topology, FANOUTS, seed=1)
    timed, windowed = (TemporalSampler(topology, FANOUTS, seed=1, window=each) for each in (np.inf, WINDOW))
    wide = TemporalSampler(topology, FANOUTS, seed=1, window=2.0 * LAST)
    edges: dict[str, int] = {}

    def draw(name: str, sample: Callable[[BatchKey, int], tuple[Block, ...]]) -> tuple[float, float]:
        edges[name], began, busy = 0, time.perf_counter(), time.process_time()
        for step in range(len(seeds)):
            edges[name] += sum(len(each.indices) for each in sample(BatchKey(Stream.TRAIN, 0, step), step))
        return time.perf_counter() - began, time.process_time() - busy

    def as_of(sampler: TemporalSampler, times: Array) -> Callable[[BatchKey, int], tuple[Block, ...]]:
        return lambda key, step: sampler.sample(key, seeds[step], transpose="none", times=times[step])

    ways: dict[str, Callable[[BatchKey, int], tuple[Block, ...]]] = {
        "without times": lambda key, step: plain.sample(key, seeds[step], transpose="none"),
        "one time": as_of(timed, late),
        "one time, window": as_of(wide, late),
        "own times": as_of(timed, own),
        "own times, window": as_of(windowed, own),
    }
    require_equal(
        *(ways[name](BatchKey(Stream.TRAIN, 0, 0), 0) for name in ("without times", "one time", "one time, window"))
    )
    runs: dict[str, Any] = {name: lambda name=name, way=way: draw(name, way) for name, way in ways.items()}
    runs |= rivals(topology, seeds, own, folder, opened, edges, quick)
    took = in_turn(runs, 2 if quick else ROUNDS)
    clock, busy = ({name: [each[kind] for each in rounds] for name, rounds in took.items()} for kind in (0, 1))
    row: dict[str, Any] = {"seconds": medians(clock), "processor": medians(busy), "rounds": clock, "edges": edges}
    row["nanoseconds_of_an_edge"] = {name: round(1e9 * each / edges[name], 2) for name, each in row["seconds"].items()}
    price, of_edge = row["seconds"], row["nanoseconds_of_an_edge"]
    row["ratios"] = {
        "one time / without times": round(price["one time"] / price["without times"], 3),
        "one time, window / without times": round(price["one time, window"] / price["without times"], 3),
        "own times, window / own times, of an edge": round(of_edge["own times, window"] / of_edge["own times"], 3),
        **{
            f"{name} / own times, of an edge": round(of_edge[name] / of_edge["own times"], 3)
            for name in runs
            if name not in ways
        },
    }
    print(f"  seconds {row['seconds']}; edges {edges}; {row['ratios']}", flush=True)
    return row


def require_equal(*batches: tuple[Block, ...]) -> None:
    """Raises AssertionError unless batches have the same bytes."""
    first, *others = batches
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            for name in ("start", "end", "indices", "src_ids"):
                assert getattr(mine, name).tobytes() == getattr(theirs, name).tobytes(), f"other {name}"


def rivals(
    topology: Topology, seeds: Array, times: Array, folder: Path, opened: ExitStack, edges: dict[str, int], quick: bool
) -> dict[str, Any]:
    """Returns name -> the run of each process of GraphBolt, whose first batch was looked at."""
    assert topology.edge_times is not None
    files = {"indptr": topology.indptr, "indices": topology.indices, "edge_times": topology.edge_times.astype(np.int64)}
    for name, array in (files | {"seeds": seeds, "times": times.astype(np.int64)}).items():
        np.save(folder / f"{name}.npy", array)
    given = {name: str(folder / f"{name}.npy") for name in ("seeds", "times")}
    spec = {name: str(folder / f"{name}.npy") for name in files}
    spec |= {"system": "graphbolt", "fanouts": list(FANOUTS), "threads": 2}
    runs: dict[str, Any] = {}
    for name, python, kept in contestants("graphbolt", quick):
        rival = opened.enter_context(RivalProcess(python, spec, kept, "benchmarks.temporal_child"))
        rival.ask("sampled_as_of", **given, out=str(folder / "sampled.npz"))
        check(topology, seeds[0], times[0], dict(np.load(folder / "sampled.npz")))

        def run(name: str = name, rival: RivalProcess = rival) -> tuple[float, float]:
            answer = rival.ask("sample_as_of", **given)
            edges[name] = answer["edges"]
            return answer["seconds"], answer["processor"]

        runs[name] = run
    return runs


def check(topology: Topology, seeds: Array, times: Array, found: dict[str, Array]) -> None:
    """Looks at a rival's batch, whose sources are the destinations and then one for each edge.

    Raises:
        AssertionError: a row has another length than its earlier edges allow, or an edge is not earlier, or not one of the graph.
    """
    assert topology.edge_times is not None
    nodes = seeds.astype(np.int64)
    for hop, fanout in enumerate(FANOUTS):
        dst, start, src = (found[f"{name}{hop}"].astype(np.int64) for name in ("dst", "start", "src"))
        assert np.array_equal(dst, nodes), f"other destinations at hop {hop}"
        for i, (v, as_of) in enumerate(zip(dst.tolist(), times.tolist(), strict=True)):
            row = slice(int(topology.indptr[v]), int(topology.indptr[v + 1]))
            earlier = topology.indices[row][: np.searchsorted(topology.edge_times[row], as_of)]
            drawn = src[start[i] : start[i + 1]]
            assert len(drawn) == min(len(earlier), fanout), f"a row of another length at hop {hop}"
            assert np.isin(drawn, earlier).all(), f"an edge that is not earlier at hop {hop}"
        nodes, times = np.concatenate([nodes, src]), np.concatenate([times, np.repeat(times, np.diff(start))])
