"""Sampling beside DGL 1.1.3, its fused sampler and GraphBolt's, each batch of the same seeds (FastSample, Figure 5).

Blocks are compressed, inputs renamed, and no rows are fetched. Ours builds no transposes here: neither do the rivals, which put them off
to the backward pass. Each sampler first shows a batch: every destination has min(degree, fan-out) neighbours, all of them edges of the
graph.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.disk_inputs import home
from benchmarks.record import in_turn
from benchmarks.rival_process import RivalProcess, contestants, medians, ratios
from benchmarks.sampling import are_edges
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream, Topology
from tests.graphs import GraphArtifacts, build_graph

QUICK = {"nodes": 50_000, "edges": 400_000}
FULL = {"nodes": 2_000_000, "edges": 16_500_000}
SETTINGS = (((15, 10, 5), 1024), ((25, 10), 4096), ((20, 15, 10), 1024))
WAYS = {"dgl": ("unfused", "fused"), "graphbolt": ("graphbolt",)}
THREADS, BATCHES = 2, 5
SAME_EDGES = 0.01
"""Share by which the edges of the same seeds may differ between two samplers."""


def measure(quick: bool) -> dict[str, Any]:
    """Returns the milliseconds of a batch and the ratios for each setting."""
    size = QUICK if quick else FULL
    lines = []
    with home() as store, tempfile.TemporaryDirectory() as folder:
        config = config_class("rmat")(seed=1, features=1, train_ratio=0.1, valid_ratio=0.1, **size)
        graph = build_graph(store, config, threads=THREADS)
        for fanouts, batch_size in SETTINGS[: 1 if quick else None]:
            lines.append(_compare(graph, fanouts, batch_size, Path(folder), quick))
            print(
                f"  {list(fanouts)}, batch {batch_size}: ms {lines[-1]['milliseconds']}; {lines[-1]['ratios']}",
                flush=True,
            )
    return {"graph": size, "threads": THREADS, "lines": lines}


def _compare(
    graph: GraphArtifacts, fanouts: tuple[int, ...], batch_size: int, folder: Path, quick: bool
) -> dict[str, Any]:
    topology = graph.open().topology
    seeds = drawn_seeds(topology, batch_size)
    np.save(folder / "seeds.npy", seeds)
    edges: dict[str, int] = {}
    sampler = Sampler(topology, fanouts, seed=1, threads=THREADS)

    def ours() -> float:
        edges["ours"], began = 0, time.perf_counter()
        for step, batch in enumerate(seeds):
            blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, step), batch, transpose="none")
            edges["ours"] += sum(len(block.indices) for block in blocks)
        return time.perf_counter() - began

    def theirs(name: str, rival: RivalProcess, way: str) -> float:
        answer = rival.ask("sample", seeds=str(folder / "seeds.npy"), way=way)
        edges[name] = answer["edges"]
        return answer["seconds"]

    runs: dict[str, Any] = {"ours": ours}
    with ExitStack() as open_rivals:
        for name, rival, way in _rivals(graph, fanouts, open_rivals, quick):
            if not name.endswith("default"):
                _check(topology, fanouts, rival, way, folder)
            runs[name] = lambda name=name, rival=rival, way=way: theirs(name, rival, way)
        seconds = in_turn(runs, 3 if quick else 4)
    for name, each in edges.items():
        assert abs(each - edges["ours"]) <= SAME_EDGES * edges["ours"], (
            f"{name} samples {each} edges, ours {edges['ours']}"
        )
    milliseconds = {name: round(1000 * each / BATCHES, 3) for name, each in medians(seconds).items()}
    row = {"fanouts": fanouts, "batch_size": batch_size, "milliseconds": milliseconds, "ratios": ratios(seconds)}
    return row | {"edges": edges, "seconds": seconds}


def drawn_seeds(topology: Topology, batch_size: int) -> np.ndarray:
    """Returns i32[batches, batch_size], nodes with neighbours, distinct in each batch."""
    candidates = np.flatnonzero(np.diff(topology.indptr))
    random = np.random.default_rng(batch_size)
    return np.stack([random.choice(candidates, batch_size, replace=False) for _ in range(BATCHES)]).astype(np.int32)


def _rivals(graph: GraphArtifacts, fanouts: tuple[int, ...], opened: ExitStack, quick: bool) -> Any:
    """Yields name, process and way of each rival."""
    files = {name: str(graph.graph.path / f"{name}.npy") for name in ("indptr", "indices")}
    for system, ways in WAYS.items():
        for name, python, kept in contestants(system, quick):
            spec = files | {"system": system, "fanouts": list(fanouts), "threads": THREADS}
            rival = opened.enter_context(RivalProcess(python, spec, kept))
            for way in ways:
                yield name.replace("dgl", f"dgl {way}"), rival, way


def _check(topology: Any, fanouts: tuple[int, ...], rival: RivalProcess, way: str, folder: Path) -> None:
    """Looks at a batch of a rival.

    Raises:
        AssertionError: a row has another length, or an edge is not one of the graph.
    """
    out = folder / "sampled.npz"
    rival.ask("sampled", seeds=str(folder / "seeds.npy"), way=way, out=str(out))
    found = np.load(out)
    for layer, fanout in enumerate(reversed(fanouts)):
        dst_ids, dst, src = (found[f"{name}{layer}"].astype(np.int64) for name in ("dst_ids", "dst", "src"))
        degrees = topology.indptr[dst_ids + 1] - topology.indptr[dst_ids]
        lengths = np.bincount(dst, minlength=len(dst_ids))
        assert (lengths == np.minimum(degrees, fanout)).all(), f"{way}: rows of other lengths in layer {layer}"
        assert are_edges(topology.indptr, topology.indices, dst_ids[dst], src), (
            f"{way}: an edge that the graph does not have"
        )
