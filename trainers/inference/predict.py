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

Of links, trainers/inference/answers/links.py says what the columns are.

A model predicts from the graph that it was trained on, or from another one with the same schema (trainers/tasks/schema.py); the file's
key-value metadata name the versions of the model and of both graphs.

Inference is exact and layer by layer (trainers/inference/exact.py), or sampled on request, with all logits in memory. The table is written
in row groups as the last layer's ranges come out, so neither it nor any layer is ever held whole. Memory: the workspace of exact inference,
plus a few row groups that Polars encodes. A prediction that is killed leaves the rows of its layers beside the table
(trainers/inference/kept.py), and the same command goes on from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.building.stage import Progress, Silent
from graphmill.assets.graph.read import Graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.files.frames import write_frames
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.filesystem import full_disk, full_errno
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.kernels.types import Array
from graphmill.trainers.devices.logical import open_device
from graphmill.trainers.devices.torch_threads import on_threads, torch_threads
from graphmill.trainers.inference.answers.edges import EdgeAnswers
from graphmill.trainers.inference.answers.kinds import ROW_GROUP, Answers, Columns, open_answers
from graphmill.trainers.inference.answers.links import LinkAnswers, LinkRequest
from graphmill.trainers.inference.answers.nodes import AskedNodes, NodeFacts, asked_nodes, labelled_types
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.choice import Way
from graphmill.trainers.inference.evaluation import infer_sampled, log_key
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.gathered import ExactRange
from graphmill.trainers.inference.kept import RowLog
from graphmill.trainers.inference.trained import PredictedData, find_model, load_model, reopened
from graphmill.trainers.models.build import send_model
from graphmill.trainers.models.links.heads import LabelHead, LinkHead
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig, TrainTable, find_recipe
from graphmill.trainers.recipe.file_rules import EXACT_LATER
from graphmill.trainers.recipe.inputs import find_data, find_model_inputs
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.tasks.labelled import Scores

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
    other: Pipeline | None = None,
    evaluation: Way = "exact",
    by_ranks: ByRanks | None = None,
    progress: Progress | None = None,
) -> tuple[Artifact, int]:
    """Predicts with the trained model of a `[[train]]` table; returns the model, and the number of rows written.

    Args:
        out, seed, workspace, threads, types, nodes: as for `graphmill.predict`.
        columns: the columns that are asked for besides the usual ones.
        pairs, relations: of links, as in `graphmill.trainers.inference.answers.links.LinkRequest`; `columns.top` is its `top`.
        other: the pipeline whose graph and features are predicted from; None for those of the training.
        evaluation: "exact" by all neighbours, or "sampled" by those that `[sampling]` draws; the column `embedding` has the logits then.
        by_ranks: function that predicts all nodes with several processes; None reads the table in this one.

    Raises:
        InputError: the table, seed, folder, graph or model does not exist, the model or its code does not fit the graph, a named node does
            not exist, or the disk is full.
    """
    pipeline.require_one_split()
    table, semantic = find_recipe(pipeline, name, seed)
    _require_place(out)
    _require_ranks(by_ranks, table, nodes or pairs, other, evaluation)
    _require_sampling(evaluation, pipeline, semantic)
    workspace_bytes, spill = parse_size(workspace), store.home / "spill"
    with _held(store, pipeline, table, semantic, other) as (model, inputs, data):
        if by_ranks is not None:
            given = {"seed": semantic.seed, "workspace": workspace, "threads": threads or semantic.train.threads}
            given |= {"model": model.version, "columns": asdict(columns), "types": [*types]}
            return model, by_ranks(store, pipeline, table, inputs, given, out)
        used, progress = threads or semantic.train.num_threads, progress or Silent()
        bounds = Bounds(workspace_bytes=workspace_bytes, threads=used, folder=spill, progress=progress)
        of = PredictedData(reopened(store, data), data, None if other is None else reopened(store, inputs))
        request = LinkRequest(top=columns.top, pairs=pairs, relations=relations, nodes=nodes)
        asked = AskedPrediction(of, model, semantic, bounds, out, columns, types, request, evaluation)
        return model, predict(asked).count


@contextmanager
def _held(
    store: Store, pipeline: Pipeline, table: TrainTable, semantic: ModelConfig, other: Pipeline | None
) -> Iterator[tuple[Artifact, Mapping[str, Artifact], Mapping[str, Artifact]]]:
    """Yields a trained model, its inputs, and the data that are predicted from; the store keeps them until the block ends."""
    inputs = find_model_inputs(pipeline, table, store, {})
    data = inputs if other is None else find_data(other, table, store, semantic.sampling)
    read = [(each.stage, each.version) for each in (*inputs.values(), *data.values())]
    with store.lease(*read, (ModelRecipe.name, stage_version(ModelRecipe(), semantic, inputs))):
        yield find_model(store, pipeline, table.name, semantic, inputs), inputs, data


