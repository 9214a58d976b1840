"""Sampling mini-batches against DGL 1.1.3's fused NeighborSampler, an unfused sampler and the memory's own speed (FastSample, Fig. 5, 6).

R-MAT graphs, seeds drawn among the nodes that have neighbours, the same threads for all. First it is checked that both take min(degree,
fanout) neighbours of every node, all of them edges of the graph. Then the competitors take turns, each batch with fresh seeds from one
distribution; a ratio is that of the medians.

- `ours` returns what DGL's sample_blocks returns: blocks in compressed columns and the input nodes, no transposes. `ours_transposed`
  also builds the transposes that a backward pass needs, which DGL puts off to that pass.
- Ours samples the graph as training does, from mapped files (in the page cache after the warm-up). DGL's graph is in memory, its indices
  in large pages where the system has them, as NumPy asks for. DGL runs with 64-bit ids: 1.1.3 dies on sampled blocks of 32-bit ids.
  `ours_int64` is ours on the very indices that DGL uses.
- `two_step` is graphmill.kernels.sampling.sample.TwoStepSampler: the same choice and map, by way of an edge list.
- `roofline` reads and writes what a sampler must, at the addresses of real batches that were recorded before, and does nothing else:
  two entries of indptr a destination, one of indices and one 8-byte entry of the map an edge, all asked for ahead.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import interleave, record
from graphmill.assets.storage.files.arrays import write_array
from graphmill.kernels import _native
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.rng import key
from graphmill.kernels.sampling.sample import Sampler, TwoStepSampler
from graphmill.kernels.types import BatchKey, Stream, Topology
from graphmill.trainers.devices.malloc import keep_freed_memory

FANOUTS = ((15, 10, 5), (25, 10), (20, 15, 10))
QUICK = {"nodes": 200_000, "edges": 1_650_000}
FULL = ({"nodes": 2_000_000, "edges": 16_500_000}, {"nodes": 8_000_000, "edges": 64_000_000})
BATCH_SIZES = (1024, 2048, 4096, 10240)


def main(quick: bool) -> None:
    if quick:
        run(QUICK, (1024, 4096), (2,), 5, "quick")
        return
    for graph in FULL:
        run(graph, BATCH_SIZES, (1, 2), 15, "full")


def run(
    graph: dict[str, int], batch_sizes: tuple[int, ...], threads: tuple[int, ...], repeats: int, scale: str
) -> None:
    """Makes one graph and measures it."""
    keep_freed_memory()  # as the trainer does; it spares DGL's page faults as well as ours
    csc = make_graph(**graph)
    with tempfile.TemporaryDirectory() as folder:
        measure(Field(*csc, Path(folder)), graph, batch_sizes, threads, repeats, scale)


def measure(
    field: Field,
    graph: dict[str, int],
    batch_sizes: tuple[int, ...],
    threads: tuple[int, ...],
    repeats: int,
    scale: str,
) -> None:
    """Compares in every setting and records a row."""
    edges = len(field.narrow.indices)
    print(f"R-MAT {graph['nodes']:,} nodes, {edges:,} edges (made undirected, duplicates kept)")
    print("ms a batch; x: times as fast as DGL; roof: rate against the recorded memory accesses alone")
    lines = []
    for team in threads:
        for fanouts in FANOUTS:
            for batch_size in batch_sizes:
                lines.append(compare(field, fanouts, batch_size, team, repeats))
                show(lines[-1])
    floor = {name: min(line[name] for line in lines) for name in ("dgl_over_ours", "rate_over_roofline")}
    print(f"least: {floor['dgl_over_ours']:.2f} x DGL, {floor['rate_over_roofline']:.0%} of the roofline")
    record(
        "sampling",
        {
            "scale": scale,
            "repeats": repeats,
            "graph": graph | {"directed_edges": edges},
            "floor": floor,
            "lines": lines,
        },
        ("torch", "numpy", "dgl"),
    )


def make_graph(nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    src, dst = rmat_edges(nodes, edges, seed=1, threads=os.cpu_count() or 1)
    csc = build_csc(src, dst, nodes, undirected=True, duplicates="keep", self_loops="drop", threads=os.cpu_count() or 1)
    return csc.indptr, csc.indices


class Field:
    """One graph in both id widths and in DGL, and the seeds of batches."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, folder: Path):
        os.environ.setdefault("DGLBACKEND", "pytorch")
        import dgl
        import torch

        empty = np.empty(0, np.int32)
        mapped = []
        for name, array in (("indptr", indptr), ("indices", indices)):
            write_array(folder / name, array).flush()
            mapped.append(np.load(folder / name, mmap_mode="r"))
        self.narrow, self.wide = (
            Topology(indptr=first, indices=ids, in_degree=empty, out_degree=empty)
            for first, ids in (mapped, (indptr, indices.astype(np.int64)))
        )
        arrays = (torch.from_numpy(indptr), torch.from_numpy(self.wide.indices), [])
        self.dgl_graph = dgl.graph(("csc", arrays), num_nodes=len(indptr) - 1)
        self.candidates = np.flatnonzero(np.diff(indptr))
        self.map = np.zeros(len(indptr), np.uint64)

    def seeds(self, batch_size: int) -> Iterator[np.ndarray]:
        generator = np.random.default_rng(batch_size)
        while True:
            yield generator.choice(self.candidates, batch_size, replace=False)


