"""Full-graph epochs: chunks against uncut, modes over modelled links, cached aggregates against recomputation, DGL (HongTu 7).

    ways            our uncut pass on the device and 8 chunks out of core against DGL's layers on the whole graph, forwards and
                    backwards, on R-MAT 18 x 128 and on Photo; DGL in the same process, with freed memory kept (as ours runs) and without
    links           vanilla, p2p, p2p+reuse and recomputation: 4 parts of 8 chunks, links modelled at 1 GB/s (host) and 12.5 GB/s (peers)
    preprocessing   cutting, scheduling and making the steps of R-MAT 20, against 100 epochs; partitioning excluded

The gradients of every way, DGL's included, are first compared with those of the uncut pass. Four devices share this machine's cores, so
each has a quarter of its computing, and its links have a quarter of the stated speeds: computing and transfers keep the proportion of four
devices with links of their own. The time of a layer is compared with the bytes of its busiest link divided by that link's speed.

`python -m benchmarks.fullgraph links` runs and records a part.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.command_line import asked_for
from benchmarks.record import interleave, ratio, record
from benchmarks.whole_graphs import rmat, stored
from graphmill.kernels.blocks.transpose import order_weights, transpose
from graphmill.kernels.chunks.steps import chunk_steps
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.types import Block, ChunkStep, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.loss import CrossEntropy
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger, Timeline
from graphmill.trainers.rows.source import TableSource
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import Passes
from graphmill.trainers.techniques.fullgraph.passes.replicas import Replicas
from graphmill.trainers.techniques.fullgraph.passes.row_passes import InputRows
from graphmill.trainers.techniques.fullgraph.passes.whole_pass import NodeLosses, WholePass
from graphmill.trainers.techniques.fullgraph.rows.buffers import Mover
from graphmill.trainers.techniques.fullgraph.rows.host_rows import Place
from graphmill.trainers.techniques.fullgraph.rows.lists import Mode, walk
from graphmill.trainers.techniques.fullgraph.rows.supply import ChunkBlocks

THREADS, WIDTH, HIDDEN, CLASSES = 2, 128, 128, 16
HOST_GBPS, PEER_GBPS = 1.0, 12.5
PHOTO_WIDTH = 745
PARTS, CHUNKS, EPOCHS = 4, 8, 100
MODES: tuple[Mode, ...] = ("vanilla", "p2p", "p2p+reuse")
FAVOURING_TRANSFER = 3.0
"""Layers whose transfer takes so many times their computing are compared with bytes / bandwidth."""
RANDOM = StepRandom(1, 0, 0)
PACKAGES = ("torch", "numpy", "dgl")
MEASURED = ("ways", "links", "preprocessing")
DGL_NAMES = {
    "gcn": {"linear.weight": "weight", "linear.bias": "bias"},
    "sage": {"own.weight": "fc_self.weight", "own.bias": "fc_self.bias", "neighbours.weight": "fc_neigh.weight"},
    "gat": {"projection.weight": "fc.weight", "left": "attn_l", "right": "attn_r", "bias": "bias"},
}
"""Our name of a parameter -> the name that DGL's layer gives it."""


class TimedPass(WholePass):
    """A pass that says how long each layer took, and what its busiest link carried in seconds of that link's speed.

    Attributes:
        seconds, transfer_seconds: by name of a layer's pass.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.seconds: dict[str, float] = {}
        self.transfer_seconds: dict[str, float] = {}

    def forward(self, index: int, inputs: Any, random: StepRandom, *, caches: bool | None = None) -> Any:
        """Times a forward pass of a layer."""
        run = super().forward
        return self._timed(f"forward {index}", lambda: run(index, inputs, random, caches=caches))

    def backward(self, rows: Any, *arguments: Any) -> None:
        """Times a backward pass of a layer."""
        run = super().backward
        self._timed(f"backward {rows.index}", lambda: run(rows, *arguments))

    def _timed(self, name: str, run: Callable[[], Any]) -> Any:
        before, began = self._carried(), time.perf_counter()
        found = run()
        self.seconds[name] = time.perf_counter() - began
        self.transfer_seconds[name] = max(
            (now - then for now, then in zip(self._carried(), before, strict=True)), default=0.0
        )
        return found

    def _carried(self) -> list[float]:
        links = [place.device.link(direction) for place in self.mover.places for direction in ("h2d", "d2h")]
        return [link.charged_bytes / link.gbps / 1e9 for link in links if link is not None]


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the sum of the losses of nodes."""
    return functional.cross_entropy(logits, labels, reduction="sum")


