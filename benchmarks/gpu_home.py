"""The artifacts that trainings on a GPU read, built where neither Dagster nor DGL nor a library of tables is installed.

A rented GPU machine has torch and CuPy, and `python -m graphmill.trainers` needs no more. The stages between graph and training run there
by `materialize`, one after the other in this process. The graph and its rows are generated in memory and published under a version of their
own: the stage [graph] would sort 400 million edges on disk, and writes a table of the nodes by Polars. A GPU makes the graph itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import Size, make_rows
from benchmarks.gpu_graph import make_topology
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Summary
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.graph.generate import rmat_labels
from graphmill.kernels.rows.pages import PAGE_BYTES, page_digests
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.storage.tiny_artifacts import numbers_of

SEED, SCORED = 1, 1000
"""Seed of the graph; nodes of the validation and of the test split."""
TABLES: dict[str, dict[str, Any]] = {
    "hotness": {"policy": "presample"},
    "samples": {},
    "cache_plan": {},
    "packed": {},
    "partitions": {"parts": 1, "method": "range"},
    "chunks": {"chunks_per_part": 4},
}
"""Tables of the stages between graph and training."""


def toml_text(tables: Mapping[str, Any], trains: Sequence[Mapping[str, Any]]) -> str:
    """Returns a pipeline file: keys, tables, and `[[train]]` tables; numbers, texts and lists are written as JSON writes them."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in tables.items() if not isinstance(value, Mapping)]
    lines = [
        *plain,
        *(line for name, table in tables.items() if isinstance(table, Mapping) for line in _table(f"[{name}]", table)),
    ]
    for train in trains:
        lines += _table("[[train]]", train)
    return "\n".join(lines) + "\n"


def _table(head: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a table; a sub-table is written with dotted keys."""
    yield head
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from (f"{json.dumps(key)}.{own} = {json.dumps(each)}" for own, each in value.items())
        else:
            yield f"{key} = {json.dumps(value)}"


@dataclass(frozen=True)
class Prepared:
    """A pipeline file with the artifacts that its trainings read.

    Attributes:
        path: the file.
        versions: stage -> version of graph and features, which the file does not name.
    """

    path: Path
    versions: Mapping[str, str]


def publish_graph(store: Store, size: Size, num_classes: int, device: Device) -> dict[str, Artifact]:
    """Publishes an R-MAT graph and float16 rows of its nodes; returns the artifacts by stage.

    Args:
        size: numbers of nodes, of edges, and of training nodes.
        device: where the graph is made.
    """
    config = {"nodes": size.nodes, "edges": size.edges, "train": size.seeds, "classes": num_classes, "seed": SEED}
    topology, ids = (
        make_topology(size.nodes, size.edges, device),
        np.random.default_rng(SEED).permutation(size.nodes).astype(np.int32),
    )
    cuts = np.split(ids[: size.seeds + 2 * SCORED], [size.seeds, size.seeds + SCORED])
    arrays: dict[str, Array] = {
        name: getattr(topology, name) for name in ("indptr", "indices", "in_degree", "out_degree")
    }
    arrays["labels"] = rmat_labels(size.nodes, num_classes, SEED, threads=torch.get_num_threads())
    arrays |= {name: np.sort(part) for name, part in zip(("train_ids", "valid_ids", "test_ids"), cuts, strict=True)}
    counts = {"num_nodes": size.nodes, "num_edges": topology.num_edges, "class_names": [*map(str, range(num_classes))]}
    graph = _published(store, "graph", config, arrays, counts)
    rows = make_rows(size.nodes)
    pages = np.zeros(-(-rows.nbytes // PAGE_BYTES) * PAGE_BYTES, np.uint8)
    pages[: rows.nbytes] = rows.reshape(-1).view(np.uint8)
    arrays = {"rows": rows, "page_digests": page_digests(pages)}
    return {"graph": graph, "features": _published(store, "features", config, arrays, {"num_rows": size.nodes})}


def _published(
    store: Store, stage: str, config: dict[str, Any], arrays: dict[str, Array], numbers: dict[str, Any]
) -> Artifact:
    version = version_of(stage, 0, config, {}, {})
    with store.writer(stage, version) as writer:
        for name, array in arrays.items():
            writer.save(name, array)
        return writer.publish(config, {}, Summary(numbers=numbers_of(stage, arrays) | numbers), {}, code_version=0)


def prepare(store: Store, path: Path, graph: Mapping[str, Artifact]) -> Prepared:
    """Builds what the trainings of a pipeline file read, in the order of its steps.

    Args:
        graph: stage -> artifact of graph and features.

    Raises:
        InputError: the file has a mistake, or a stage cannot be built.
    """
    pipeline: Pipeline = load_pipeline(path, TrainTable)
    made = dict(graph)
    for step in preprocessing_steps(pipeline, store.home):
        if step.name in made:
            continue
        inputs = {role: made[source.name] for role, source in step.inputs.items()}
        made[step.name] = materialize(store, step.recipe, step.configs[0], _execution(step.recipe), inputs)
    return Prepared(path, {name: artifact.version for name, artifact in graph.items()})


def _execution(stage: Any) -> Any:
    """Returns the Execution config of a stage, with all cores."""
    names = {field.name for field in fields(stage.Execution)}
    return stage.Execution(**({"threads": torch.get_num_threads()} if "threads" in names else {}))
