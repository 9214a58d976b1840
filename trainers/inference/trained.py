"""The trained model of a recipe, and the data that it predicts from: its own, or another graph of the same schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.features.config import EDGES, MAIN
from graphmill.assets.features.read import open_features, require_edges, require_nodes
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.schema import Tables
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.names.version import canonical
from graphmill.assets.storage.store import Store
from graphmill.assets.tasks.labels import no_labels
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.choice import Way
from graphmill.trainers.models.build import build_model, model_types, require_weights
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig, TrainTable, find_recipe
from graphmill.trainers.recipe.inputs import find_model_inputs
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.tasks.schema import read_schema, require_schema


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


def is_trained(store: Store, pipeline: Pipeline, name: str, seed: int | None) -> bool:
    """Tells whether the store has the model of a table on the pipeline's own data; raises InputError without that table or seed."""
    table, semantic = find_recipe(pipeline, name, seed)
    try:
        find_model(store, pipeline, name, semantic, find_model_inputs(pipeline, table, store, {}))
    except InputError:
        return False
    return True


def stored_recipe(model: Artifact) -> ModelConfig:
    """Returns the recipe of a trained model as its artifact has it, whatever its pipeline file says now.

    Raises:
        InputError: a version of graphmill with other keys has trained it, or the user's own code that it names is gone.
    """
    config, places = model.config, model.run_record().get("locations", {})
    train, settings = dict(config["train"]), None
    own = TrainTable.sub_table(train)
    values = train.pop("settings", None)
    if own is not None and values is not None:
        settings = _parsed(own[1], values, "", model)
    made = ModelConfig(
        seed=config["seed"],
        train=_parsed(TrainConfig, train, places.get("train.model", ""), model, {"settings": settings}),
        sampling=None
        if config["sampling"] is None
        else _parsed(SamplingConfig, config["sampling"], places.get("sampling.method", ""), model),
    )
    if canonical(made) != config:
        raise InputError(f"{model.label} was trained by another version of graphmill", "train it again")
    return made


def _parsed(kind: type, values: Mapping[str, Any], folder: str, model: Artifact, fixed: Any = None) -> Any:
    """Returns a config from its canonical form; `folder` is that of the user's own code."""
    found, problems = Tables(folder=Path(folder)).parse(kind, values, (), fixed)
    if problems:
        listed = "; ".join(each.message for each in problems)
        raise InputError(f"the recipe of {model.label} cannot be read: {listed}", "train it again")
    return found


def trained_data(model: Artifact) -> dict[str, Artifact]:
    """Returns the graph and the features that a model was trained on.

    Raises:
        InputError: they are not in the store any more.
    """
    found = {role: model.neighbour(model.inputs[role]) for role in ("graph", "features")}
    there = {role: each for role, each in found.items() if each is not None}
    if lacking := [f"{role}/{model.inputs[role]['version'][:12]}" for role in found if role not in there]:
        problem = f"{' and '.join(lacking)}, which {model.label} was trained on, are not in the store"
        raise InputError(
            problem, "build them again from the data of the training, or train the model on data that are there"
        )
    return there


def load_model(
    artifact: Artifact, semantic: ModelConfig, graph: Graph, features: FeatureTable, edges: FeatureTable | None = None
) -> Model:
    """Builds the model of a recipe and fills it with an artifact's weights.

    Args:
        graph: the graph, which names classes and relations.
        features: the features, which name the columns of each node type.
        edges: the rows of edges, None without.

    Raises:
        InputError: the user's own code makes another model than it did in the training.
    """
    from safetensors.torch import load_file

    model = make_model(semantic, graph, features, edges)
    try:  # it maps the file, which stays mapped for the rows of nodes
        model.load_state_dict(load_file(artifact.file("weights.safetensors")))
    except RuntimeError as error:
        problem = f"the weights of {artifact.label} do not fit the model: {error}"
        raise InputError(problem, "train it again") from error
    return model


def make_model(semantic: ModelConfig, graph: Graph, features: FeatureTable, edges: FeatureTable | None = None) -> Model:
    """Returns the model of a recipe with its initial weights; arguments as for `load_model`."""
    require_weights(semantic.train, graph.topology)
    types = model_types(semantic.train, graph.topology, features)
    sizes = features.width, graph.num_classes, semantic.seed, len(graph.relations)
    return build_model(semantic.train, *sizes, types, 0 if edges is None else edges.width)


class OpenedData(NamedTuple):
    """A graph and its features, opened again under the lease, since a collector may have been faster.

    `edges` are the rows of edges, None without.
    """

    artifacts: Mapping[str, Artifact]
    graph: Graph
    features: FeatureTable
    edges: FeatureTable | None = None


def reopened(store: Store, inputs: Mapping[str, Artifact]) -> OpenedData:
    """Returns the graph and the features of inputs, each opened by its version."""
    return open_data({role: store.open(inputs[role].stage, inputs[role].version) for role in _roles(inputs)})


def open_data(artifacts: Mapping[str, Artifact]) -> OpenedData:
    """Returns the graph and the features among artifacts; raises InputError if they are of different nodes."""
    graph, features = open_graph(artifacts["graph"]), open_features(artifacts["features"])
    require_nodes(features, graph.topology.num_nodes, "the graph")
    edges = open_features(artifacts[EDGES]) if EDGES in artifacts else None
    if edges is not None:
        require_edges(edges, graph.topology)
    return OpenedData({role: artifacts[role] for role in _roles(artifacts)}, graph, features, edges)


def _roles(artifacts: Mapping[str, Artifact]) -> tuple[str, ...]:
    """Returns the roles of the data that a model reads, of those that are there."""
    return ("graph", MAIN, *([EDGES] if EDGES in artifacts else []))


class PredictedData(NamedTuple):
    """The data that a model predicts from."""

    # Graph and features.
    read: OpenedData
    # Role -> artifact, with those of the sampling.
    inputs: Mapping[str, Artifact]
    # The graph and features that it was trained on, if they are others; else None.
    learnt: OpenedData | None = None

    def graph(self, model: Artifact, semantic: ModelConfig) -> Graph:
        """Returns the graph with the classes of the model; raises InputError if the graph does not fit the model."""
        if self.learnt is None:
            return self.read.graph
        artifacts = self.read.artifacts
        require_schema(read_schema(self.learnt.artifacts), read_schema(artifacts), artifacts["graph"], model)
        trained, graph = self.learnt.graph, self.read.graph
        if node_rows(make_model(semantic, trained, self.learnt.features, self.learnt.edges)) is not None:
            problem = (
                f"{model.label} has learnt a row for each node without features of the graph that it was trained on"
            )
            raise InputError(problem, "train it on the other graph, or give these nodes features")
        labels = graph.labels
        if graph.task != trained.task:  # it has none
            labels = no_labels(trained.task, len(labels), trained.num_classes)
        return replace(graph, labels=labels, num_classes=trained.num_classes, class_names=trained.class_names)

    def record(self, model: Artifact, evaluation: Way) -> dict[str, str]:
        """Returns the metadata of the file of predictions."""
        trained = (self.learnt or self.read).artifacts
        found = {role: self.read.artifacts[role].version for role in ("graph", "features")}
        found |= {f"trained_{role}": trained[role].version for role in ("graph", "features")}
        return {
            f"graphmill.{name}": each
            for name, each in {"model": model.version, "evaluation": evaluation, **found}.items()
        }
