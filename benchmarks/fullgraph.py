"""Full-graph epochs: chunks against uncut, modes over a modelled link, cached aggregates against recomputation, DGL (HongTu 7).

The gradients of every way are first compared with those of the uncut pass. Then

    uncut    our pass on the device, against DGL's SAGEConv and GraphConv on the whole graph, forward and backward
    chunks   8 chunks out of core, against both
    modes    vanilla, p2p, p2p+reuse over links of 1 GB/s (host) and 12.5 GB/s (peers), 4 parts of 8 chunks; the paper's
             ratios are 1.3 to 3.4
    hybrid   cached aggregates against recomputation over the same link

DGL runs in the same process; with freed memory kept (as ours runs) and without, in two columns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.record import interleave, ratio, record
from benchmarks.whole_graphs import rmat
from kernels.chunks.steps import chunk_steps
from kernels.sampling.transpose import transpose
from kernels.types import Array, Block, ChunkStep, Topology
from trainers.batches.batch import attach_weights
from trainers.chunks.blocks import ChunkBlocks
from trainers.chunks.buffers import Mover, Place
from trainers.chunks.lists import Mode, walk
from trainers.chunks.passes import InputRows, Passes
from trainers.chunks.whole_pass import WholePass
from trainers.config import TrainConfig
from trainers.devices.link import Link
from trainers.devices.logical import LogicalDevice
from trainers.devices.malloc import keep_freed_memory
from trainers.models.build import build_model
from trainers.models.layer import LayeredModel, StepRandom
from trainers.record.ledger import Ledger
from trainers.record.timeline import Timeline
from trainers.rows.source import TableSource

THREADS, WIDTH, HIDDEN, CLASSES = 2, 128, 128, 16
HOST_GBPS, PEER_GBPS = 1.0, 12.5
RANDOM = StepRandom(1, 0, 0)


class Case:
    """A graph, a model and labels.

    Args:
        topology: the graph.
        model: "gcn", "sage" or "gat".
    """

    def __init__(self, topology: Topology, model: str):
        self.topology = topology
        generator, nodes = np.random.default_rng(0), topology.num_nodes
        self.x = generator.standard_normal((nodes, WIDTH)).astype(np.float32)
        self.labels = generator.integers(0, CLASSES, nodes).astype(np.int32)
        self.train_ids = np.sort(generator.permutation(nodes)[: nodes // 2])
        config = TrainConfig(trainer="fullgraph", model=model, layers=2, hidden=HIDDEN, dropout=0.0, threads=THREADS)
        built = build_model(config, WIDTH, CLASSES, 1)
        assert isinstance(built, LayeredModel)
        self.model = built
        indptr = np.asarray(topology.indptr)
        block = transpose(
            Block(
                num_dst=nodes, num_src=nodes, start=indptr[:-1].astype(np.int32), end=indptr[1:].astype(np.int32),
                indices=topology.indices, src_ids=np.arange(nodes, dtype=np.int32),
            )
        )  # fmt: skip
        attach_weights((block,), topology, built.edge_weight)
        self.block = block

    def uncut(self) -> float:
        """Runs a pass as a whole and leaves the gradients in the model."""
        self.model.zero_grad()
        logits = self.model((self.block,) * 2, torch.from_numpy(self.x), RANDOM)
        seeds = torch.from_numpy(self.train_ids)
        labels = torch.from_numpy(self.labels[self.train_ids]).long()
        loss = functional.cross_entropy(logits[seeds], labels, reduction="sum")
        loss.backward()
        return loss.item()

    def cut(
        self, parts: int, chunks: int, mode: Mode = "p2p+reuse", *, hybrid: bool = True, linked: bool = False
    ) -> Callable[[], float]:
        """Returns a pass in chunks."""
        part_of = (np.arange(self.topology.num_nodes) * parts // self.topology.num_nodes).astype(np.int32)
        steps = InMemory(
            chunk_steps(self.topology.indptr, self.topology.indices, part_of, parts, chunks_per_part=chunks)
        )
        walked, host = walk(steps, mode), HOST_GBPS if linked else None
        devices = [LogicalDevice(i, link_gbps=host) for i in range(parts)]
        places = [Place(part=i, device=device, several=parts > 1) for i, device in enumerate(devices)]
        passes = Passes(
            model=self.model, dst_ids=walked.dst_ids, lists=walked.lists,
            blocks=ChunkBlocks(steps, self.topology, self.model.edge_weight, 1 << 34), places=places,
            mover=Mover(places, Ledger(), Timeline(), Link(PEER_GBPS) if linked else None, THREADS),
            buffer_rows=walked.buffer_rows, num_nodes=self.topology.num_nodes, dtype="float32", kept="float32",
            hybrid=hybrid, folder=None, threads=THREADS,
        )  # fmt: skip
        inputs = InputRows(TableSource(self.x, False, THREADS), self.model, "float32", THREADS)
        whole = WholePass(passes, inputs, self.labels, self.train_ids, None)

        def run() -> float:
            self.model.zero_grad()
            return float(whole(RANDOM))

        return run

    def compared(self, run: Callable[[], float]) -> Callable[[], float]:
        """Returns the pass after comparing its gradients with those of the uncut one."""
        self.uncut()
        expected = [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None]
        run()
        found = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        for one, other in zip(found, expected, strict=True):
            assert (one - other).norm() <= 1e-4 * other.norm(), "gradients differ from those of the uncut pass"
        return run


class InMemory:
    """Chunk steps in a list."""

    def __init__(self, steps: list[tuple[ChunkStep, ...]]):
        self.steps, self.chunks_per_part, self.num_parts = steps, len(steps), len(steps[0])

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns step j of part i."""
        return self.steps[step][part]


