"""Writes a trained model's predictions of all nodes, or of those that a file names, to a Parquet file.

    node_id       id of the node in the raw data: nodes.parquet's original_id
    node_type     name of its type, in a graph whose nodes have types; ids are those of a type then
    class         name of the most probable class; a number if the labels are numbers
    probability   f32, of that class
    label         name of the class that the node has; null if it is not known
    split         "train", "valid" or "test"; null if the node is in none
    probabilities array of f32, of all classes in their order, on request
    embedding     array of f32, the input of the last layer, or of the linear head if there is one; the logits if a user's module exposes
                  no layers

Inference is exact and layer by layer (trainers/inference/exact.py); the table is written in row groups as the last layer's ranges come out,
so neither it nor any layer is ever held whole. Memory: the workspace of exact inference, plus a few row groups that Polars encodes. A
prediction that is killed leaves the rows of its layers beside the table (trainers/inference/kept.py), and the same command goes on from
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.evaluation import log_key
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.gathered import ExactRange
from graphmill.trainers.inference.kept import RowLog
from graphmill.trainers.models.build import build_model, require_weights, send_model
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig, TrainTable, find_table, model_configs
from graphmill.trainers.recipe.inputs import find_model_inputs
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.rows.open import open_source

if TYPE_CHECKING:
    import polars

ByRanks = Callable[[Store, Pipeline, TrainTable, Mapping[str, Artifact], Mapping[str, Any], Path], int]
"""A function that predicts by processes, each with the rows of its parts: trainers/techniques/distributed/predict.py."""

ROW_GROUP = 8192
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
SPLITS = ("train", "valid", "test")


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
    probabilities: bool = False,
    nodes: Path | None = None,
    by_ranks: ByRanks | None = None,
    progress: Progress | None = None,
) -> tuple[Artifact, int]:
    """Predicts with the trained model of a `[[train]]` table; returns the model, and the number of rows written.

    Args:
        store: the store of the graph and the model.
        pipeline, name: the pipeline and the name of the table.
        out: the Parquet file; replaced if it exists.
        seed: seed of the table's model; None for the first.
        workspace: a size; see trainers/inference/exact.py.
        threads: number of threads of kernels and matrix products; None for the table's.
        probabilities: whether the probabilities of all classes are written, beside the largest.
        nodes: a file that names nodes (`named_nodes`), which alone are predicted; None for all nodes.
        by_ranks: function that predicts all nodes with several processes; None reads the table in this one.
        progress: shows the finished nodes.

    Raises:
        InputError: the table, seed, folder, graph or model does not exist, the model or its code does not fit the graph, a named node does
            not exist, or the disk is full.
    """
    pipeline.require_one_split()
    table, semantic = find_recipe(pipeline, name, seed)
    _require_place(out)
    if by_ranks is not None:
        _require_ranks(table, nodes)
    asked, workspace_bytes = threads or semantic.train.threads, parse_size(workspace)
    inputs = find_model_inputs(pipeline, table, store, {})
    read = [(each.stage, each.version) for each in inputs.values()]
    with store.lease(*read, (ModelRecipe.name, stage_version(ModelRecipe(), semantic, inputs))):
        model = find_model(store, pipeline, name, semantic, inputs)
        if by_ranks is not None:
            given = {"seed": semantic.seed, "workspace": workspace, "threads": asked, "model": model.version}
            given |= {"probabilities": probabilities}
            return model, by_ranks(store, pipeline, table, inputs, given, out)
        threads = threads or semantic.train.num_threads
        bounds = Bounds(workspace_bytes=workspace_bytes, threads=threads, progress=progress or Silent())
        return model, _predict(store, inputs, model, semantic, bounds, out, probabilities, nodes)


def _predict(
    store: Store,
    inputs: Mapping[str, Artifact],
    model: Artifact,
    semantic: ModelConfig,
    bounds: Bounds,
    out: Path,
    every: bool,
    nodes: Path | None,
) -> int:
    """Writes the Parquet file within bounds of memory and threads, and returns its number of rows; `every` = all probabilities."""
    # Opened again under the lease, since a collector may have been faster.
    read = {role: store.open(inputs[role].stage, inputs[role].version) for role in ("graph", "features")}
    read_as = {"device": open_device(semantic.train.device), "drawing": open_drawing(semantic.sampling, inputs)}
    bounds = replace(bounds, folder=store.home / "spill", dtype=semantic.train.dtype, **read_as)
    graph, features, progress = open_graph(read["graph"]), open_features(read["features"]), bounds.progress
    num_nodes, table = graph.topology.num_nodes, read["graph"].file("nodes.parquet")
    require_nodes(features, num_nodes, "the graph")
    wanted = None if nodes is None else named_nodes(nodes, table)
    try:
        with whole_file(out) as part, torch_threads(bounds.threads):
            loaded = send_model(load_model(model, semantic, graph, features), bounds.device)
            bounds = replace(bounds, kept=open_log(kept_path(out), loaded, model.version, bounds, wanted))
            inference = Inference(loaded, graph.topology, open_source(features, "auto"), bounds)
            progress.start("predict", inference.num_passes * num_nodes, "rows")
            facts, needed = NodeFacts(table, graph), None if wanted is None else inference.needed(wanted)
            ranges = inference.ranges(needed)
            found = (frame for each in ranges for frame in predicted_frames(each, facts.names, every))
            write_frames(part, (facts.beside(low, frame, wanted) for low, frame in found), ROW_GROUP)
        kept_path(out).unlink(missing_ok=True)
    finally:
        progress.done()
    return num_nodes if wanted is None else len(wanted)


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


def named_nodes(path: Path, nodes: Path) -> Array:
    """Returns i64[n], ascending, the nodes that a file names by their ids in the raw data, each once.

    Args:
        path: a Parquet or CSV file with a column `node_id` (as this module writes it), or a text file with one id per line.
        nodes: the graph's Parquet file of nodes.

    Raises:
        InputError: the file cannot be read, names no node, or names one that the graph does not have.
    """
    import polars

    remedy = "give a .parquet or .csv file with a column node_id, or a .txt file with one id per line"
    known = polars.scan_parquet(nodes, glob=False).select("node_id", "original_id")
    try:
        if path.suffix == ".txt":
            ids = polars.Series("original_id", path.read_text(encoding="utf-8").split())
        else:
            read = {".parquet": polars.read_parquet, ".csv": polars.read_csv}[path.suffix]
            ids = read(path, columns=["node_id"], glob=False)["node_id"].alias("original_id")
        ids = ids.cast(known.collect_schema()["original_id"]).unique()
    except KeyError:
        raise InputError(f"{path} is no file of nodes", remedy) from None
    except (OSError, UnicodeDecodeError, polars.exceptions.PolarsError) as error:
        raise InputError(f"the nodes in {path} cannot be read: {error}", remedy) from error
    if not len(ids):
        raise InputError(f"{path} names no node", remedy)
    found = known.join(ids.to_frame().lazy(), on="original_id", how="semi").collect()
    if len(found) < len(ids):
        missing = ids.filter(~ids.is_in(found["original_id"].implode()))
        some = ", ".join(map(str, missing.head(3).to_list()))
        problem = f"{path} names {len(missing):,} nodes that the graph does not have: {some}"
        raise InputError(problem, "give ids of the raw data; `graphmill sql` shows them")
    return np.sort(found["node_id"].to_numpy()).astype(np.int64)


def _require_ranks(table: TrainTable, nodes: Path | None) -> None:
    """Refuses ranks that cannot predict what is asked for."""
    if nodes is not None:
        raise InputError("--ranks predicts all nodes, and --nodes names some", "leave one of them out")
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
    configs = {config.seed: config for config in model_configs(table, pipeline.sampling, pipeline.seed)}
    if seed is not None and seed not in configs:
        raise InputError(f"{name} has no seed {seed}", f"its seeds are: {', '.join(map(str, configs))}")
    return table, next(iter(configs.values())) if seed is None else configs[seed]


def find_model(
    store: Store, pipeline: Pipeline, name: str, semantic: ModelConfig, inputs: Mapping[str, Artifact]
) -> Artifact:
    """Returns the trained model of a recipe.

    Args:
        store: the store of the model.
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


