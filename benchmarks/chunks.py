"""Rows that a full-graph pass loads from the host, by schedule, and what finding the schedule takes (HongTu, sections 5.3 and 7,
Tables 3 and 8).

For each graph and (parts, chunks per part): V_ori, V_+p2p, V_+ru by identity, Algorithm 4 and the best schedule, beside the distinct rows
that any schedule loads. The volumes are first compared with unions of sorted lists, a count that shares no code with them. Seconds: sets
and schedules without the swap search, and the search. "cut" is what the best schedule saves of V_ori, "of removable" the same of V_ori
less the distinct rows.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import record
from benchmarks.whole_graphs import grid, parts_of, rmat, sbm, stored
from kernels.chunks.cut import Chunks, cut_chunks
from kernels.chunks.schedule import choose_schedule
from kernels.chunks.sets import Volumes, count_distinct, neighbour_sets
from kernels.types import Array, Topology

SHAPES = ((1, 8), (1, 32), (4, 8), (4, 32))
THREADS = 2


def main(quick: bool) -> None:
    """Measures every graph and records one row."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, topology, method in graphs(quick, Path(folder)):
            if topology is None:
                print(f"{name}: no data, left out")
                continue
            for shape in SHAPES[2:3] if quick else SHAPES:
                rows.append(measured(name, topology, method, shape, Path(folder)))
                show(rows[-1])
    record("chunks", {"scale": "quick" if quick else "full", "cases": rows}, ("numpy", "pymetis"))


def graphs(quick: bool, home: Path) -> list[tuple[str, Topology | None, str]]:
    """Returns (name, graph, method of its parts)."""
    if quick:
        return [("R-MAT 14", rmat(14), "range"), ("grid 100", grid(100), "range"), ("SBM 10k", sbm(10_000), "metis")]
    found: list[tuple[str, Topology | None, str]] = [
        ("R-MAT 18", rmat(18), "range"),
        ("R-MAT 20", rmat(20), "range"),
        ("grid 1000", grid(1000), "range"),
        ("SBM 200k", sbm(200_000), "metis"),
    ]
    return found + [(name, stored(name, home), "metis") for name in ("photo", "python-environment")]


def measured(name: str, topology: Topology, method: str, shape: tuple[int, int], folder: Path) -> dict[str, Any]:
    """Returns the volumes and seconds of one case, after comparing the volumes with sorted lists."""
    parts, chunks_per_part = shape
    part_of = parts_of(topology, parts, method, folder)
    started = time.perf_counter()
    chunks = cut_chunks(topology.indptr, part_of, parts, chunks_per_part)
    sets = neighbour_sets(topology.indptr, topology.indices, chunks, threads=THREADS)
    plain = choose_schedule(sets, parts, "best", search_words=0, threads=THREADS)
    without = time.perf_counter() - started
    started = time.perf_counter()
    found = choose_schedule(sets, parts, "best", threads=THREADS)
    searching = time.perf_counter() - started
    best = found.found[found.chosen]
    for schedule, volumes in ((plain.schedule, plain.found[plain.chosen]), (found.schedule, best)):
        counted = by_lists(topology, chunks, schedule)
        assert tuple(volumes) == counted, f"{name} {shape}: {tuple(volumes)} counted by bits, {counted} by lists"
    identity, hongtu = found.found["identity"], found.found["hongtu"]
    assert best.v_ru <= min(identity.v_ru, hongtu.v_ru)
    distinct = count_distinct(sets, threads=THREADS)
    return {
        "graph": name, "nodes": topology.num_nodes, "edges": topology.num_edges, "parts": parts, "chunks": chunks_per_part,
        "v_ori": best.v_ori, "v_p2p": best.v_p2p, "v_ru": best.v_ru, "identity": identity.v_ru, "hongtu": hongtu.v_ru,
        "without_search": plain.found[plain.chosen].v_ru, "chosen": found.chosen, "distinct": distinct,
        "cut_ratio": round(1 - best.v_ru / best.v_ori, 4),
        "removable_ratio": round((best.v_ori - best.v_ru) / max(1, best.v_ori - distinct), 4),
        "seconds": round(without, 3), "search_seconds": round(searching, 3),
    }  # fmt: skip


def by_lists(topology: Topology, chunks: Chunks, schedule: Array) -> tuple[int, int, int]:
    """Returns V_ori, V_+p2p and V_+ru, counted with sorted lists."""
    indptr, indices, volume, before = topology.indptr, topology.indices, Volumes(0, 0, 0), np.empty(0, np.int64)
    dst = np.repeat(np.arange(topology.num_nodes), np.diff(indptr))
    chunk_of = np.empty(topology.num_nodes, np.int64)
    chunk_of[chunks.node_ids] = np.repeat(np.arange(len(chunks.ptr) - 1), np.diff(chunks.ptr))
    order = np.argsort(chunk_of[dst], kind="stable")
    ends = np.searchsorted(chunk_of[dst][order], np.arange(len(chunks.ptr)))
    for j in range(schedule.shape[1]):
        union = before[:0]
        for i, k in enumerate(schedule[:, j].tolist()):
            number = i * schedule.shape[1] + k
            held = np.union1d(indices[order[ends[number] : ends[number + 1]]], chunks.nodes(i, k))
            volume = volume._replace(v_ori=volume.v_ori + len(held))
            union = np.union1d(union, held)
        kept = len(np.intersect1d(union, before, assume_unique=True))
        volume = volume._replace(v_p2p=volume.v_p2p + len(union), v_ru=volume.v_ru + len(union) - kept)
        before = union
    return tuple(volume)  # pyright: ignore[reportReturnType]


def show(row: dict[str, Any]) -> None:
    """Prints one case."""
    print(
        f"{row['graph']:>18} ({row['parts']}, {row['chunks']:2}): "
        f"V_ori {row['v_ori']:>11,}  +p2p {row['v_p2p']:>11,}  +ru {row['v_ru']:>11,} "
        f"(identity {row['identity'] / row['v_ru']:.2f}x, Algorithm 4 {row['hongtu'] / row['v_ru']:.2f}x)  "
        f"cut {100 * row['cut_ratio']:4.0f} %, "
        f"of removable {100 * row['removable_ratio']:4.0f} %  {row['seconds']:.2f} s + search {row['search_seconds']:.2f} s"
    )
