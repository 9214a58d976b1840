"""Bytes and seconds of a full-graph epoch by kind of work: baseline, +P2P and +RU (HongTu, Figure 9).

    H2D     rows, blocks and results between host and devices, both ways
    D2D     rows between devices
    GPU     the layers' forward and backward computing
    CPU     gradients that the host adds up
    rest    rows that the host stores, and the loop

Four parts of 8 chunks on links modelled at 1 GB/s (host) and 12.5 GB/s (peers), by model and number of layers. Devices share this
machine's cores, so parts take turns: each computes with the whole machine and moves rows at the full speed of its link, and nothing
overlaps, so that the kinds of work add up to the epoch. Seconds are those of four devices one after the other; the time-line says which
work they went to.

The gradients of each way are first compared with those of a pass that is not cut, and the bytes of neighbour rows with an outside count
of V_ori, V_+p2p and V_+ru by sets. `python -m benchmarks.fullgraph_breakdown gat` measures one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.command_line import asked_for
from benchmarks.fullgraph import CHUNKS, HOST_GBPS, MODES, PARTS, PEER_GBPS, THREADS, Case, Cut, InMemory
from benchmarks.record import interleave, ratio, record
from benchmarks.whole_graphs import rmat
from graphmill.assets.figures.style import BLUE, CYAN, GREY, PURPLE, YELLOW
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.plots import stacked
from graphmill.trainers.record.ledger import COMPUTE
from graphmill.trainers.techniques.fullgraph.rows.lists import Mode

DEPTHS = (2, 4, 8)
NAMES: dict[Mode, str] = {"vanilla": "baseline", "p2p": "+P2P", "p2p+reuse": "+RU"}
PHASES = {"h2d": "H2D", "d2h": "H2D", "d2d": "D2D", COMPUTE: "GPU", "accumulate": "CPU"}
"""Phase of the time-line -> kind of work in Figure 9."""
COLOURS = {"H2D": YELLOW, "D2D": CYAN, "GPU": BLUE, "CPU": PURPLE, "rest": GREY}
MODELS = ("gcn", "gat")


def main(quick: bool, models: Sequence[str] = MODELS) -> None:
    """Measures, and records a row for each model."""
    torch.set_num_threads(THREADS)
    topology = rmat(12 if quick else 15)
    for model in models:
        rows = []
        for layers in DEPTHS[:2] if quick else DEPTHS:
            case = Case(topology, model, layers=layers)
            rows += modes(case, case.steps(PARTS, CHUNKS))
        row = {"model": model, "scale": "quick" if quick else "full", "shape": [PARTS, CHUNKS], "rows": rows}
        graph = {"nodes": topology.num_nodes, "edges": topology.num_edges, "links_gbps": [HOST_GBPS, PEER_GBPS]}
        record("fullgraph_breakdown", row | graph)


def needed_rows(steps: InMemory) -> dict[Mode, int]:
    """Returns V_ori, V_+p2p and V_+ru, the rows that come from the host by mode, counted with sets of the nodes that chunks read."""
    found: dict[Mode, int] = dict.fromkeys(MODES, 0)
    before: set[int] = set()
    for of_step in steps.steps:
        read = [each.block.src_ids[np.unique(each.block.indices)] for each in of_step]
        held = [{*nodes.tolist(), *each.dst_ids.tolist()} for nodes, each in zip(read, of_step, strict=True)]
        union = set[int]().union(*held)
        found["vanilla"] += sum(map(len, held))
        found["p2p"] += len(union)
        found["p2p+reuse"] += len(union - before)
        before = union
    return found


def link_bytes(run: Cut) -> dict[str, int]:
    """Returns the bytes that a pass has moved: between host and devices, the rows of neighbours among them, and between devices."""
    ledger = run.whole.mover.ledger
    moves = ledger.rows()["moves"]
    host = sum(row["moved_bytes"] for row in moves if row["link"] in ("h2d", "d2h"))
    neighbours = sum(row["moved_bytes"] for row in moves if (row["link"], row["kind"]) == ("h2d", "neighbour"))
    return {"host_bytes": host, "neighbour_bytes": neighbours, "peer_bytes": ledger.moved_bytes("d2d")}


def modes(case: Case, steps: InMemory) -> list[dict[str, Any]]:
    """Returns a row for each mode of a case; modes take turns in drawn order."""
    runs = {mode: case.compared(case.cut(steps, mode, linked=True, overlap=False)) for mode in MODES}
    moved, wanted = {mode: link_bytes(run) for mode, run in runs.items()}, needed_rows(steps)
    for mode in MODES:
        ours, base = moved[mode]["neighbour_bytes"], moved["vanilla"]["neighbour_bytes"]
        assert ours * wanted["vanilla"] == base * wanted[mode], "rows of neighbours are not those of an outside count"
    found: dict[Mode, list[dict[str, float]]] = {mode: [] for mode in MODES}
    seconds = interleave({mode: lambda mode=mode: found[mode].append(spent(runs[mode])) for mode in MODES}, 3)
    rows = []
    for mode in MODES:
        # Kinds are those of the median epoch, so that they add up to it; the first one of `interleave` is not counted.
        middle = int(np.argsort(seconds[mode])[len(seconds[mode]) // 2])
        kinds = {kind: round(each, 4) for kind, each in found[mode][1 + middle].items()}
        row = {"layers": len(case.model.layers), "mode": mode, "needed_rows": wanted[mode]} | moved[mode]
        row |= {"seconds": round(seconds[mode][middle], 4), "speedup": round(ratio(seconds, "vanilla", mode), 3)}
        rows.append(row | {"kinds": kinds})
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


def spent(run: Cut) -> dict[str, float]:
    """Runs an epoch and returns kind of work -> seconds."""
    timeline = run.whole.mover.timeline
    timeline.start(0)
    run()
    timeline.finish()
    return by_kind(timeline.record)


def by_kind(found: dict[str, Any]) -> dict[str, float]:
    """Returns kind of work -> seconds of a time-line's record, over all devices; the rest is what no phase of Figure 9 has."""
    kinds = dict.fromkeys(COLOURS, 0.0)
    for phases in found["busy_seconds"].values():
        for phase, seconds in phases.items():
            if phase in PHASES:
                kinds[PHASES[phase]] += seconds
    return kinds | {"rest": found["seconds"] - sum(kinds.values())}


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the seconds by kind of work (HongTu, Figure 9)."""
    found = []
    for model in MODELS:
        last = [row for row in rows if row["scale"] == "full" and row["model"] == model][-1]
        values = {f"{row['layers']} layers, {NAMES[row['mode']]}": row["kinds"] for row in last["rows"]}
        title = f"A full-graph epoch by kind of work, {model.upper()}"
        says = f"Stacked bars: R-MAT of {last['nodes']:,} nodes and {last['edges']:,} edges, 4 parts of 8 chunks."
        figure = stacked(f"hongtu-breakdown-{model}", title, says, values, COLOURS, "s per epoch, in turns")
        found += [] if figure is None else [figure]
    return found


if __name__ == "__main__":
    main(*asked_for(MODELS, "model"))
