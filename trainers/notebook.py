"""A trained model for notebooks, which predicts. `docs/python.md` has examples that a test runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graphmill.assets.graph.read import Graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.inference.answers.kinds import class_column
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.trained import find_model, load_model, open_data
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig, find_recipe
from graphmill.trainers.recipe.inputs import find_model_inputs
from graphmill.trainers.rows.open import open_source


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model with its training data.

    Attributes:
        artifact: the model's artifact; `artifact.summary["numbers"]` has its scores.
        model: a torch module with the best weights, on the CPU.
        graph, features, edges: the mapped graph, features and rows of edges that it predicts from; None without the latter.
        drawing: the way in which neighbours are drawn; None if nothing is sampled.
    """

    artifact: Artifact
    model: Model
    semantic: ModelConfig
    graph: Graph
    features: FeatureTable
    drawing: Drawing | None
    edges: FeatureTable | None = None

    def __repr__(self) -> str:
        """Returns a line without the module."""
        train, parameters = self.semantic.train, sum(each.numel() for each in self.model.parameters())
        return f"Trained({self.artifact.label}: {train.model}, {parameters:,} parameters, seed {self.semantic.seed})"

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
        bounds = bounds.with_edges(self.edges)
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
    _, graph, features, edges = open_data(inputs)
    return Trained(
        artifact=artifact,
        model=load_model(artifact, semantic, graph, features, edges),
        semantic=semantic,
        graph=graph,
        features=features,
        edges=edges,
        drawing=open_drawing(semantic.sampling, inputs),
    )
