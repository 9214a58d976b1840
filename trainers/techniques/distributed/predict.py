"""Predictions by ranks, each with the rows of its own parts: like trainers/inference/predict.py, but no process reads all rows.

Each rank computes its nodes (inference.py) and writes the predictions of each of its parts to a file of its own, in the order of the nodes.
The launcher then merges the files in the order of all nodes, a range at a time, so nothing is held whole here either. The rows of layers
that each rank keeps (trainers/inference/kept.py) lie beside these files until the prediction has ended, so one that was killed goes on.

A rank is `python -m graphmill.trainers.techniques.distributed.predict`, with its order on standard input. The rounding of sums
depends on the parts and not on the ranks.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.building.child import end_with_parent
from graphmill.assets.building.stage import Silent
from graphmill.assets.graph.read import open_graph
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.files.frames import write_frames
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.types import Array
from graphmill.trainers.devices.torch_threads import on_threads, torch_threads
from graphmill.trainers.inference.answers.kinds import ROW_GROUP, Columns, open_answers
from graphmill.trainers.inference.answers.nodes import NodeFacts, asked_nodes
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.predict import open_log, whole_file
from graphmill.trainers.inference.trained import load_model
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.build import send_model
from graphmill.trainers.ranks.group import PeerError, Ranks, joined
from graphmill.trainers.ranks.launch import EXIT_PEER, launcher_id, run_ranks
from graphmill.trainers.ranks.leave import leave
from graphmill.trainers.recipe.config import TrainTable, find_recipe
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.recipe.order import Order, plain_order
from graphmill.trainers.techniques.distributed.inference import part_nodes
from graphmill.trainers.techniques.distributed.open_parts import open_data
from graphmill.trainers.techniques.distributed.sharded import ShardedSource

if TYPE_CHECKING:
    import polars

MERGED_NODES = 65_536
"""Nodes that the merge holds at once."""


def predict_by_ranks(
    store: Store,
    pipeline: Pipeline,
    table: TrainTable,
    inputs: Mapping[str, Artifact],
    given: Mapping[str, Any],
    out: Path,
    ranks: int,
) -> int:
    """Writes the Parquet file of the nodes that are asked for and returns their number.

    Args:
        inputs: role -> artifact, for those that decide the weights.
        given: seed, workspace, threads (a number, or "auto" for the cores of the machine, which the ranks share), the version of the
            model, `columns` (the fields of `Columns`), and the `types` that are predicted.

    Raises:
        InputError: the ranks cannot share the parts, an artifact is missing, or a rank failed.
    """
    # Absolute, since ranks start in another folder.
    folder = out.absolute().with_name(f".{out.name}.parts")
    graph, nodes = open_graph(inputs["graph"]), inputs["graph"].file("nodes.parquet")
    asked = asked_nodes(graph, nodes, given["types"], None)
    answers = open_answers(graph, Columns(**given["columns"]))  # refuses what no rank could answer
    order = Order(pipeline=pipeline, table=table.name, home=store.home).plain()
    threads = max(1, usable_cores() // ranks) if given["threads"] == "auto" else given["threads"]
    folder.mkdir(exist_ok=True)
    try:
        run_ranks(
            [sys.executable, "-m", "graphmill.trainers.techniques.distributed.predict"],
            {**order, **given, "threads": threads, "folder": str(folder)},
            ranks,
        )
        part_of = open_partitions(inputs["partitions"]).part_of
        facts = NodeFacts(nodes, graph, asked, answers)
        with whole_file(out) as part:
            write_frames(part, _merged(folder, facts, part_of), ROW_GROUP)
    except BaseException:
        # What ranks keep stays: the same command goes on from it.
        for piece in folder.glob("*.parquet"):
            piece.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return asked.count


def main() -> int:
    """Predicts the nodes of this rank, and returns the exit code."""
    end_with_parent(launcher_id())
    order = json.load(sys.stdin)
    try:
        pipeline = plain_order(order).pipeline
        _, semantic = find_recipe(pipeline, order["table"], order["seed"])
        with joined(semantic.train.own_settings.timeout) as ranks, torch_threads(order["threads"]):
            _predict(order, pipeline, ranks)
    except PeerError as error:
        print(f"predict: {error}", file=sys.stderr, flush=True)
        os._exit(EXIT_PEER)
    except Exception as error:
        leave(error)
    return 0


def _predict(order: Mapping[str, Any], pipeline: Pipeline, ranks: Ranks) -> None:
    """Writes the file of each part of this rank."""

    store = Store(order["home"])
    table, semantic = find_recipe(pipeline, order["table"], order["seed"])
    found = find_table_inputs(pipeline, table, store, {}, whole=False)
    graph = open_graph(found.inputs["graph"])
    drawing = open_drawing(semantic.sampling, found.inputs)
    run = Run(
        graph=graph,
        inputs=found.inputs,
        reads=found.reads,
        semantic=semantic,
        execution=table.execution,
        drawing=drawing,
        ranks=ranks,
    )
    open_data(run)
    features, edges = run.features, None if run.edge_rows is None else run.edge_rows.table
    source, device = features.source, features.device
    model = load_model(store.open("model", order["model"]), semantic, graph, features.stored, edges)
    bounds = Bounds(
        workspace_bytes=parse_size(order["workspace"]), threads=order["threads"], folder=store.home / "spill",
        progress=Silent(), device=device, dtype=semantic.train.dtype, drawing=drawing,
        edge_rows=run.edge_rows,
    )  # fmt: skip
    assert isinstance(source, ShardedSource)
    nodes = part_nodes(graph.topology, source)(bounds)
    answers, model = open_answers(graph, Columns(**order["columns"])), send_model(model, device)
    path = Path(order["folder"]) / f"{ranks.rank}-of-{ranks.world}.rows"
    bounds = replace(bounds, kept=open_log(path, model, order["model"], bounds))
    ranges = Inference(model, graph.topology, source, bounds, nodes).ranges()
    # Empty ranges only take part in the exchange of the others.
    own = (each for each in ranges if each.high > each.low)
    for part, of_part in groupby(own, key=lambda each: nodes.part_of(each.low)):
        frames = (frame for each in of_part for _, frame in answers.frames(each))
        write_frames(_piece(Path(order["folder"]), part), on_threads(frames, order["threads"]), ROW_GROUP)


def _piece(folder: Path, part: int) -> Path:
    return folder / f"{part:04d}.parquet"


def _merged(folder: Path, facts: NodeFacts, part_of: Array) -> Iterator[polars.DataFrame]:
    """Yields the predictions of all nodes in their order, range by range."""
    import polars

    done = np.zeros(int(part_of.max(initial=0)) + 1, np.int64)
    for low in range(0, len(part_of), MERGED_NODES):
        parts = part_of[low : low + MERGED_NODES]
        counts, frames, places = np.bincount(parts, minlength=len(done)), [], []
        for part in np.flatnonzero(counts).tolist():
            piece = polars.scan_parquet(_piece(folder, part), glob=False)
            frames.append(piece.slice(int(done[part]), int(counts[part])).collect())
            places.append(np.flatnonzero(parts == part))
        done += counts
        order = np.argsort(np.concatenate(places), kind="stable")
        yield facts.beside(low, polars.concat(frames)[order])


if __name__ == "__main__":
    sys.exit(main())
