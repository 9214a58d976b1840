"""Memory of full-graph training by kind: topology, vertex data and intermediate data (HongTu, Table 1).

    topology        the block of the whole graph: in-edges, their transpose and their weights
    vertex          features and each layer's output, and a gradient for each of them, which is the paper's count
    intermediate    everything else that lives when a pass that is not cut has gone forwards: it waits for the backward pass
    uncut           the most that such a pass holds at once, topology included
    chunks          the most that one of four devices holds for the same gradients, 8 chunks each

Storages are counted by a logical device while they live. The bytes after the forward pass are first compared with those of the storages
that autograd saves, a count that shares no code with the first, and the gradients of the chunks with those of the uncut pass.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.fullgraph import CHUNKS, HIDDEN, PARTS, RANDOM, Case, summed_loss
from benchmarks.record import record
from benchmarks.whole_graphs import rmat
from graphmill.assets.figures.style import CYAN, GREEN, RED, YELLOW
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.plots import stacked
from graphmill.trainers.batches.batch import block_bytes
from graphmill.trainers.devices.logical import LogicalDevice

WIDTH, CLASSES, DEPTHS = 256, 64, (2, 4, 8)
"""Columns of features and logits as for it-2004 and friendster in Table 1: 256-128-128-64."""
VALUES_OF_PAPER = 704
"""Values of intermediate data per node: 108.3 GiB of it-2004 (41.3 million nodes), and 179.3 of friendster, in float32."""
COLOURS = {"topology": GREEN, "features and outputs": CYAN, "their gradients": YELLOW, "intermediate": RED}


def main(quick: bool) -> None:
    """Counts all cases and records a row."""
    torch.set_num_threads(1)  # counts need no second core, which others may use
    small, large = (13, 14) if quick else (18, 20)
    cases = [(f"R-MAT {large}", large, "gcn", 3)]
    cases += [(f"R-MAT {small}", small, model, layers) for model in ("gcn", "sage", "gat") for layers in DEPTHS]
    rows = []
    for graph, scale, model, layers in cases:
        case = Case(rmat(scale), model, WIDTH, layers=layers, classes=CLASSES, threads=1)
        rows.append({"graph": graph, "model": model, "layers": layers} | counted(case))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    record("fullgraph_memory", {"scale": "quick" if quick else "full", "shape": [PARTS, CHUNKS], "rows": rows})


def widths(layers: int) -> list[int]:
    """Returns the columns of the features and of each layer's output."""
    return [WIDTH, *[HIDDEN] * (layers - 1), CLASSES]


def counted(case: Case) -> dict[str, int]:
    """Returns the bytes of a case by kind."""
    nodes, columns = case.topology.num_nodes, sum(widths(len(case.model.layers)))
    topology, rows = block_bytes((case.block,)), 4 * nodes * columns
    live, peak = uncut_bytes(case)
    run = case.compared(case.cut(case.steps(PARTS, CHUNKS)))
    held = max(place.device.peak["total"] for place in run.whole.mover.places)
    return {
        "nodes": nodes, "edges": case.topology.num_edges, "topology": topology, "vertex": 2 * rows,
        "intermediate": live - rows, "uncut": topology + peak, "chunks": held,
    }  # fmt: skip


def uncut_bytes(case: Case) -> tuple[int, int]:
    """Returns the bytes that live after the forward pass, features included, and the most that live at once.

    Raises:
        AssertionError: the former differ by more than 1 %, and the parameters, from features, logits and what autograd saves.
    """
    device, x, saved = LogicalDevice(), torch.from_numpy(case.x), dict[int, int]()
    case.model.zero_grad()
    device.adopt([x], "vertex")
    own = {parameter.untyped_storage().data_ptr() for parameter in case.model.parameters()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with device.active():
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            logits = case.model((case.block,) * len(case.model.layers), x, RANDOM)
        gc.collect()
        live = device.live_bytes
        for tensor in (x, logits):
            note(tensor)
        gap, parameters = abs(live - sum(saved.values())), sum(each.nbytes for each in case.model.parameters())
        assert gap <= 0.01 * live + parameters, (live, sum(saved.values()))
        labels = torch.from_numpy(case.labels[case.train_ids]).long()
        summed_loss(logits[torch.from_numpy(case.train_ids)], labels).backward()
    return live, device.peak["total"]


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the bytes of each kind by model and number of layers (HongTu, Table 1)."""
    last = [row for row in rows if row["scale"] == "full"][-1]["rows"]
    cases = [row for row in last if row["graph"] == last[-1]["graph"]]
    values = {f"{row['model']}, {row['layers']} layers": kinds(row) for row in cases}
    title = "Memory of a full-graph pass by kind"
    says = (
        f"Stacked bars: R-MAT of {cases[0]['nodes']:,} nodes and {cases[0]['edges']:,} edges, columns 256-128-...-64."
    )
    found = stacked("hongtu-memory", title, says, values, COLOURS, "GB")
    return [] if found is None else [found]


def kinds(row: dict[str, int]) -> dict[str, float]:
    """Returns kind -> GB of a row, in the order in which the parts of a bar follow one another."""
    parts = (row["topology"], row["vertex"] / 2, row["vertex"] / 2, row["intermediate"])
    return {name: num_bytes / 1e9 for name, num_bytes in zip(COLOURS, parts, strict=True)}
