"""Epoch time of the `minibatch` trainer against the same model in plain DGL 1.1.3.

Same graph, batch size, fanouts, widths, optimiser and threads; DGL is passed the fanouts reversed. First the two models are loaded with
the same parameters and run on the same sampled blocks: their outputs must agree. Then whole training epochs alternate.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import interleave, ratio, record
from benchmarks.worker import Worker
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream, Topology
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import MemorySource
from tests.graphs import OpenedGraph, build_graph, open_paths

FANOUTS, BATCH_SIZE, THREADS = (15, 10, 5), 1024, 2
CONFIG = TrainConfig(model="sage", layers=3, hidden=256, dropout=0.5, threads=THREADS)
QUICK = {"nodes": 100_000, "edges": 1_000_000, "features": 100, "classes": 16, "train_ratio": 0.1}
FULL = {"nodes": 2_000_000, "edges": 16_500_000, "features": 100, "classes": 16, "train_ratio": 0.02}


def main(quick: bool) -> None:
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as home:
        semantic = config_class("rmat")(seed=1, valid_ratio=0.1, **size)
        artifacts = build_graph(Store(home), semantic, threads=THREADS)
        dgl_worker, our_worker = (Worker(contestant, artifacts.paths, kind) for kind in ("dgl", "graphmill"))
        with dgl_worker, our_worker:
            error = dgl_worker.ask("check")
            runs = {"dgl": lambda: dgl_worker.ask("epoch"), "graphmill": lambda: our_worker.ask("epoch")}
            seconds = interleave(runs, 3 if quick else 5)
            counts = {"ours_edges": our_worker.ask("edges"), "dgl_edges": dgl_worker.ask("edges")}
    medians = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    speedup = ratio(seconds, "dgl", "graphmill")
    numbers = artifacts.graph.summary["numbers"]
    print(f"R-MAT {numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges; 3-layer SAGE, hidden {CONFIG.hidden}")
    print(f"batch {BATCH_SIZE}, fanouts {FANOUTS}, {THREADS} threads; outputs agree within {error:.1e} (norm-wise)")
    print(f"sampled edges an epoch: graphmill {counts['ours_edges']:,}, dgl {counts['dgl_edges']:,}")
    print(f"seconds an epoch: graphmill {medians['graphmill']}, dgl {medians['dgl']}; dgl / graphmill = {speedup:.2f}")
    row = {"scale": "quick" if quick else "full", "graph": size, "ratio": round(speedup, 3), "median_seconds": medians}
    record("epoch", row | {"seconds": seconds, "counts": counts, "error": error}, ("torch", "numpy", "dgl"))


def contestant(paths: tuple[Path, Path], kind: str) -> Mapping[str, Callable[[], object]]:
    """Returns "check", the difference of the two models, "epoch", which runs one, and "edges", the edges of one."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    torch.set_num_threads(THREADS)
    if kind == "graphmill":
        keep_freed_memory()  # as the trainer does
    graph = open_paths(paths)
    epochs = OurEpochs(graph) if kind == "graphmill" else DglEpochs(graph)
    return {"check": lambda: check_equality(graph), "epoch": epochs.epoch, "edges": epochs.edges_per_epoch}


class OurEpochs:
    """Epochs of the `minibatch` trainer's source and step."""

    def __init__(self, graph: OpenedGraph, config: TrainConfig = CONFIG, fanouts: tuple[int, ...] = FANOUTS):
        self.model = build_model(config, graph.features.width, graph.num_classes, seed=0)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.ledger, self.epochs = Ledger(), 0
        batching = Batching(
            topology=graph.topology,
            labels=graph.labels,
            plan=EpochPlan(np.asarray(graph.train_ids), BATCH_SIZE, seed=0),
            edge_weight=None,
            ledger=self.ledger,
            queue_bytes=2**30,
            transpose=self.model.transpose,
        )
        sampler = Sampler(graph.topology, fanouts, seed=0, threads=THREADS)
        self.source = OnlineSource(
            batching, MemorySource(graph.features, THREADS), [sampler], in_turn=True
        )  # as on two cores

    def epoch(self) -> None:
        for batch in self.source.batches(self.epochs):
            logits = self.model(batch.blocks, batch.x, StepRandom(0, batch.train_epoch, batch.position))
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels).long())
            loss.backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            del batch
        self.epochs += 1

    def edges_per_epoch(self) -> int:
        return sum(row["n"] for row in self.ledger.rows()["counts"] if row["name"] == "edges") // self.epochs


