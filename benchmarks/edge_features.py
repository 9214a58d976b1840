"""One training step with rows of edges against the same step without them: what `edge_features = true` costs each model.

Both steps have the same batches, seeds, fan-outs, threads and rows of nodes: blocks are drawn, rows gathered from memory, and the model
takes a forward pass, a backward pass and an update, one after the other. The step with rows of edges also draws the ids of edges, finds
the different ones, gathers their rows and reads them in every layer. Both steps of a model take turns in drawn order; told are the ratio
of the medians and the milliseconds of each phase. First the last layer of each model with rows of edges must equal the documented formula
over single edges in float64 (tests/trainers/models/layers/edge_formulas.py).

Edges have four relations, which only `rgcn` and `rgat` read, and both directions of an edge share a row.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.record import in_turn, record
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Stream, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.edge_rows import place_edges
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.graphs import build_graph
from tests.trainers.models.layers.edge_formulas import by_hand

QUICK = {"nodes": 200_000, "edges": 1_650_000, "features": 128, "classes": 16, "train_ratio": 0.2}
FULL = {"nodes": 2_000_000, "edges": 16_500_000, "features": 128, "classes": 16, "train_ratio": 0.1}
FANOUTS, BATCH_SIZE, HIDDEN, COLUMNS, RELATIONS, THREADS = (15, 10, 5), 1024, 128, 16, 4, 2
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {},
    "sage": {},
    "gin": {},
    "gat": {"heads": 4},
    "rgcn": {},
    "rgat": {"heads": 4},
}
RELATIONAL = ("rgcn", "rgat")
PHASES = ("sample", "gather", "forward", "backward", "optimise")
TARGET = 1.3

Seconds = dict[str, float]


def main(quick: bool) -> None:
    """Compares, times, prints and records."""
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as home:
        graph = build_graph(Store(home), config_class("rmat")(seed=1, valid_ratio=0.05, **size), threads=THREADS).open()
        topology = with_edges(graph.topology)
        table = np.array(graph.features.open())
        labels, train_ids = np.array(graph.labels), np.array(graph.train_ids)
    assert topology.edge_ids is not None
    num_edges = int(topology.edge_ids.max()) + 1
    edge_table = np.random.default_rng(3).standard_normal((num_edges, COLUMNS), dtype=np.float32)
    data = Data(topology, labels, table, edge_table, EpochPlan(train_ids, BATCH_SIZE, seed=0))
    print(
        f"R-MAT {topology.num_nodes:,} nodes, {len(topology.indices):,} edges with {num_edges:,} rows of {COLUMNS} columns, "
        f"{THREADS} threads"
    )
    rows = [measure(data, model, rounds=5 if quick else 11) for model in MODELS]
    sizes = {"batch_size": BATCH_SIZE, "fanouts": FANOUTS, "hidden": HIDDEN, "columns": COLUMNS, "relations": RELATIONS}
    record("edge_features", {"scale": "quick" if quick else "full", "graph": size, **sizes, "rows": rows})
    missed = {row["model"]: row["ratio"] for row in rows if row["ratio"] > TARGET}
    assert not missed, f"a step with rows of edges takes more than {TARGET} times as long: {missed}"


@dataclass(frozen=True)
class Data:
    """The graph, with rows of nodes and of edges, and the seeds of the batches."""

    topology: Topology
    labels: Array
    table: Array
    edge_table: Array
    plan: EpochPlan


def with_edges(topology: Topology) -> Topology:
    """The graph with an id for both directions of each edge, and relations by which every row is sorted."""
    degrees = np.diff(topology.indptr)
    dst = np.repeat(np.arange(topology.num_nodes), degrees)
    ends = np.minimum(dst, topology.indices) * topology.num_nodes + np.maximum(dst, topology.indices)
    edge_ids = np.unique(ends, return_inverse=True)[1]
    # Ids in the order in which edges were given to a source are in no order of the graph's.
    edge_ids = np.random.default_rng(2).permutation(int(edge_ids.max()) + 1)[edge_ids]
    places = np.arange(len(dst)) - topology.indptr[:-1][dst]
    kinds = (places * RELATIONS // degrees[dst]).astype(np.uint8)
    return replace(topology, edge_ids=edge_ids, edge_types=kinds)


def measure(data: Data, model: str, rounds: int) -> dict[str, Any]:
    """Returns the ratio of a model's steps, and the median milliseconds of each phase."""
    error = check(data, model)
    steps = {name: Steps(data, model, name == "with") for name in ("without", "with")}
    turns = in_turn({name: each.run for name, each in steps.items()}, rounds)
    totals = {name: statistics.median(sum(turn.values()) for turn in each) for name, each in turns.items()}
    phases = {
        name: {phase: round(1000 * statistics.median(turn[phase] for turn in each), 2) for phase in PHASES}
        for name, each in turns.items()
    }
    row = {
        "model": model,
        "ratio": round(totals["with"] / totals["without"], 3),
        "step_milliseconds": {name: round(1000 * total, 2) for name, total in totals.items()},
        "milliseconds": phases,
        "edges_and_rows_a_step": steps["with"].sizes(),
        "error": error,
    }
    edges, rows = steps["with"].sizes()
    print(
        f"{model}: {row['ratio']:.2f} times; a step has {edges:,} edges and {rows:,} rows of edges; error {error:.1e}"
    )
    for name, each in phases.items():
        shown = "".join(f"{phase:>10} {value:7.2f}" for phase, value in each.items())
        print(f"  {name:8}{shown}   step {row['step_milliseconds'][name]:7.2f} ms")
    return row