def compare(field: Field, fanouts: tuple[int, ...], batch_size: int, threads: int, repeats: int) -> dict[str, Any]:
    """Times all competitors on one setting and returns its line of the table."""
    import dgl
    import torch

    torch.set_num_threads(threads)
    dgl.utils.set_num_threads(threads)
    seeds = field.seeds(batch_size)
    theirs = dgl.dataloading.NeighborSampler(list(reversed(fanouts)), fused=True)
    samplers = {
        "ours": Sampler(field.narrow, fanouts, seed=1, threads=threads),
        "ours_int64": Sampler(field.wide, fanouts, seed=1, threads=threads),
        "two_step": TwoStepSampler(field.narrow, fanouts, seed=1, threads=threads),
    }
    check(field, fanouts, theirs, samplers["ours"], next(seeds))
    traces = [trace(samplers["ours"], next(seeds), step) for step in range(repeats + 1)]
    rounds = [[next(seeds) for _ in range(5)] for _ in range(repeats + 1)]
    wide = [torch.from_numpy(batch[0]) for batch in rounds]
    edges: dict[str, list[int]] = {name: [] for name in ("dgl", *samplers, "ours_transposed")}
    turn = dict.fromkeys([*edges, "roofline"], 0)

    def dgl_batch() -> None:
        _, _, blocks = theirs.sample_blocks(field.dgl_graph, wide[turn["dgl"]])
        edges["dgl"].append(sum(block.num_edges() for block in blocks))
        turn["dgl"] += 1

    def our_batch(name: str, sampler: Sampler, place: int, transpose: Any) -> None:
        blocks = sampler.sample(
            BatchKey(Stream.TRAIN, place, turn[name]), rounds[turn[name]][place], transpose=transpose
        )
        edges[name].append(sum(len(block.indices) for block in blocks))
        turn[name] += 1

    def roofline() -> None:
        for dst_ids, positions in traces[turn["roofline"]]:
            _native.random_gather(field.narrow.indptr, field.narrow.indices, dst_ids, positions, field.map, threads)
        turn["roofline"] += 1

    seconds = interleave(
        {
            "dgl": dgl_batch,
            "ours": lambda: our_batch("ours", samplers["ours"], 1, "none"),
            "ours_transposed": lambda: our_batch("ours_transposed", samplers["ours"], 2, "hidden"),
            "ours_int64": lambda: our_batch("ours_int64", samplers["ours_int64"], 3, "none"),
            "two_step": lambda: our_batch("two_step", samplers["two_step"], 4, "none"),
            "roofline": roofline,
        },
        repeats,
    )
    edges["roofline"] = [sum(len(positions) for _, positions in batch) for batch in traces]
    return line(fanouts, batch_size, threads, seconds, {name: edges[name][1:] for name in seconds})