class Predicted(NamedTuple):
    """What a prediction has done.

    Attributes:
        scores: name -> score of the nodes whose labels are known; empty on the graph of the training.
    """

    count: int
    scores: Mapping[str, float]


@dataclass(frozen=True)
class AskedPrediction:
    """A prediction by a trained model, within bounds of memory and threads.

    Attributes:
        out, columns, types, evaluation: as for `predict_table`.
        request: of links what is asked for; of nodes the file that names some.
        listener: gets the outputs of the predicted nodes, float[n, C], range by range.
    """

    data: PredictedData
    model: Artifact
    semantic: ModelConfig
    bounds: Bounds
    out: Path
    columns: Columns = PLAIN
    types: Sequence[str] = ()
    request: LinkRequest = field(default_factory=LinkRequest)
    evaluation: Way = "exact"
    listener: Callable[[Array], None] | None = None

    @cached_property
    def graph(self) -> Graph:
        """The graph with the classes of the model; raises InputError if the graph does not fit the model."""
        return self.data.graph(self.model, self.semantic)

    @property
    def answers(self) -> Answers:
        """The columns of the answers for nodes or edges."""
        return open_answers(self.graph if self.data.learnt is None else self.data.learnt.graph, self.columns)

    @property
    def nodes(self) -> Path:
        """The Parquet file of the nodes."""
        return self.data.read.artifacts["graph"].file("nodes.parquet")


def predict(asked: AskedPrediction) -> Predicted:
    """Writes the Parquet file of the pairs or edges, or of the nodes, that are asked for."""
    pairs = asked.request.of_pairs(asked.data.read.graph, asked.columns, asked.types, asked.evaluation)
    return Predicted(_predict_pairs(asked), {}) if pairs else _predict_nodes(asked)


def _predict_nodes(asked: AskedPrediction) -> Predicted:
    data, graph, bounds, learnt = asked.data, asked.graph, asked.bounds, asked.data.learnt
    known = [*asked.types] or labelled_types(graph if learnt is None else learnt.graph)
    chosen, answers = asked_nodes(graph, asked.nodes, known, asked.request.nodes), asked.answers
    others = [name for name in graph.node_types if name not in known] if known and not asked.types else []
    if others:
        bounds.progress.tell(f"nodes without labels are left out; --type {others[0]} asks for theirs")
    try:
        with whole_file(asked.out) as part, torch_threads(bounds.threads):
            ids, facts = chosen.ids(), NodeFacts(asked.nodes, graph, chosen, answers)
            inference = _inference(asked, ids)
            exact = asked.evaluation == "exact"
            ranges = _exact(inference, ids) if exact else _sampled(inference, chosen, asked.semantic)
            most = bounds.workspace_bytes // 4
            scores = None if learnt is None else Scores(graph, learnt.graph, chosen.places, most)
            ranges = _heard(ranges, chosen, scores, asked.listener)
            found = (frame for each in ranges for frame in answers.frames(each))
            frames = (facts.beside(low, frame) for low, frame in found)
            # Polars asks for frames on threads of its own.
            record = data.record(asked.model, asked.evaluation)
            write_frames(part, on_threads(frames, bounds.threads), ROW_GROUP, record)
        kept_path(asked.out).unlink(missing_ok=True)
    finally:
        bounds.progress.done()
    if scores is None:
        return Predicted(chosen.count, {})
    for line in scores.lines(asked.semantic.train.metric):
        bounds.progress.tell(line)
    return Predicted(chosen.count, scores.numbers(asked.semantic.train.metric))


def _heard(
    ranges: Iterator[ExactRange], asked: AskedNodes, scores: Scores | None, listener: Callable[[Array], None] | None
) -> Iterator[ExactRange]:
    """Yields ranges, and gives their logits to the scores and to the listener if there are some."""
    for each in ranges:
        logits = each.logits.numpy()
        if scores is not None:
            scores.add(each.low, each.high, logits)
        if listener is not None:
            listener(logits[asked.places(each.low, each.high)])
        yield each


def _exact(inference: Inference, ids: Array | None) -> Iterator[ExactRange]:
    """Yields the ranges of nodes, computed from all neighbours."""
    inference.bounds.progress.start("predict", inference.num_passes * inference.topology.num_nodes, "rows")
    yield from inference.ranges(None if ids is None else inference.needed(ids))


def _sampled(inference: Inference, asked: AskedNodes, semantic: ModelConfig) -> Iterator[ExactRange]:
    """Yields ranges of nodes, computed from drawn neighbours; rows of nodes that are not asked for are zeros."""
    sampling, num_nodes = semantic.sampling, asked.num_nodes
    assert sampling is not None
    ids, done = asked.ids(), 0
    ids = np.arange(num_nodes) if ids is None else ids
    plan = evaluation_plan(np.arange(len(ids)), sampling.batch_size, semantic.sampling_seed)
    logits = infer_sampled(inference, ids, plan)
    for low in range(0, num_nodes, ROW_GROUP):
        high = min(low + ROW_GROUP, num_nodes)
        places = torch.from_numpy(asked.places(low, high).astype(np.int64))
        rows = logits.new_zeros((high - low, logits.shape[1]))
        rows[places] = logits[done : (done := done + len(places))]
        yield ExactRange(low=low, high=high, logits=rows)


