"""Functions for notebooks: the mini-batches of a train table one by one, and a trained model that predicts.

Nothing here trains. A missing artifact is an `InputError` with the command that builds it, except for budgets: they take seconds of
arithmetic, and `mini_batches` builds those that its table reads. `docs/python.md` has examples that a test runs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import IterableDataset

from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.inference.answers import class_column
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.predict import find_model, find_recipe, load_model
from graphmill.trainers.loop.executor import BatchExecutor
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.inputs import find_model_inputs, find_table_inputs
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.training.open_run import open_run


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model with its training data.

    Attributes:
        artifact: the model's artifact; `artifact.summary["numbers"]` has its scores.
        model: a torch module with the best weights, on the CPU.
        graph, features: the mapped graph and features that it predicts from.
        drawing: the way in which neighbours are drawn; None if nothing is sampled.
    """

    artifact: Artifact
    model: Model
    semantic: ModelConfig
    graph: Graph
    features: FeatureTable
    drawing: Drawing | None

    def logits(self, node_ids: Array | None = None, *, workspace: str = "1GiB") -> torch.Tensor:
        """Returns f32[n, num_classes] (of numbers standardised ones), computed from all neighbours, layer by layer.

        Args:
            node_ids: ids[n] global; None for all nodes in order.
            workspace: a size that bounds the memory of one range of a layer; a node whose neighbours need more exceeds it.

        Raises:
            InputError: `node_ids` are not ids of the graph, or `workspace` is not a size.
        """
        train = self.semantic.train
        bounds = Bounds(
            workspace_bytes=parse_size(workspace), threads=train.num_threads, dtype=train.dtype, drawing=self.drawing
        )
        return Inference(self.model, self.graph.topology, open_source(self.features, "auto"), bounds).exact(node_ids)

    def classes(self, node_ids: Array | None = None) -> list[str] | list[int]:
        """Returns the name of the most probable class of each node; a number if the labels are numbers.

        Raises:
            InputError: the task is another one than classes, whose logits mean something else.
        """
        if self.graph.task != "classes":
            problem = f"the model's task is {self.graph.task}, and its nodes have no classes"
            raise InputError(problem, "take logits(), or graphmill predict")
        names = class_column(self.graph.class_names).to_list()
        return [names[place] for place in self.logits(node_ids).argmax(dim=1).tolist()]


def open_trained(store: Store, pipeline: Pipeline, name: str, seed: int | None = None) -> Trained:
    """Opens the trained model of a `[[train]]` table.

    Args:
        seed: seed of the table's model; None for the first.

    Raises:
        InputError: the table or seed does not exist, or the store lacks the model.
    """
    pipeline.require_one_split()
    table, semantic = find_recipe(pipeline, name, seed)
    inputs = find_model_inputs(pipeline, table, store, {})
    artifact = find_model(store, pipeline, name, semantic, inputs)
    graph, features = open_graph(inputs["graph"]), open_features(inputs["features"])
    require_nodes(features, graph.topology.num_nodes, "the graph")
    return Trained(
        artifact=artifact,
        model=load_model(artifact, semantic, graph, features),
        semantic=semantic,
        graph=graph,
        features=features,
        drawing=open_drawing(semantic.sampling, inputs),
    )


def mini_batches(
    store: Store, pipeline: Pipeline, name: str, epoch: int = 0, *, start: int = 0, seed: int | None = None
) -> Generator[MiniBatch, None, None]:
    """Yields the mini-batches of an epoch as in the training of a table: the same seeds, blocks and input rows to the byte.

    The artifacts are leased while the generator lives. The bytes of a batch are released when the next one is asked for; copy data to keep
    it.

    Args:
        epoch: training epoch, from 0.
        seed: seed of the training; None for the table's first.

    Raises:
        InputError: an artifact is missing, or the table's technique does not train on mini-batches in one process.
    """
    pipeline.require_one_split()
    table, semantic = find_recipe(pipeline, name, seed)
    found = find_table_inputs(pipeline, table, store, {})
    read = [(each.stage, each.version) for each in (*found.inputs.values(), *found.reads.values())]
    with store.lease(*read):
        run, _ = open_run(found.inputs, found.reads, semantic, table.execution)
        executor = table.technique.load().open_executor(run)
        if not isinstance(executor, BatchExecutor):
            problem = f"{name} trains with trainer = {table.trainer!r}, which has no mini-batches of one process"
            raise InputError(problem, 'ask a table with trainer = "minibatch" or "disk"')
        yield from executor.source.batches(epoch, start)


class EpochBatches(IterableDataset):
    """The mini-batches of a train table for a loader of torch in one process: each iteration is the next epoch of the training.

    Attributes:
        epoch: epoch of the next iteration, from 0.
    """

    def __init__(self, store: Store, pipeline: Pipeline, name: str, epoch: int = 0, seed: int | None = None):
        self.epoch = epoch
        self._table = (store, pipeline, name)
        self._seed = seed

    def __iter__(self) -> Iterator[MiniBatch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return mini_batches(*self._table, epoch, seed=self._seed)
