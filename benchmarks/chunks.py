"""Rows that a full-graph pass loads from the host, by schedule, and what finding the schedule takes (HongTu, sections 5.3 and 7,
Tables 3 and 8).

For each graph and (parts, chunks per part): V_ori, V_+p2p, V_+ru by identity, Algorithm 4 and the best schedule, beside the distinct rows
that any schedule loads. Before anything is reported,

    volumes, distinct rows and the largest batch are compared with unions of sorted lists, a count that shares no code with them,
    the rows of the steps that would be written are counted one by one and compared with both,
    the best schedule is compared with identity and Algorithm 4, and its bytes on one thread with those on two.

Seconds: sets and schedules without the swap search, and the search. "cut" is what the best schedule saves of V_ori, "of removable" the
same of V_ori less the distinct rows. `python -m benchmarks.chunks --graphs grid photo` measures some of the graphs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.record import record
from benchmarks.whole_graphs import grid, parts_of, rmat, sbm, stored
from graphmill.assets.building.stage import Silent
from graphmill.assets.chunks.build import cut_in_order, replication_by_chunks
from graphmill.assets.chunks.config import ChunksConfig, ChunksTable
from graphmill.kernels.chunks.counts import StepCounts, count_step
from graphmill.kernels.chunks.cut import Chunks
from graphmill.kernels.chunks.schedule import Scheduled, choose_schedule
from graphmill.kernels.chunks.sets import neighbour_sets, shared_sets
from graphmill.kernels.chunks.steps import iterate_steps
from graphmill.kernels.types import Array, Topology

SHAPES = ((1, 8), (1, 32), (4, 8), (4, 32))
THREADS = 2


class Graph(NamedTuple):
    """A graph to measure: how it is made, and how its parts and the order inside them are found."""

    name: str
    make: Callable[[Path], Topology | None]
    method: str = "range"
    order: str = "id"
    shapes: tuple[tuple[int, int], ...] = SHAPES
    self_term: bool = True


GRAPHS = {
    "rmat18": Graph("R-MAT 18", lambda home: rmat(18)),
    "rmat20": Graph("R-MAT 20", lambda home: rmat(20)),
    # the paper's sets: in-neighbours alone, without the rows of the destinations themselves
    "rmat20-neighbours": Graph("R-MAT 20, neighbours", lambda home: rmat(20), self_term=False),
    "rmat21": Graph("R-MAT 2M/33M", lambda home: rmat(21), shapes=((4, 32),)),
    "grid": Graph("grid 1000", lambda home: grid(1000)),
    "sbm": Graph("SBM 200k", lambda home: sbm(200_000), "metis"),
    "sbm-metis": Graph("SBM 200k, sub-parts", lambda home: sbm(200_000), "metis", "metis"),
    "photo": Graph("photo", lambda home: stored("photo", home), "metis"),
    "python-environment": Graph("python-environment", lambda home: stored("python-environment", home), "metis"),
}
QUICK = {
    "rmat14": Graph("R-MAT 14", lambda home: rmat(14), shapes=((4, 8),)),
    "grid100": Graph("grid 100", lambda home: grid(100), shapes=((4, 8),)),
    "sbm10k": Graph("SBM 10k", lambda home: sbm(10_000), "metis", shapes=((4, 8),)),
}


class Counted(NamedTuple):
    """What a count by lists finds, in rows."""

    v_ori: int
    v_p2p: int
    v_ru: int
    distinct: int
    largest_batch: int


def main(quick: bool, graphs: Sequence[str] = tuple(GRAPHS)) -> None:
    """Measures the graphs and records one row."""
    cases, replication = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for graph in QUICK.values() if quick else [GRAPHS[name] for name in graphs]:
            topology = graph.make(Path(folder))
            if topology is None:
                print(f"{graph.name}: no data, left out")
                continue
            for shape in graph.shapes:
                cases.append(measured(graph, topology, shape, Path(folder)))
                show(cases[-1])
            replication[graph.name] = by_chunks(graph, topology, Path(folder))
    row = {"scale": "quick" if quick else "full", "cases": cases, "replication": replication}
    record("chunks", row, ("numpy", "pymetis"))


def measured(graph: Graph, topology: Topology, shape: tuple[int, int], folder: Path) -> dict[str, Any]:
    """Returns the volumes and seconds of one case, after comparing the volumes with two other counts."""
    parts, chunks_per_part = shape
    part_of = parts_of(topology, parts, graph.method, folder)
    config = ChunksConfig(table=ChunksTable(chunks_per_part=chunks_per_part, order=graph.order), seed=1)  # type: ignore[arg-type]
    started = time.perf_counter()
    chunks = cut_in_order(topology, part_of, parts, config, folder, Silent(), THREADS)
    cutting = time.perf_counter() - started
    started = time.perf_counter()
    bits = neighbour_sets(topology.indptr, topology.indices, chunks, self_term=graph.self_term, threads=THREADS)
    sets = shared_sets(bits, threads=THREADS)
    plain = choose_schedule(sets, parts, "best", search_words=0, threads=THREADS)
    without = time.perf_counter() - started
    started = time.perf_counter()
    found = choose_schedule(sets, parts, "best", threads=THREADS)
    searching = time.perf_counter() - started
    distinct = sets.num_distinct
    compare_counts(topology, part_of, chunks, found, distinct, graph.self_term)
    alone = choose_schedule(sets, parts, "best", threads=1)
    assert alone.found == found.found and alone.schedule.tobytes() == found.schedule.tobytes()
    best, identity, hongtu = (found.found[name] for name in (found.chosen, "identity", "hongtu"))
    assert best.v_ru <= min(identity.v_ru, hongtu.v_ru)
    return {
        "graph": graph.name, "nodes": topology.num_nodes, "edges": topology.num_edges, "parts": parts, "chunks": chunks_per_part,
        "method": graph.method, "order": graph.order, "self_term": graph.self_term,
        "v_ori": best.v_ori, "v_p2p": best.v_p2p, "v_ru": best.v_ru, "identity": identity, "hongtu": hongtu,
        "without_search": plain.found[plain.chosen].v_ru, "chosen": found.chosen, "distinct": distinct,
        "cut_ratio": round(1 - best.v_ru / best.v_ori, 4),
        "removable_ratio": round((best.v_ori - best.v_ru) / max(1, best.v_ori - distinct), 4),
        "seconds": round(cutting + without, 3), "cut_seconds": round(cutting, 3), "search_seconds": round(searching, 3),
        "search_words": found.search_words,
    }  # fmt: skip


def compare_counts(
    topology: Topology, part_of: Array, chunks: Chunks, found: Scheduled, distinct: int, self_term: bool
) -> None:
    """Compares what the schedules were chosen by with a count by lists, and the chosen one with the rows of its steps."""
    best = found.found[found.chosen]
    lists = by_lists(topology, chunks, found.schedule, self_term)
    assert (*best, distinct) == lists[:4], f"{(*best, distinct)} counted by bits, {lists} by lists"
    steps = iterate_steps(
        topology.indptr, topology.indices, part_of, chunks, found.schedule, self_term=self_term, threads=THREADS
    )
    counts = StepCounts.of(np.array([[count_step(each) for each in devices] for devices in steps], np.int64))
    assert (counts.v_ori, counts.v_p2p, counts.v_ru) == lists[:3], f"{lists} by lists, the steps differ"
    assert int(counts.transition.sum(axis=1).max()) == lists.largest_batch
    assert int(counts.edges.sum()) == topology.num_edges and int(counts.destinations.sum()) == topology.num_nodes


def by_lists(topology: Topology, chunks: Chunks, schedule: Array, self_term: bool) -> Counted:
    """Returns the volumes of a schedule, counted with sorted lists."""
    indptr, indices, before = topology.indptr, topology.indices, np.empty(0, np.int64)
    seen, v_ori, v_p2p, v_ru, largest = np.zeros(topology.num_nodes, bool), 0, 0, 0, 0
    dst = np.repeat(np.arange(topology.num_nodes, dtype=np.int32), np.diff(indptr))
    chunk_of = np.empty(topology.num_nodes, np.int32)
    chunk_of[chunks.node_ids] = np.repeat(np.arange(len(chunks.ptr) - 1), np.diff(chunks.ptr))
    order = np.argsort(chunk_of[dst], kind="stable")
    ends = np.searchsorted(chunk_of[dst][order], np.arange(len(chunks.ptr)))
    for j in range(schedule.shape[1]):
        union = before[:0]
        for i, k in enumerate(schedule[:, j].tolist()):
            number = i * schedule.shape[1] + k
            own = chunks.nodes(i, k) if self_term else chunks.nodes(i, k)[:0]
            held = np.union1d(indices[order[ends[number] : ends[number + 1]]], own)
            v_ori += len(held)
            union = np.union1d(union, held)
        v_p2p += len(union)
        v_ru += len(np.setdiff1d(union, before, assume_unique=True))
        largest = max(largest, len(union))
        seen[union], before = True, union
    return Counted(v_ori, v_p2p, v_ru, int(seen.sum()), largest)


def by_chunks(graph: Graph, topology: Topology, folder: Path) -> dict[str, float]:
    """Returns and prints chunks in all -> replication factor, from 4 parts up to 512 chunks (Table 3)."""
    part_of = parts_of(topology, 4, graph.method, folder)
    config = ChunksConfig(table=ChunksTable(chunks_per_part=128, order=graph.order), seed=1)  # type: ignore[arg-type]
    chunks = cut_in_order(topology, part_of, 4, config, folder, Silent(), THREADS)
    curve = {str(count): round(value, 3) for count, value in replication_by_chunks(topology, chunks, Silent()).items()}
    print(f"{graph.name:>19} alpha by chunks: {', '.join(f'{count}: {value:.2f}' for count, value in curve.items())}")
    return curve


def show(row: dict[str, Any]) -> None:
    """Prints one case."""
    print(
        f"{row['graph']:>19} ({row['parts']}, {row['chunks']:2}): "
        f"V_ori {row['v_ori']:>11,}  +p2p {row['v_p2p']:>11,}  +ru {row['v_ru']:>11,}  distinct {row['distinct']:>10,} "
        f"(identity {row['identity'].v_ru / row['v_ru']:.2f}x, Algorithm 4 {row['hongtu'].v_ru / row['v_ru']:.2f}x)  "
        f"cut {100 * row['cut_ratio']:4.0f} %, of removable {100 * row['removable_ratio']:4.0f} %  "
        f"{row['seconds']:.2f} s ({row['cut_seconds']:.2f} s of it to cut) + search {row['search_seconds']:.2f} s",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=tuple(GRAPHS), default=tuple(GRAPHS))
    main(quick=False, graphs=parser.parse_args().graphs)
