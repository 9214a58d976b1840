"""Writes a trained model's predictions to a Parquet file: of the nodes whose type has labels, and on request of others.

    node_id       id of the node in the raw data: nodes.parquet's original_id
    node_type     name of its type, in a graph whose nodes have types; ids are those of a type then
    class         name of the most probable class, or of the one that thresholds give; a number if the labels are numbers, null if the
                  thresholds give none
    probability   f32, of that class, or the largest if none is given
    label         name of the class that the node has; null if it is not known
    split         "train", "valid" or "test"; null if the node is in none
    class_1, probability_1, ...  the most probable classes, the first the most probable one, on request
    probabilities array of f32, of all classes in their order, on request
    embedding     array of f32, the input of the last layer, or of the linear head if there is one; the logits if a user's module exposes
                  no layers

Of several labels, `labels` is the list of those whose probability reaches the threshold, one half unless it is said, in place of class and
probability, and `label` the list of those that the node has. Of numbers, `prediction` and `label` are f32 in the unit of the data; of
several targets each has columns of its own, prediction_NAME and label_NAME.

Of links, trainers/inference/link_answers.py says what the columns are.

Inference is exact and layer by layer (trainers/inference/exact.py); the table is written in row groups as the last layer's ranges come out,
so neither it nor any layer is ever held whole. Memory: the workspace of exact inference, plus a few row groups that Polars encodes. A
prediction that is killed leaves the rows of its layers beside the table (trainers/inference/kept.py), and the same command goes on from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.building.stage import Progress, Silent
from graphmill.assets.features.read import node_types, open_features, require_nodes
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.files.frames import write_frames
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.filesystem import full_disk, full_errno
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.devices.logical import open_device
from graphmill.trainers.devices.torch_threads import on_threads, torch_threads
from graphmill.trainers.inference.answers import (
    ROW_GROUP,
    Columns,
    NodeFacts,
    asked_nodes,
    labelled_types,
    open_answers,
)
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.evaluation import log_key
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.kept import RowLog
from graphmill.trainers.inference.link_answers import LinkAnswers, LinkRequest
from graphmill.trainers.models.build import build_model, require_weights, send_model
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig, TrainTable, find_table, model_configs
from graphmill.trainers.recipe.inputs import find_model_inputs
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.rows.open import open_source

ByRanks = Callable[[Store, Pipeline, TrainTable, Mapping[str, Artifact], Mapping[str, Any], Path], int]
"""A function that predicts by processes, each with the rows of its parts: trainers/techniques/distributed/predict.py."""

PLAIN = Columns()


@contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """Yields a path beside `out` to write to; the file gets its name when the block ends, and is removed if the block fails.

    Raises:
        InputError: the disk is full.
    """
    part = out.with_name(f".{out.name}.part")
    try:
        yield part
        part.replace(out)
    except Exception as error:
        code = full_errno(error)
        if code is not None and not isinstance(error, InputError):
            raise full_disk(code, out) from error
        raise
    finally:
        part.unlink(missing_ok=True)


def predict_table(
    store: Store,
    pipeline: Pipeline,
    name: str,
    out: Path,
    *,
    seed: int | None = None,
    workspace: str = "1GiB",
    threads: int | None = None,
    columns: Columns = PLAIN,
    types: Sequence[str] = (),
    nodes: Path | None = None,
    pairs: Path | None = None,
    relations: Sequence[str] = (),
    by_ranks: ByRanks | None = None,
    progress: Progress | None = None,
) -> tuple[Artifact, int]:
    """Predicts with the trained model of a `[[train]]` table; returns the model, and the number of rows written.

    Args:
        store: the store of the graph and the model.
        out: the Parquet file; replaced if it exists.
        seed: seed of the table's model; None for the first.
        workspace: a size; see trainers/inference/exact.py.
        threads: number of threads of kernels and matrix products; None for the table's.
        columns: the columns that are asked for besides the usual ones.
        types: names of node types, "all" for all of them; none for those that have labels.
        nodes: a file that names nodes of these types, which alone are predicted; None for all of them.
        pairs, relations: of links, as in `graphmill.trainers.inference.link_answers.LinkRequest`; `columns.top` is its `top`.
        by_ranks: function that predicts all nodes with several processes; None reads the table in this one.
        progress: shows the finished nodes.

    Raises:
        InputError: the table, seed, folder, graph or model does not exist, the model or its code does not fit the graph, a named node does
            not exist, or the disk is full.
    """
    pipeline.require_one_split()
    table, semantic = find_recipe(pipeline, name, seed)
    _require_place(out)
    _require_ranks(by_ranks, table, nodes)
    workspace_bytes = parse_size(workspace)
    inputs = find_model_inputs(pipeline, table, store, {})
    read = [(each.stage, each.version) for each in inputs.values()]
    with store.lease(*read, (ModelRecipe.name, stage_version(ModelRecipe(), semantic, inputs))):
        model = find_model(store, pipeline, name, semantic, inputs)
        if by_ranks is not None:
            given = {"seed": semantic.seed, "workspace": workspace, "threads": threads or semantic.train.threads}
            given |= {"model": model.version, "columns": asdict(columns), "types": [*types]}
            return model, by_ranks(store, pipeline, table, inputs, given, out)
        threads = threads or semantic.train.num_threads
        bounds = Bounds(workspace_bytes=workspace_bytes, threads=threads, progress=progress or Silent())
        request = LinkRequest(top=columns.top, pairs=pairs, relations=relations, nodes=nodes)
        if open_graph(inputs["graph"]).links is not None and not request.of_nodes:
            return model, predict_pairs(store, inputs, model, semantic, bounds, out, request)
        if pairs is not None or relations:
            problem = "--pairs and --relation are for models of [task] kind = 'links'"
            raise InputError(problem, "leave them out" if pairs or columns.top else "give --top K, too")
        return model, predict_model(store, inputs, model, semantic, bounds, out, columns, types, nodes)


def predict_model(
    store: Store,
    inputs: Mapping[str, Artifact],
    model: Artifact,
    semantic: ModelConfig,
    bounds: Bounds,
    out: Path,
    columns: Columns = PLAIN,
    types: Sequence[str] = (),
    nodes: Path | None = None,
) -> int:
    """Writes the Parquet file of a model within bounds of memory and threads, and returns its number of rows.

    Args:
        store, inputs: the store with the graph, its features and what else decides the model's weights.
        model, semantic: the model and its recipe.
        out, columns, types, nodes: as for `predict_table`.
    """
    # Opened again under the lease, since a collector may have been faster.
    read = {role: store.open(inputs[role].stage, inputs[role].version) for role in ("graph", "features")}
    read_as = {"device": open_device(semantic.train.device), "drawing": open_drawing(semantic.sampling, inputs)}
    bounds = replace(bounds, folder=store.home / "spill", dtype=semantic.train.dtype, **read_as)
    graph, features, progress = open_graph(read["graph"]), open_features(read["features"]), bounds.progress
    num_nodes, table = graph.topology.num_nodes, read["graph"].file("nodes.parquet")
    require_nodes(features, num_nodes, "the graph")
    asked, answers = asked_nodes(graph, table, types, nodes), open_answers(graph, columns)
    with_labels = labelled_types(graph)
    if others := [name for name in graph.node_types if name not in with_labels] if with_labels and not types else []:
        progress.tell(f"nodes without labels are left out; --type {others[0]} asks for theirs")
    try:
        with whole_file(out) as part, torch_threads(bounds.threads):
            ids, facts = asked.ids(), NodeFacts(table, graph, asked, answers)
            loaded = send_model(load_model(model, semantic, graph, features), bounds.device)
            bounds = replace(bounds, kept=open_log(kept_path(out), loaded, model.version, bounds, ids))
            inference = Inference(loaded, graph.topology, open_source(features, "auto"), bounds)
            progress.start("predict", inference.num_passes * num_nodes, "rows")
            needed = None if ids is None else inference.needed(ids)
            del ids
            found = (frame for each in inference.ranges(needed) for frame in answers.frames(each))
            frames = (facts.beside(low, frame) for low, frame in found)
            write_frames(part, on_threads(frames, bounds.threads), ROW_GROUP)  # it asks on threads of a library
        kept_path(out).unlink(missing_ok=True)
    finally:
        progress.done()
    return asked.count


def predict_pairs(
    store: Store,
    inputs: Mapping[str, Artifact],
    model: Artifact,
    semantic: ModelConfig,
    bounds: Bounds,
    out: Path,
    request: LinkRequest,
) -> int:
    """Writes the Parquet file of the pairs that are asked for, and returns its number of rows; arguments as of `predict_model`."""
    read = {role: store.open(inputs[role].stage, inputs[role].version) for role in ("graph", "features")}
    read_as = {"device": open_device(semantic.train.device), "drawing": open_drawing(semantic.sampling, inputs)}
    bounds = replace(bounds, folder=store.home / "spill", dtype=semantic.train.dtype, **read_as)
    graph, features, progress = open_graph(read["graph"]), open_features(read["features"]), bounds.progress
    require_nodes(features, graph.topology.num_nodes, "the graph")
    answers = LinkAnswers(graph=graph, nodes=read["graph"].file("nodes.parquet"), request=request, progress=progress)
    try:
        with whole_file(out) as part, torch_threads(bounds.threads):
            loaded = send_model(load_model(model, semantic, graph, features), bounds.device)
            inference = Inference(loaded, graph.topology, open_source(features, "auto"), bounds)
            progress.start("predict", inference.num_passes * graph.topology.num_nodes, "rows")
            rows = torch.cat([each.logits.cpu() for each in inference.ranges(None)])
            progress.done()
            frames = answers.frames(loaded.link_head.cpu(), rows)  # pyright: ignore[reportAttributeAccessIssue]
            write_frames(part, on_threads(frames, bounds.threads), ROW_GROUP)
    finally:
        progress.done()
    return answers.count


def kept_path(out: Path) -> Path:
    """Returns the path of the rows that a killed prediction leaves beside its file."""
    return out.with_name(f".{out.name}.rows")


def open_log(path: Path, model: Model, version: str, bounds: Bounds, wanted: Array | None = None) -> RowLog:
    """Returns the rows that a killed prediction by the same model has kept, of the same nodes; none if there are no such rows.

    Args:
        model, version: the model on its device, and its version.
        wanted: ids[n], the nodes; None for all.
    """
    name = f"{version} {bounds.workspace_bytes}".encode() + (b"" if wanted is None else wanted.tobytes())
    return RowLog(path, log_key(model, bounds.device, name))


def _require_ranks(by_ranks: ByRanks | None, table: TrainTable, nodes: Path | None) -> None:
    """Refuses ranks that cannot predict what is asked for."""
    if by_ranks is None:
        return
    if nodes is not None:
        raise InputError("--ranks predicts all nodes of a type, and --nodes names some", "leave one of them out")
    if not table.technique.own_shards:
        why = f"trainer = {table.trainer!r} " + ("has none" if table.by_parts else "trains in one process")
        raise InputError(f"--ranks is for models that ranks have trained from shards, and {why}", "leave --ranks out")


def _require_place(out: Path) -> None:
    """Refuses a file of another format, or in a folder that does not exist."""
    if out.suffix != ".parquet":
        raise InputError(
            f"{out} does not end with .parquet, the format that is written", f"--out {out.with_suffix('.parquet')}"
        )
    if not out.absolute().parent.is_dir():
        raise InputError(f"the folder of {out} does not exist", "make it first")


def find_recipe(pipeline: Pipeline, name: str, seed: int | None) -> tuple[TrainTable, ModelConfig]:
    """Returns a train table and the recipe of its model of a seed, or of its first."""
    table = find_table(pipeline, name)
    configs = {config.seed: config for config in model_configs(table, pipeline.sampling_of(table), pipeline.seed)}
    if seed is not None and seed not in configs:
        raise InputError(f"{name} has no seed {seed}", f"its seeds are: {', '.join(map(str, configs))}")
    return table, next(iter(configs.values())) if seed is None else configs[seed]


def find_model(
    store: Store, pipeline: Pipeline, name: str, semantic: ModelConfig, inputs: Mapping[str, Artifact]
) -> Artifact:
    """Returns the trained model of a recipe.

    Args:
        pipeline, name: the train table, for the message.
        semantic, inputs: the recipe, and the artifacts that decide its weights.

    Raises:
        InputError: the model is not trained.
    """
    model = store.find(ModelRecipe.name, stage_version(ModelRecipe(), semantic, inputs))
    if model is None:
        problem = f"{name} (seed {semantic.seed}) is not trained in {store.home}"
        raise InputError(problem, f"train it: graphmill train {pipeline.reference} {name}")
    return model


def load_model(artifact: Artifact, semantic: ModelConfig, graph: Graph, features: FeatureTable) -> Model:
    """Builds the model of a recipe and fills it with an artifact's weights.

    Args:
        artifact, semantic: the trained model and its recipe.
        graph: the graph, which names classes and relations.
        features: the features, which name the columns of each node type.

    Raises:
        InputError: the user's own code makes another model than it did in the training.
    """
    from safetensors.torch import load

    require_weights(semantic.train, graph.topology)
    types, width = node_types(graph.topology, features), features.width
    model = build_model(semantic.train, width, graph.num_classes, semantic.seed, len(graph.relations), types)
    try:
        model.load_state_dict(load(artifact.file("weights.safetensors").read_bytes()))
    except RuntimeError as error:
        problem = f"the weights of {artifact.label} do not fit the model: {error}"
        raise InputError(problem, "train it again") from error
    return model