def line(fanouts: Any, batch_size: int, threads: int, seconds: dict[str, list[float]], edges: Any) -> dict[str, Any]:
    median = {name: statistics.median(values) for name, values in seconds.items()}
    mean_edges = {name: statistics.mean(counts) for name, counts in edges.items()}
    rate = {name: mean_edges[name] / median[name] for name in seconds}
    ratios = {
        f"dgl_over_{name}": round(median["dgl"] / median[name], 3) for name in median if name not in ("dgl", "roofline")
    }
    return {
        "fanouts": fanouts,
        "batch_size": batch_size,
        "threads": threads,
        **ratios,
        "two_step_over_ours": round(median["two_step"] / median["ours"], 3),
        "rate_over_roofline": round(rate["ours"] / rate["roofline"], 3),
        "median_ms": {name: round(1e3 * value, 3) for name, value in median.items()},
        "least_ms": {name: round(1e3 * min(values), 3) for name, values in seconds.items()},
        "mean_edges": {name: round(value) for name, value in mean_edges.items()},
    }


def show(line: dict[str, Any]) -> None:
    ms = line["median_ms"]
    print(
        f"{line['fanouts']!s:>12} batch {line['batch_size']:>5}, {line['threads']} threads, {line['mean_edges']['ours']:>9,} edges:"
        f" dgl {ms['dgl']:.1f}, ours {ms['ours']:.1f} ({line['dgl_over_ours']:.2f}x),"
        f" transposed {ms['ours_transposed']:.1f} ({line['dgl_over_ours_transposed']:.2f}x),"
        f" int64 {ms['ours_int64']:.1f} ({line['dgl_over_ours_int64']:.2f}x),"
        f" two-step {ms['two_step']:.1f} ({line['dgl_over_two_step']:.2f}x), roof {line['rate_over_roofline']:.0%}",
        flush=True,
    )


def trace(sampler: Sampler, seeds: np.ndarray, step: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Destinations and positions of the edges of a batch, layer by layer from the seeds on."""
    ids = sampler.check_seeds(seeds)
    src_ids, layers = sampler._native.sample(key(9, Stream.PROBE, 0, step), ids, 0, True)
    return [(src_ids[: layer[0]], layer[5]) for layer in reversed(layers)]


def check(field: Field, fanouts: tuple[int, ...], theirs: Any, ours: Sampler, seeds: np.ndarray) -> None:
    """Both samplers take min(degree, fanout) distinct edges of every destination, and nothing that is no edge.

    Raises:
        AssertionError: one of them does not.
    """
    import dgl
    import torch

    _, _, blocks = theirs.sample_blocks(field.dgl_graph, torch.from_numpy(seeds))
    made = []
    for block in blocks:
        src_ids, dst_ids = (data[dgl.NID].numpy() for data in (block.srcdata, block.dstdata))
        src, dst = (ends.numpy() for ends in block.edges())
        made.append((dst_ids, dst, src_ids[src]))
    mine = [
        (block.dst_ids, np.repeat(np.arange(block.num_dst), block.end - block.start), block.src_ids[block.indices])
        for block in ours.sample(BatchKey(Stream.PROBE, 0, 0), seeds)
    ]
    indptr, indices = field.narrow.indptr, field.narrow.indices
    for blocks_of_one in (made, mine):
        for fanout, (dst_ids, dst, neighbours) in zip(reversed(fanouts), blocks_of_one, strict=True):
            degrees = indptr[dst_ids.astype(np.int64) + 1] - indptr[dst_ids]
            assert (np.bincount(dst, minlength=len(dst_ids)) == np.minimum(degrees, fanout)).all(), "row lengths"
            assert are_edges(indptr, indices, dst_ids[dst], neighbours), "an edge that the graph does not have"
    assert len(made[-1][1]) == len(mine[-1][1]), "different numbers of edges at the seeds"


def are_edges(indptr: np.ndarray, indices: np.ndarray, dst: np.ndarray, src: np.ndarray) -> bool:
    """Whether every src stands in the (sorted) row of its dst: a binary search in all rows at once."""
    low, high = indptr[dst], indptr[dst.astype(np.int64) + 1] - 1
    while (low < high).any():
        middle = (low + high) // 2
        right = indices[middle] < src
        low, high = np.where(right, np.minimum(middle + 1, high), low), np.where(right, high, middle)
    return bool((indices[low] == src).all())