def main(quick: bool) -> None:
    """Measures and records one row; DGL once more in a process that does not keep freed memory."""
    torch.set_num_threads(THREADS)
    topology, repeats = rmat(14 if quick else 18), 3 if quick else 5
    if os.environ.get("FREED_MEMORY") != "returned":
        keep_freed_memory()
    rows = [measured(topology, model, repeats) for model in ("gcn", "sage", "gat")]
    row: dict[str, Any] = {
        "scale": "quick" if quick else "full",
        "nodes": topology.num_nodes,
        "edges": topology.num_edges,
        "models": rows,
    }
    for each in rows:
        print("  ".join(f"{name} {value}" for name, value in each.items()))
    record("fullgraph", row | {"freed_memory": os.environ.get("FREED_MEMORY", "kept")}, ("torch", "numpy", "dgl"))
    if os.environ.get("FREED_MEMORY") is None:
        environment = os.environ | {"FREED_MEMORY": "returned"}
        command = [sys.executable, "-m", "benchmarks", "fullgraph", *(["--quick"] if quick else [])]
        subprocess.run(command, env=environment, check=True)


def measured(topology: Topology, model: str, repeats: int) -> dict[str, Any]:
    """Returns the ratios of one model."""
    case = Case(topology, model)
    plain: dict[str, Callable[[], object]] = {"uncut": case.uncut, "chunks": case.compared(case.cut(1, 8))}
    theirs = dgl_pass(case, model)
    if theirs is not None:
        plain["dgl"] = theirs
    seconds = interleave(plain, repeats)
    linked: dict[str, Callable[[], object]] = {
        mode: case.compared(case.cut(4, 8, mode, linked=True)) for mode in ("vanilla", "p2p", "p2p+reuse")
    }
    linked["recompute"] = case.compared(case.cut(4, 8, hybrid=False, linked=True))
    over_link = interleave(linked, 2)
    found: dict[str, Any] = {"model": model, "uncut_seconds": round(float(np.median(seconds["uncut"])), 3)}
    found["chunks_over_uncut"] = round(1 / ratio(seconds, "uncut", "chunks"), 3)
    if theirs is not None:
        found["uncut_against_dgl"] = round(ratio(seconds, "dgl", "uncut"), 3)
        found["chunks_over_dgl"] = round(1 / ratio(seconds, "dgl", "chunks"), 3)
    for mode in ("vanilla", "p2p", "recompute"):
        found[f"{mode}_over_reuse"] = round(ratio(over_link, mode, "p2p+reuse"), 3)
    return found


def dgl_pass(case: Case, model: str) -> Callable[[], object] | None:
    """Returns DGL's pass of the same shape; None where DGL is absent."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        import dgl
        import dgl.nn.pytorch as layers
    except ImportError:
        return None
    topology = case.topology
    dst = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    graph: Any = dgl.graph((torch.from_numpy(topology.indices.astype(np.int64)), torch.from_numpy(dst)), num_nodes=topology.num_nodes)
    if model != "sage":
        graph = dgl.add_self_loop(graph)
    graph.create_formats_()
    kinds: dict[str, Callable[[int, int], Any]] = {
        "gcn": lambda a, b: layers.GraphConv(a, b, norm="both"),
        "sage": lambda a, b: layers.SAGEConv(a, b, "mean"),
        "gat": lambda a, b: layers.GATConv(a, b, 1),
    }
    first, second = kinds[model](WIDTH, HIDDEN), kinds[model](HIDDEN, CLASSES)
    x, seeds = torch.from_numpy(case.x), torch.from_numpy(case.train_ids)
    labels: Array = case.labels[case.train_ids]

    def run() -> None:
        for layer in (first, second):
            layer.zero_grad()
        h = first(graph, x).flatten(1).relu()
        logits = second(graph, h).flatten(1)
        functional.cross_entropy(logits[seeds], torch.from_numpy(labels).long(), reduction="sum").backward()

    return run