def _inference(asked: AskedPrediction, ids: Array | None = None) -> Inference:
    """Returns the inference of the model on a graph, which goes on from the rows that a killed prediction of the same nodes has kept."""
    data, model, semantic, graph = asked.data, asked.model, asked.semantic, asked.graph
    read_as = {"device": open_device(semantic.train.device), "drawing": open_drawing(semantic.sampling, data.inputs)}
    bounds = replace(asked.bounds, dtype=semantic.train.dtype, **read_as).with_edges(data.read.edges)
    loaded = send_model(load_model(model, semantic, graph, data.read.features, data.read.edges), bounds.device)
    other = "" if data.learnt is None else data.read.artifacts["graph"].version
    version = f"{model.version} {other}{asked.evaluation}"
    bounds = replace(bounds, kept=open_log(kept_path(asked.out), loaded, version, bounds, ids))
    return Inference(loaded, graph.topology, open_source(data.read.features, "auto"), bounds)


def _predict_pairs(asked: AskedPrediction) -> int:
    """Writes the Parquet file of the pairs or edges that are asked for, and returns its number of rows."""
    graph, bounds = asked.graph, asked.bounds
    given: Any = {"graph": graph, "nodes": asked.nodes, "request": asked.request, "progress": bounds.progress}
    labelled = graph.links is not None and graph.links.labels is not None
    answers: Any = EdgeAnswers(**given, answers=asked.answers) if labelled else LinkAnswers(**given)
    try:
        with whole_file(asked.out) as part, torch_threads(bounds.threads):
            inference = _inference(asked)
            head, num_nodes = inference.model.link_head, graph.topology.num_nodes
            assert isinstance(head, LinkHead | LabelHead), "a model of edges"
            rows = torch.empty(0)
            for each in _exact(inference, None):  # into one array: parts beside their whole are twice the rows
                rows = each.logits.new_empty(num_nodes, each.logits.shape[1]) if each.low == 0 else rows
                rows[each.low : each.high] = each.logits
            bounds.progress.done()
            frames = on_threads(answers.frames(head.cpu(), rows), bounds.threads)
            write_frames(part, frames, ROW_GROUP, asked.data.record(asked.model, asked.evaluation))
        kept_path(asked.out).unlink(missing_ok=True)
    finally:
        bounds.progress.done()
    return answers.count


def kept_path(out: Path) -> Path:
    """Returns the path of the rows that a killed prediction leaves beside its file."""
    return out.with_name(f".{out.name}.rows")


def open_log(path: Path, model: Model, version: str, bounds: Bounds, wanted: Array | None = None) -> RowLog:
    """Returns the rows that a killed prediction by the same model has kept, of the same nodes; none if there are no such rows.

    Args:
        wanted: ids[n], the nodes; None for all.
    """
    name = f"{version} {bounds.workspace_bytes}".encode() + (b"" if wanted is None else wanted.tobytes())
    return RowLog(path, log_key(model, bounds.device, name))


def _require_sampling(evaluation: Way, pipeline: Pipeline, semantic: ModelConfig) -> None:
    """Refuses sampled predictions of a model that was trained without sampling, and exact ones of neighbours as of a time."""
    if evaluation == "sampled" and semantic.sampling is None:
        raise InputError(f"sampled predictions, but {pipeline.path} has no table [sampling]", "ask for exact ones")
    timed = semantic.sampling is not None and semantic.sampling.before is not None
    if timed and semantic.train.predicts_links:
        problem = (
            'a prediction names no times, and before = "seed" of [sampling] computes the ends of an edge as of its time'
        )
        raise InputError(problem, "read the scores of the edges to validate and to test: graphmill leaderboard")
    if evaluation == "exact" and timed:
        raise InputError(f"exact predictions, but {EXACT_LATER}", "ask for sampled ones: --eval sampled")


def _require_ranks(
    by_ranks: ByRanks | None, table: TrainTable, named: Path | None, other: Pipeline | None, evaluation: Way
) -> None:
    """Refuses ranks that cannot predict what is asked for; `named` is a file that names nodes or pairs."""
    if by_ranks is None:
        return
    if other is not None or evaluation != "exact":
        raise InputError("--ranks predicts exactly, on the graph of the training", "leave --ranks out")
    if named is not None:
        problem = "--ranks predicts all nodes of a type, and --nodes and --pairs name some"
        raise InputError(problem, "leave --ranks out, or the file")
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
