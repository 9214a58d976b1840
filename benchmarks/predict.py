"""Peak memory of `graphmill predict` on an R-MAT graph, measured from outside, against its workspace.

A model is trained for one small epoch; then a fresh process predicts every node while its resident set is read from /proc. The peak counts
everything: interpreter, torch, mapped pages. The rows of the file are compared with inference in memory on a sample of nodes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.record import record
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.store import Store
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Array, Stream, Topology
from graphmill.trainers.recipe.config import TrainTable
from tests.graphs import GraphArtifacts, build_graph

QUICK = {"nodes": 200_000, "edges": 1_600_000, "workspace": "128MiB"}
FULL = {"nodes": 2_000_000, "edges": 16_000_000, "workspace": "1GiB"}
RECIPE = """
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = 128
classes = 16
train_ratio = 0.001
valid_ratio = 0.001

[sampling]
fanouts = [5, 5, 5]
batch_size = 1024

[[train]]
name = "{model}"
model = "{model}"
layers = 3
hidden = 128
epochs = 1
eval = "sampled"
"""
LARGEST_ERROR = 1e-5
"""Of a probability."""

BASE = "import graphmill.trainers.inference.predict, polars.io.plugins"
CHILD = """
import sys
from pathlib import Path
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.inference.predict import predict_table
recipe, home, name, out, workspace = sys.argv[1:]
predict_table(Store(Path(home)), load_pipeline(recipe, TrainTable), name, Path(out), workspace=workspace)
"""


def main(quick: bool) -> None:
    from graphmill.trainers.run import train_table

    size, rows = QUICK if quick else FULL, []
    with tempfile.TemporaryDirectory() as folder:
        for model in ("sage", "gat"):
            home, recipe = Path(folder) / "home", Path(folder) / f"{model}.toml"
            recipe.write_text(RECIPE.format(**size, model=model))
            pipeline, store = load_pipeline(recipe, TrainTable), Store(home)
            graph = build_graph(store, pipeline.graph)
            assert pipeline.sampling is not None
            train_table(store, graph.inputs, pipeline.train[0], pipeline.sampling, 0)
            out = Path(folder) / f"{model}.parquet"
            row = measured(
                [sys.executable, "-c", CHILD, str(recipe), str(home), model, str(out), str(size["workspace"])]
            )
            rows.append(
                {"model": model, "file_bytes": out.stat().st_size, "largest_error": check(store, pipeline, graph, out)}
                | row
            )
            out.unlink()
    base = int(measured([sys.executable, "-c", BASE])["peak_bytes"])
    workspace = parse_size(str(size["workspace"]))
    for row in rows:
        row["peak_over_base_ratio"] = round((row["peak_bytes"] - base) / workspace, 3)
        print(f"{row['model']}: {row['seconds']:.0f} s, peak {row['peak_bytes'] / 2**20:.0f} MiB resident, of which the imports "
              f"{base / 2**20:.0f}; workspace {workspace / 2**20:.0f} MiB; largest difference {row['largest_error']:.1e}")  # fmt: skip
    record(
        "predict",
        {"scale": "quick" if quick else "full", "graph": size, "base_bytes": base, "runs": rows},
        ("torch", "numpy", "polars"),
    )


def measured(command: list[str]) -> dict[str, float]:
    """Runs the command and reads its peak resident set from outside until it is gone."""
    started, peak = time.perf_counter(), 0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                break
            found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
            peak = max(peak, int(found[0].split()[1]) * 1024 if found else 0)
            time.sleep(0.02)
    assert process.returncode == 0, f"{command[:3]} ended with {process.returncode}"
    return {"seconds": round(time.perf_counter() - started, 1), "peak_bytes": peak}


def check(store: Store, pipeline: object, graph: GraphArtifacts, out: Path) -> float:
    """Compares the probabilities in the file with those of whole neighbourhoods of a few nodes.

    Returns:
        The largest difference.

    Raises:
        AssertionError: it is `LARGEST_ERROR` or more, or the file has other nodes.
    """
    import polars
    import torch

    from graphmill.assets.building.materialize import stage_version
    from graphmill.assets.sampling.config import Neighbours
    from graphmill.assets.sampling.drawing import Drawing
    from graphmill.trainers.inference.bounds import Bounds
    from graphmill.trainers.inference.evaluation import infer_sampled
    from graphmill.trainers.inference.exact import Inference
    from graphmill.trainers.inference.trained import load_model
    from graphmill.trainers.rows.source import MappedSource
    from graphmill.trainers.run import model_configs
    from graphmill.trainers.training.stage import ModelStage

    opened = graph.open()
    (config,) = model_configs(pipeline.train[0], pipeline.sampling, pipeline.seed)  # pyright: ignore
    artifact = store.open("model", stage_version(ModelStage(), config, graph.inputs))  # pyright: ignore
    model = load_model(artifact, config, opened, opened.features)
    ids = compared_nodes(opened.topology)
    whole = Drawing(neighbours=Neighbours(fanouts=(-1,) * 3))
    bounds = Bounds(workspace_bytes=2**30, threads=2, drawing=whole)
    plan = EpochPlan(np.arange(len(ids)), 1, seed=0, stream=Stream.EVAL)
    logits = infer_sampled(Inference(model, opened.topology, MappedSource(opened.features), bounds), ids, plan)
    table = polars.scan_parquet(out).select("node_id", "probability").collect()
    assert (table["node_id"].to_numpy() == np.arange(opened.topology.num_nodes)).all()
    wanted = logits.softmax(1).max(1).values
    error = float((torch.from_numpy(table["probability"].to_numpy()[ids]) - wanted).abs().max())
    assert error < LARGEST_ERROR, f"probabilities in the file differ from those of whole neighbourhoods by {error:.1e}"
    return error


def compared_nodes(topology: Topology) -> Array:
    """Returns the ids of four nodes of few neighbours: three whole hops around a hub would be the whole graph."""
    return np.flatnonzero((topology.in_degree > 0) & (topology.in_degree < 3))[:4]
