"""Exact scores of all nodes when the features are four times the memory: R-MAT of 10M nodes and 100M edges, rows of 384 float32 (15.4 GB).

    python -m benchmarks whole_scores [--home FOLDER] [--again] [--parts build,...]

The scores are those of GraphSAGE of 2 layers and 64 hidden columns, and their seconds are compared with those of reading the features once
in order by direct reads. Each part has a control group to itself, and the files dropped from the page cache. Quick is a hundredth.

A child process computes scores in the memory that it has, `python -m benchmarks.whole_scores HOME NODES [dgl]`: of NODES, "scored" for
those of the splits or "all". With "dgl" it compares them with DGL's forward pass over the whole graph, and then takes both in turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.fullgraph import DGL_NAMES
from benchmarks.groups import run_limited, told
from benchmarks.limited_home import LimitedHome, folder_of
from benchmarks.record import in_turn, ratio, record
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.storage.store import Store
from graphmill.kernels.types import Array
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.open import open_source

SCALES = {"full": (10_000_000, 100_000_000), "quick": (100_000, 1_000_000)}
WIDTH, ROUNDS, THREADS = 384, 5, 2
BUILDING_BYTES = 8 << 30
RECIPE = """
name = "scores"
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = 384
classes = 16
undirected = false
"""


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None, again: bool = False) -> None:
    """Builds, reads, computes scores, prints and records."""
    scale = "quick" if quick else "full"
    nodes, edges = SCALES[scale]
    with folder_of(home, "graphmill-scores-") as folder:
        (folder / "scores.toml").write_text(RECIPE.format(nodes=nodes, edges=edges))
        limited = LimitedHome(folder, BUILDING_BYTES, again)
        if "build" in (parts or ("build",)) and limited.command("build", "build", "scores.toml")["ended"] != "well":
            sys.exit("the stages were not built")
        rows = limited.artifact("features").path / "rows.npy"
        # A process with torch takes some 250 MB before it holds a row.
        limit = max(512 << 20, nodes * WIDTH * 4 // 4)
        read = run_limited([sys.executable, "-m", "benchmarks.whole_wait", str(rows)], Path.cwd(), limit, 600)
        found = scores(folder / "home", "all", limit)
    seconds, once = found["scores_seconds"], float(read["said"].split()[-1])
    print(f"{seconds[0]:.1f} s of scores, {once:.2f} s of reading the features: {seconds[0] / once:.2f} times")
    row = {"scale": scale, "nodes": nodes, "edges": edges, "limit_bytes": limit, "read_seconds": once}
    record("whole_scores", row | found, ("torch", "numpy"))


def scores(home: Path, nodes: str, limit_bytes: int, *more: str) -> dict[str, Any]:
    """Runs the child in a control group; returns what it says, and what the group says."""
    command = [sys.executable, "-m", "benchmarks.whole_scores", str(home), nodes, *more]
    row = run_limited(command, Path.cwd(), limit_bytes, 3600)
    print(told(f"scores of {nodes} nodes", row), flush=True)
    if row["ended"] != "well":
        sys.exit(row["said"][-2000:])
    return json.loads(row.pop("said").splitlines()[-1]) | row


def child(home: Path, nodes: str, rival: bool) -> dict[str, Any]:
    """Computes scores in the memory that there is; returns seconds of the wall and of the processor, by contestant."""
    torch.set_num_threads(THREADS)
    keep_freed_memory()  # as every training does; for the rival, too
    artifacts = {each.stage: each for each in Store(home).artifacts() if each.part_of is None}
    graph, features = open_graph(artifacts["graph"]), open_features(artifacts["features"])
    model = build_model(TrainConfig(layers=2, hidden=64), features.width, graph.num_classes, seed=0)
    assert isinstance(model, LayeredModel)
    source = open_source(features, "memory" if rival else "auto", THREADS)
    bounds = Bounds(workspace_bytes=4 << 30 if rival else 512 << 20, threads=THREADS, folder=home / "spill")
    inference = Inference(model, graph.topology, source, bounds)
    ids = None if nodes == "all" else np.concatenate(graph.splits)
    if not rival:
        began = time.perf_counter(), time.process_time()
        inference.exact(ids)
        return {
            "scores_seconds": [round(time.perf_counter() - began[0], 3)],
            "processor_seconds": [round(time.process_time() - began[1], 3)],
        }
    theirs = dgl_forward(graph, model, np.asarray(source.rows))
    expected, found = theirs(), inference.exact(ids)
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm()), "DGL computes other logits"
    taken = in_turn({"graphmill": lambda: timed(lambda: inference.exact(ids)), "dgl": lambda: timed(theirs)}, ROUNDS)
    seconds = {name: [wall for wall, _ in each] for name, each in taken.items()}
    processor = {name: [used for _, used in each] for name, each in taken.items()}
    times = {"times_as_fast": round(ratio(seconds, "dgl", "graphmill"), 3)}
    return {"forward_seconds": seconds, "forward_processor_seconds": processor} | times


def timed(run: Callable[[], Tensor]) -> tuple[float, float]:
    """Runs a pass; returns seconds of the wall and of the processor."""
    wall, used = time.perf_counter(), time.process_time()
    run()
    return round(time.perf_counter() - wall, 3), round(time.process_time() - used, 3)


def dgl_forward(graph: Graph, model: LayeredModel, rows: Array) -> Callable[[], Tensor]:
    """Returns DGL's forward pass of a GraphSAGE model over the whole graph, with its fastest ids."""
    import dgl
    import dgl.nn.pytorch as layers

    topology, names = graph.topology, DGL_NAMES["sage"]
    indptr, indices = (
        torch.from_numpy(np.array(each).astype(np.int32)) for each in (topology.indptr, topology.indices)
    )
    whole: Any = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int32))), num_nodes=topology.num_nodes)
    convolutions = []
    for ours in model.layers:
        out_width, in_width = ours.own.weight.shape
        layer = layers.SAGEConv(in_width, out_width, "mean")
        layer.load_state_dict({names[name]: value.detach() for name, value in ours.named_parameters()})
        convolutions.append(layer)
    x = torch.from_numpy(rows)

    @torch.no_grad()
    def forward() -> Tensor:
        return convolutions[1](whole, convolutions[0](whole, x).relu())

    return forward


if __name__ == "__main__":
    print(json.dumps(child(Path(sys.argv[1]), sys.argv[2], "dgl" in sys.argv[3:])))