def predicted_frames(
    each: ExactRange, names: polars.Series, every: bool = False
) -> Iterator[tuple[int, polars.DataFrame]]:
    """Yields (place of its first row, class, probability and embedding) of a range, in row groups.

    Args:
        each: the range.
        names: names of the classes.
        every: whether the probabilities of all classes are included.
    """
    import polars

    for low in range(each.low, each.high, ROW_GROUP):
        high = min(low + ROW_GROUP, each.high)
        found = each.logits[low - each.low : high - each.low].softmax(dim=1)
        probability, place = found.max(dim=1)
        more = {"embedding": each.embeddings(low, high)} | ({"probabilities": found} if every else {})
        arrays = {
            name: polars.Series(rows.numpy(), dtype=polars.Array(polars.Float32, rows.shape[1]))
            for name, rows in more.items()
        }
        columns = {"class": names.gather(place.numpy()), "probability": probability.float().numpy(), **arrays}
        yield low, polars.DataFrame(columns)


class NodeFacts:
    """A graph's facts about nodes beside a prediction: original id, label and part of the split.

    Args:
        nodes: the graph's Parquet file of nodes.
        graph: the graph with labels and split.
    """

    def __init__(self, nodes: Path, graph: Graph):
        import polars

        self.names = class_column(graph.class_names)
        self._original = polars.scan_parquet(nodes, glob=False).select(polars.col("original_id").alias("node_id"))
        self._types, self._type_ptr = polars.Series(list(graph.node_types)), graph.topology.node_type_ptr
        self._labels, self._splits = graph.labels, polars.Series(list(SPLITS))
        self._split_of = np.full(graph.topology.num_nodes, -1, np.int8)
        for place, ids in enumerate((graph.train_ids, graph.valid_ids, graph.test_ids)):
            self._split_of[np.asarray(ids)] = place

    def beside(self, low: int, frame: polars.DataFrame, wanted: Array | None = None) -> polars.DataFrame:
        """Returns predictions of nodes low, low + 1, ... with the facts about these nodes; only those of `wanted`, ids[n], ascending."""
        high = low + len(frame)
        known = self._original.slice(low, len(frame)).collect()
        if len(self._types) and self._type_ptr is not None:
            place = np.searchsorted(self._type_ptr, np.arange(low, high), side="right") - 1
            known = known.with_columns(self._types.gather(place).alias("node_type"))
        label = _named(self.names, self._labels[low:high]).alias("label")
        split = _named(self._splits, self._split_of[low:high]).alias("split")
        first = ["class", "probability"]
        table = known.hstack(frame.select(first)).hstack([label, split]).hstack(frame.drop(first))
        if wanted is None:
            return table
        start, stop = np.searchsorted(wanted, (low, high))
        return table[wanted[start:stop] - low]


def class_column(names: Sequence[str]) -> polars.Series:
    """Returns the names of classes as numbers if all are whole numbers, written as labels that were numbers are, else as texts."""
    import polars

    numbers = all(WHOLE_NUMBER.fullmatch(name) for name in names) and len(names) > 0
    column = polars.Series(list(names), dtype=polars.String)
    return column.cast(polars.Int64) if numbers else column


def _named(names: polars.Series, places: Array) -> polars.Series:
    """Returns the name at each place, null for places below 0."""
    import polars

    found = polars.Series(np.asarray(places, np.int64))
    return names.gather(found.set(found < 0, None))