class DglEpochs:
    """Epochs of the model a DGL user writes: NeighborSampler, DataLoader, SAGEConv."""

    def __init__(self, graph: OpenedGraph):
        import dgl

        self.graph = dgl_graph(graph.topology)
        self.graph.ndata["x"] = torch.from_numpy(np.array(graph.features.open()))
        self.graph.ndata["y"] = torch.from_numpy(np.array(graph.labels)).long()
        sampler = dgl.dataloading.NeighborSampler(
            list(reversed(FANOUTS)), prefetch_node_feats=["x"], prefetch_labels=["y"]
        )
        ids = torch.from_numpy(np.array(graph.train_ids)).long()
        self.loader = dgl.dataloading.DataLoader(
            self.graph, ids, sampler, batch_size=BATCH_SIZE, shuffle=True, num_workers=0
        )
        self.model = dgl_model(graph.features.width, graph.num_classes)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=CONFIG.lr)
        self.edges, self.epochs = 0, 0

    def epoch(self) -> None:
        for _, _, blocks in self.loader:
            loss = torch.nn.functional.cross_entropy(
                self.model(blocks, blocks[0].srcdata["x"]), blocks[-1].dstdata["y"]
            )
            loss.backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            self.edges += sum(block.num_edges() for block in blocks)
        self.epochs += 1

    def edges_per_epoch(self) -> int:
        return self.edges // self.epochs


def dgl_graph(topology: Topology) -> Any:
    """The same graph as DGL holds it."""
    import dgl

    # DGL 1.1.3 dies with a segmentation fault in its sparse product on sampled blocks of 32-bit ids.
    arrays = [torch.from_numpy(np.array(each)).long() for each in (topology.indptr, topology.indices)]
    return dgl.graph(("csc", (*arrays, [])), num_nodes=topology.num_nodes)


def dgl_model(in_width: int, num_classes: int) -> torch.nn.Module:
    """The twin of our `sage` model out of dgl.nn layers."""
    import dgl.nn

    class Sage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            widths = [in_width] + [CONFIG.hidden] * (CONFIG.layers - 1) + [num_classes]
            self.layers = torch.nn.ModuleList([dgl.nn.SAGEConv(*pair, "mean") for pair in itertools.pairwise(widths)])
            self.dropout = torch.nn.Dropout(CONFIG.dropout)

        def forward(self, blocks: Any, h: torch.Tensor) -> torch.Tensor:
            for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
                h = layer(block, h)
                if index + 1 < len(self.layers):
                    h = self.dropout(h.relu())
            return h

    return Sage()


def check_equality(graph: OpenedGraph) -> float:
    """Runs both models with the same parameters on the same blocks. Returns the norm-wise difference of their outputs.

    Raises:
        AssertionError: they differ by more than 1e-5.
    """
    ours = build_model(CONFIG, graph.features.width, graph.num_classes, seed=0)
    twin = dgl_model(graph.features.width, graph.num_classes).eval()
    names = {"own.weight": "fc_self.weight", "own.bias": "fc_self.bias", "neighbours.weight": "fc_neigh.weight"}
    for layer, other in zip(ours.layers, twin.layers, strict=True):  # pyright: ignore[reportArgumentType]
        other.load_state_dict({names[name]: value for name, value in layer.state_dict().items()})
    seeds = np.asarray(graph.train_ids[:256])
    blocks = Sampler(graph.topology, FANOUTS, seed=3).sample(BatchKey(Stream.PROBE, 0, 0), seeds)
    x = torch.from_numpy(np.array(graph.features.open()[blocks[0].src_ids]))
    with torch.no_grad():
        mine = ours(blocks, x, StepRandom(0, training=False))
        theirs = twin([to_dgl(block) for block in blocks], x)
    error = float((mine - theirs).norm() / theirs.norm())
    assert error < 1e-5, f"graphmill and DGL disagree: {error}"
    return error


def to_dgl(block: Block) -> Any:
    """The same block as DGL sees it."""
    import dgl

    dst = np.repeat(np.arange(block.num_dst), block.end - block.start)
    edges = (torch.from_numpy(block.indices).long(), torch.from_numpy(dst).long())
    return dgl.create_block(edges, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