def config_of(model: str, edges: bool, layers: int = len(FANOUTS)) -> TrainConfig:
    """The architecture of a model."""
    more = MODELS[model]
    return TrainConfig(
        model=model, layers=layers, hidden=HIDDEN, dropout=0.5, edge_features=edges, threads=THREADS, **more
    )


def check(data: Data, model: str) -> float:
    """Returns the norm-wise difference of the last layer of a model and the formula, of outputs and gradients of inputs, in float64.

    Raises:
        AssertionError: they differ by more than 1e-10.
    """
    config = config_of(model, edges=True, layers=1)
    built = build_model(config, HIDDEN, 16, 0, RELATIONS, None, COLUMNS).double()
    assert isinstance(built, LayeredModel)
    layer: Any = built.layers[0]
    (block,) = Sampler(data.topology, FANOUTS[:1], seed=0).sample(
        BatchKey(Stream.PROBE, 0, 0), data.plan.train_ids[:200], transpose="all", edge_ids=True
    )
    attach_weights((block,), data.topology, layer.edge_weight)
    table = torch.from_numpy(data.edge_table).double()
    block = transpose(block)
    block.edge_rows = table[torch.from_numpy(place_edges((block,)))]
    x = torch.randn(block.num_src, HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    name = "mean" if model == "sage" else model
    masks = StepRandom(0, training=False).layer(1, block.dst_ids)
    found = []
    for function in (
        lambda h: layer.update(layer.aggregate(block, h, masks), h[: block.num_dst], masks),
        by_hand(name, layer, block, table),
    ):
        rows = x.clone().requires_grad_()
        out = function(rows)
        out.square().sum().backward()
        assert rows.grad is not None
        found.append(torch.cat([out.detach().flatten(), rows.grad.flatten()]))
    error = float((found[0] - found[1]).norm() / found[1].norm())
    assert error < 1e-10, f"{model} differs from its formula by {error}"
    return error


class Steps:
    """A model and its steps, with rows of edges or without."""

    def __init__(self, data: Data, model: str, edges: bool):
        self.data, self.edges, width = data, edges, data.table.shape[1]
        # Relations are drawn with the edges if there are some: others do without.
        topology = data.topology if model in RELATIONAL else replace(data.topology, edge_types=None)
        self.sampler = Sampler(topology, FANOUTS, seed=0, threads=THREADS)
        built = build_model(config_of(model, edges), width, 16, 0, RELATIONS, None, COLUMNS if edges else 0)
        assert isinstance(built, LayeredModel)
        self.model = built
        self.optimiser = torch.optim.Adam(built.parameters(), lr=0.01)
        self.planned, self.seconds = data.plan.batches(0), Seconds()
        self.counts: dict[str, int] = defaultdict(int)

    def run(self) -> Seconds:
        """Makes a step; returns the seconds of its phases."""
        item = next(self.planned)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        with self.phase("sample"):
            more = {"edge_ids": True} if self.edges else {}
            blocks = self.sampler.sample(item.key, item.seeds, transpose=self.model.transpose, **more)
            attach_weights(blocks, self.data.topology, self.model.edge_weight)
            ids = place_edges(blocks) if self.edges else None
        with self.phase("gather"):
            x = self.rows_of(self.data.table, blocks[0].src_ids)
            rows = None if ids is None else self.rows_of(self.data.edge_table, ids)
            for block in blocks:
                block.edge_rows = rows
        with self.phase("forward"):
            logits = self.model(blocks, x, StepRandom(0, 0, item.position))
            loss = cross_entropy(logits, torch.from_numpy(self.data.labels[item.seeds]).long())
        with self.phase("backward"):
            loss.backward()
        with self.phase("optimise"):
            self.optimiser.step()
            self.optimiser.zero_grad()
        for name, count in (
            ("steps", 1),
            ("edges", sum(len(each.indices) for each in blocks)),
            ("rows", len(ids) if ids is not None else 0),
        ):
            self.counts[name] += count
        return self.seconds

    def rows_of(self, table: Array, ids: Array) -> torch.Tensor:
        """The rows of a table in memory."""
        out = torch.empty((len(ids), table.shape[1]))
        gather(table, ids, out.numpy(), threads=THREADS)
        return out

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the seconds of a phase."""
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began

    def sizes(self) -> tuple[int, int]:
        """Edges and rows of edges of a step."""
        return self.counts["edges"] // self.counts["steps"], self.counts["rows"] // self.counts["steps"]