class Case:
    """A graph, a model and labels.

    Args:
        topology: the graph.
        model: "gcn", "sage" or "gat".
        width, layers, classes: columns of the features, layers of the model, columns of the logits.
        threads: number of the kernels' threads.
    """

    def __init__(
        self,
        topology: Topology,
        model: str,
        width: int = WIDTH,
        *,
        layers: int = 2,
        classes: int = CLASSES,
        threads: int = THREADS,
    ):
        self.topology, self.threads = topology, threads
        generator, nodes = np.random.default_rng(0), topology.num_nodes
        # Aligned as the trainers' tables in memory are.
        self.x = aligned_empty(nodes * width * 4).view(np.float32).reshape(nodes, width)
        self.x[...] = generator.standard_normal((nodes, width))
        self.labels = generator.integers(0, classes, nodes).astype(np.int32)
        self.train_ids = np.sort(generator.permutation(nodes)[: nodes // 2])
        config = TrainConfig(
            trainer="fullgraph", model=model, layers=layers, hidden=HIDDEN, dropout=0.0, threads=threads
        )
        built = build_model(config, width, classes, 1)
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
        order_weights(block)
        self.block = block

    def uncut(self, summed: Tensor | None = None) -> float:
        """Runs a pass as a whole, with the first layer's sums if they are given, and leaves the gradients in the model."""
        self.model.zero_grad()
        logits = self.model((self.block,) * len(self.model.layers), torch.from_numpy(self.x), RANDOM, summed=summed)
        seeds = torch.from_numpy(self.train_ids)
        labels = torch.from_numpy(self.labels[self.train_ids]).long()
        loss = summed_loss(logits[seeds], labels)
        loss.backward()
        return loss.item()

    def first_sums(self) -> Tensor:
        """Returns float32[N, width], the first layer's aggregates of the features."""
        layer: Any = self.model.layers[0]
        return layer.aggregate(self.block, torch.from_numpy(self.x), RANDOM.layer(1, self.block.dst_ids))

    def steps(self, parts: int, chunks: int) -> InMemory:
        """Returns the steps of parts that are ranges of ids."""
        part_of = (np.arange(self.topology.num_nodes) * parts // self.topology.num_nodes).astype(np.int32)
        made = chunk_steps(
            self.topology.indptr, self.topology.indices, part_of, parts, chunks_per_part=chunks, threads=self.threads
        )
        return InMemory(made)

    def cut(
        self,
        steps: InMemory,
        mode: Mode = "p2p+reuse",
        *,
        hybrid: bool = True,
        linked: bool = False,
        kept: bool = False,
        overlap: bool = True,
    ) -> Cut:
        """Returns a pass in chunks; without overlap parts take turns, each at the full speed of its link to the host."""
        parts = steps.num_parts
        host = HOST_GBPS / (parts if overlap else 1) if linked else None
        devices = [LogicalDevice(i, link_gbps=host) for i in range(parts)]
        places = [Place(part=i, device=device, several=parts > 1) for i, device in enumerate(devices)]
        replicas = Replicas(self.model, places)
        passes = Passes(
            replicas=replicas, walk=walk(steps, mode),
            blocks=ChunkBlocks(steps, self.topology, self.model, 1 << 34),
            mover=Mover(places, Ledger(), Timeline(), PEER_GBPS / parts if linked else None, self.threads, overlap),
            dtype="float32", hybrid=hybrid, folder=None,
        )  # fmt: skip
        inputs = InputRows(TableSource(self.x, False, self.threads), replicas, "float32")
        whole = TimedPass(passes, inputs, NodeLosses(passes, self.labels, self.train_ids, CrossEntropy()))
        if kept:
            whole.summed = whole.first_sums(Ledger(), RANDOM)
        return Cut(self.model, whole)

    def compared(self, run: Cut) -> Cut:
        """Returns the pass after comparing its gradients with those of the uncut one."""
        self.uncut()
        expected = [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None]
        run()
        found = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        whole = sum(float(other.norm()) ** 2 for other in expected) ** 0.5
        for one, other in zip(found, expected, strict=True):
            # Attention hardly depends on the destinations' vector, whose gradient is rounding.
            bound = 1e-4 * other.norm() + 1e-6 * whole
            assert (one - other).norm() <= bound, "gradients differ from those of the uncut pass"
        return run


@dataclass
class Cut:
    """A pass in chunks; a call leaves the gradients in the model."""

    model: LayeredModel
    whole: TimedPass

    def __call__(self) -> float:
        """Runs it and returns the loss."""
        self.model.zero_grad()
        return float(self.whole(RANDOM))


class InMemory:
    """Chunk steps in a list."""

    def __init__(self, steps: list[tuple[ChunkStep, ...]]):
        self.steps, self.chunks_per_part, self.num_parts = steps, len(steps), len(steps[0])

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns step j of part i."""
        return self.steps[step][part]


def main(quick: bool, parts: Sequence[str] = MEASURED) -> None:
    """Measures, and records a row per part; `ways` once more in a process that does not keep freed memory."""
    torch.set_num_threads(THREADS)
    if os.environ.get("FREED_MEMORY") != "returned":
        keep_freed_memory()
    for part in parts:
        row = {"ways": ways, "links": links, "preprocessing": preprocessing}[part](quick)
        record("fullgraph", {"part": part, "scale": "quick" if quick else "full"} | row, PACKAGES)
    if "ways" in parts and os.environ.get("FREED_MEMORY") is None:
        environment = os.environ | {"FREED_MEMORY": "returned"}
        command = [sys.executable, "-m", "benchmarks.fullgraph", "ways", *(["--quick"] if quick else [])]
        subprocess.run(command, env=environment, check=True)


def ways(quick: bool) -> dict[str, Any]:
    """Returns the ratios of uncut, 8 chunks and DGL by graph and model."""
    graphs = {"R-MAT 14" if quick else "R-MAT 18": rmat(14 if quick else 18)}
    with tempfile.TemporaryDirectory() as folder:
        photo = stored("photo", Path(folder))
        if photo is not None:
            graphs["Photo"] = photo
    rows = []
    for name, topology in graphs.items():
        for model in ("gcn", "sage", "gat"):
            row = {"graph": name, "model": model} | compared_ways(
                Case(topology, model, PHOTO_WIDTH if name == "Photo" else WIDTH), model
            )
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            rows.append(row)
    return {"freed_memory": os.environ.get("FREED_MEMORY", "kept"), "rows": rows}


def compared_ways(case: Case, model: str) -> dict[str, Any]:
    """Returns the seconds of an uncut pass, and ratios with it and with DGL's; "kept" is with the first layer's sums made before."""
    steps = case.steps(1, CHUNKS)
    runs: dict[str, Callable[[], object]] = {"uncut": case.uncut, "chunks": case.compared(case.cut(steps))}
    if case.model.keeps_first_sums:
        summed = case.first_sums()
        runs |= {"kept": lambda: case.uncut(summed), "chunks_kept": case.compared(case.cut(steps, kept=True))}
    theirs = dgl_pass(case, model)
    if theirs is not None:
        runs["dgl"] = theirs
    seconds = interleave(runs, 3)
    row: dict[str, Any] = {"uncut_seconds": round(float(np.median(seconds["uncut"])), 3)}
    row["chunks_over_uncut"] = round(ratio(seconds, "chunks", "uncut"), 3)
    if "kept" in runs:
        row["chunks_kept_over_uncut_kept"] = round(ratio(seconds, "chunks_kept", "kept"), 3)
    ours = [name for name in runs if name != "dgl"] if theirs is not None else []
    return row | {f"{name}_against_dgl": round(ratio(seconds, "dgl", name), 3) for name in ours}


def links(quick: bool) -> dict[str, Any]:
    """Returns ratios of modes and of recomputation over modelled links, and the time of each layer beside bytes / bandwidth."""
    case = Case(rmat(14 if quick else 18), "gcn")
    steps = case.steps(PARTS, CHUNKS)
    plain = case.compared(case.cut(steps))
    runs = {mode: case.compared(case.cut(steps, mode, linked=True)) for mode in MODES}
    runs["recompute"] = case.compared(case.cut(steps, hybrid=False, linked=True))
    plain()
    computing = dict(plain.whole.seconds)
    seconds = interleave(runs, 2)
    layers = []
    for mode in MODES:
        passes = runs[mode].whole
        for name, took in passes.seconds.items():
            transfer = passes.transfer_seconds[name]
            row = {"mode": mode, "layer": name, "seconds": round(took, 3), "transfer_seconds": round(transfer, 3)}
            row |= {"computing_seconds": round(computing[name], 3), "time_over_transfer": round(took / transfer, 3)}
            row["transfer_bound"] = transfer >= FAVOURING_TRANSFER * computing[name]
            print("  ".join(f"{key} {value}" for key, value in row.items()))
            layers.append(row)
    found = {f"{name}_over_reuse": round(ratio(seconds, name, "p2p+reuse"), 3) for name in runs if name != "p2p+reuse"}
    print(f"{found}; the paper's vanilla over p2p+reuse: 1.3 to 3.4")
    epochs = {f"{name} seconds": round(float(np.median(each)), 3) for name, each in seconds.items()}
    return {"links_gbps": [HOST_GBPS, PEER_GBPS], "layers": layers} | found | epochs


def preprocessing(quick: bool) -> dict[str, Any]:
    """Returns the share of preprocessing in 100 epochs, which are those that were run, multiplied."""
    case = Case(rmat(14 if quick else 20), "gcn")
    began = time.perf_counter()
    steps = case.steps(PARTS, CHUNKS)
    made = time.perf_counter() - began
    run, epochs = case.cut(steps), []
    for _ in range(3):
        began = time.perf_counter()
        run()
        epochs.append(time.perf_counter() - began)
    # The first epoch also makes the blocks ready that later ones find.
    total = epochs[0] + float(np.median(epochs[1:])) * (EPOCHS - 1)
    found = {"steps_seconds": round(made, 3), "epoch_seconds": [round(each, 3) for each in epochs]}
    found["share_of_100_epochs"] = round(made / (made + total), 5)
    print(found)
    return found


def dgl_pass(case: Case, model: str) -> DglPass | None:
    """Returns DGL's pass of the same model, compared; None where DGL is absent."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        return DglPass(case, model).compared()
    except ImportError:
        return None


class DglPass:
    """DGL's layers with the parameters of a case's model; a call runs them forwards and backwards on the whole graph.

    Args:
        case: the graph and our model.
        model: "gcn", "sage" or "gat".

    Raises:
        ImportError: DGL is absent.
    """

    def __init__(self, case: Case, model: str):
        import dgl
        import dgl.nn.pytorch as layers

        topology = case.topology
        dst = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
        graph: Any = dgl.graph(
            (torch.from_numpy(topology.indices.astype(np.int64)), torch.from_numpy(dst)), num_nodes=topology.num_nodes
        )
        if model != "sage":
            graph = dgl.add_self_loop(graph)
        graph.create_formats_()
        kinds: dict[str, Callable[[int, int], Any]] = {
            "gcn": lambda a, b: layers.GraphConv(a, b, norm="both"),
            "sage": lambda a, b: layers.SAGEConv(a, b, "mean"),
            "gat": lambda a, b: layers.GATConv(a, b, 1),
        }
        self.case, self.graph, self.names = case, graph, DGL_NAMES[model]
        self.layers = [kinds[model](case.x.shape[1], HIDDEN), kinds[model](HIDDEN, CLASSES)]
        for layer, ours in zip(self.layers, case.model.layers, strict=True):
            state = {self.names[name]: value.detach() for name, value in ours.named_parameters()}
            layer.load_state_dict({name: shaped_as(layer, name, value) for name, value in state.items()})
        self.x, self.seeds = torch.from_numpy(case.x), torch.from_numpy(case.train_ids)
        self.labels = torch.from_numpy(case.labels[case.train_ids]).long()

    def __call__(self) -> float:
        """Runs it, leaves the gradients in the layers, and returns the loss."""
        for layer in self.layers:
            layer.zero_grad()
        first, second = self.layers
        h = first(self.graph, self.x).flatten(1).relu()
        logits = second(self.graph, h).flatten(1)
        loss = functional.cross_entropy(logits[self.seeds], self.labels, reduction="sum")
        loss.backward()
        return loss.item()

    def compared(self) -> DglPass:
        """Returns the pass after comparing its loss and its gradients with those of our uncut pass.

        Raises:
            AssertionError: the losses differ by more than 1e-5 of themselves, or gradients by more than 1e-3 of their norm.
        """
        ours, theirs = self.case.uncut(), self()
        assert abs(ours - theirs) <= 1e-5 * abs(theirs), f"our loss is {ours}, DGL's {theirs}"
        for layer, mine in zip(self.layers, self.case.model.layers, strict=True):
            known = dict(layer.named_parameters())
            for name, parameter in mine.named_parameters():
                other = self.names[name]
                assert parameter.grad is not None
                gap = shaped_as(layer, other, parameter.grad) - known[other].grad
                # A hub's activation that rounding moves across zero changes the gradients below it by 1e-4 (R-MAT 18, GCN).
                assert gap.norm() <= 1e-3 * known[other].grad.norm(), f"gradients of {name} differ from DGL's"
        return self


def shaped_as(layer: Any, name: str, value: Tensor) -> Tensor:
    """Returns one of our parameters, or its gradient, in the shape that a DGL layer gives it; `GraphConv` holds its weight transposed."""
    wanted = dict(layer.named_parameters())[name].shape
    return value.T if name == "weight" else value.reshape(wanted)


if __name__ == "__main__":
    main(*asked_for(MEASURED, "part"))
