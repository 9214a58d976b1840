"""Opens a run step by step: its graph, what its technique reads, the model, and what sources of mini-batches need.

At the start of a fine-tuning a model takes the weights that another one has learnt, on the same graph or another one of its schema.
Everything else of a training begins anew: optimiser, learning rate, random decisions. The start is an input of the model's artifact, so its
version is part of the model's, and a checkpoint of the training goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from torch import Tensor

from graphmill.assets.costs.needs import sizes_of
from graphmill.assets.features.config import EDGES, MAIN
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.batches.links import LinkBatching
from graphmill.trainers.inference.choice import EvaluationChoice, Way, choose_evaluation
from graphmill.trainers.inference.trained import trained_data
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.build import PARAMETERS, build_model, model_types, require_weights, send_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.own import Model
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.known_mistakes import NO_SEEDS, ranks_mistake
from graphmill.trainers.recipe.links import link_problems
from graphmill.trainers.recipe.queue_bytes import batches_ahead, queue_bounds
from graphmill.trainers.recipe.recipe import START
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.tasks.opened import open_task
from graphmill.trainers.tasks.schema import differences, read_schema


def take_weights(model: Model, start: Artifact, inputs: Mapping[str, Artifact]) -> None:
    """Gives a model the weights of a trained one; buffers, such as running statistics, are taken, too.

    Args:
        inputs: role -> artifact of the training; a rank without the features leaves the comparison of data to the first one.

    Raises:
        InputError: the data or the shapes of the weights differ; it lists all differences.
    """
    from safetensors.torch import load_file

    weights = load_file(start.file("weights.safetensors"))
    found = [*_of_data(model, start, inputs), *_of_shapes(model.state_dict(), weights)]
    if found:
        listed = "".join(f"\n  {each}" for each in found)
        problem = f"{start.label} cannot be the start of a training on {inputs['graph'].label}:{listed}"
        raise InputError(
            problem,
            "give the table the keys of that model, and build the graph as that of its training; or leave start out",
        )
    model.load_state_dict(weights)


def _of_data(model: Model, start: Artifact, inputs: Mapping[str, Artifact]) -> Iterator[str]:
    """Yields how the data of the training differ from those of the start's training."""
    same = all(
        start.inputs[role]["version"] == inputs[role].version for role in ("graph", "features") if role in inputs
    )
    if same or "features" not in inputs:
        return
    yield from differences(read_schema(trained_data(start)), read_schema(inputs))
    if node_rows(model) is not None:
        yield "it has learnt a row for each node without features of another graph"


def _of_shapes(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Yields how the names and shapes of weights differ."""
    for name in dict.fromkeys([*wanted, *weights]):
        here, there = (tuple(of[name].shape) if name in of else None for of in (wanted, weights))
        if here is None:
            yield f"its {name} {there} has no place in this table's model"
        elif there is None:
            yield f"it lacks {name} {here}"
        elif here != there:
            yield f"its {name} has the shape {there}, and here {here}"


def open_run(
    inputs: Mapping[str, Artifact],
    reads: Mapping[str, Artifact],
    semantic: ModelConfig,
    execution: TrainExecution,
    ranks: Ranks = ALONE,
    began: str = "",
) -> tuple[Run, EvaluationChoice | None]:
    """Returns a run with all its parts, and the way of its evaluation if the recipe leaves that open; all ranks call it.

    Args:
        inputs, reads: role -> artifact: those that decide the weights, and those that only change how the training runs.
        semantic, execution: the recipe, with the number of threads in place of "auto", and how it is carried out.
        began: way of the evaluation that the checkpoint names which the training goes on from, at the first rank; "" for none.

    Raises:
        InputError: the graph has no training nodes, an artifact does not fit, or the model cannot be trained on them.
    """
    run = Run(
        graph=_open_graph(inputs, semantic.train, ranks.world),
        inputs=inputs,
        reads=reads,
        semantic=semantic,
        execution=execution,
        drawing=open_drawing(semantic.sampling, inputs),
        ranks=ranks,
    )
    task = open_task(run.graph)
    task.require(semantic.train)
    run.loss = task.loss(semantic.train)
    if run.graph.links is not None:
        _require_links(semantic, run.graph.task, execution)
        sampling = semantic.sampling or SamplingConfig(fanouts=(-1,))  # with the defaults of its keys about negatives
        graph, seed = run.graph, semantic.sampling_seed
        run.edges = training_edges(run.graph.links, graph.topology, sampling, seed, graph.relations)
    chosen = _choose_evaluation(run, began)
    if semantic.train.eval == "auto":  # without sampling evaluation is exact
        way = "exact" if chosen is None else chosen.way
        run.semantic = replace(semantic, train=replace(semantic.train, eval=way))
    find_technique(semantic.train.trainer).open_data(run)
    run.model = _open_model(run)
    device = run.features.device
    run.loss = run.loss.sent(lambda tensor: device.send_tensor(tensor, PARAMETERS, device.traffic))
    run.batching = _open_batching(run)
    return run, chosen


def _require_links(semantic: ModelConfig, kind: str, execution: TrainExecution) -> None:
    """Refuses a recipe that cannot train on edges."""
    sampling, train = semantic.sampling, semantic.train
    asked = kind, sampling, train.device == "cuda", execution.samples == "stored"
    for _, text in link_problems(train, *asked):
        problem, _, remedy = text.rpartition(": ")
        raise InputError(problem, remedy)


def _choose_evaluation(run: Run, began: str) -> EvaluationChoice | None:
    """Returns the way of the evaluation if the recipe leaves that open; all ranks get that of the first one."""
    sizes = sizes_of({**run.inputs, **run.reads})
    assert sizes is not None
    chosen = choose_evaluation(run.semantic, run.graph, run.drawing, sizes)
    if chosen is None:
        return None
    if began and run.ranks.first:
        chosen = replace(chosen, way=cast("Way", began), began=began != chosen.way)
    return replace(chosen, way=run.ranks.tell(chosen.way))


def _open_graph(inputs: Mapping[str, Artifact], train: TrainConfig, world: int) -> Graph:
    """Returns the graph, which has what a training needs."""
    graph = open_graph(inputs["graph"])
    seeds = open_task(graph).size("train")
    if seeds == 0:
        raise InputError(f"graph {inputs['graph'].version[:12]} {NO_SEEDS[0]}", NO_SEEDS[1])
    if found := ranks_mistake(train, world, seeds):
        raise found
    for role in (MAIN, EDGES):
        require_range(train.dtype, inputs.get(role))
    require_weights(train, graph.topology)
    return graph


def _open_model(run: Run) -> Model:
    """Returns the model of a run on its device, with the initial parameters, or with those of its start.

    Raises:
        InputError: the model reads relations or weights that the drawn neighbours do not have, or cannot be made.
    """
    semantic, graph, width, drawing = run.semantic, run.graph, run.features.source.width, run.drawing
    types = model_types(run.semantic.train, graph.topology, run.features.stored)
    edge_width = 0 if run.edge_rows is None else run.edge_rows.width
    sizes = semantic.train, width, graph.num_classes, semantic.seed, len(graph.relations), types, edge_width
    model = build_model(*sizes)
    walks = drawing is not None and drawing.neighbours.method == "random_walk"
    if walks and isinstance(model, LayeredModel) and model.reads_relations:
        problem = "the model reads relations, and nodes that random walks visit have none"
        raise InputError(problem, 'set [sampling] method = "uniform" or "weighted", or take another model')
    by_relation = drawing is not None and drawing.neighbours.by_relation
    if by_relation and any(word in (model.edge_weight or "") for word in ("gcn", "sum")):
        problem = f"the model asks for edge weights {model.edge_weight!r}, which suppose that rows are drawn uniformly"
        raise InputError(f"{problem}, and fanouts has numbers per relation", "give one number per layer")
    if (
        drawing is not None
        and drawing.neighbours.before
        and any(word in (model.edge_weight or "") for word in ("gcn", "sum", "degree"))
    ):
        problem = f"the model asks for edge weights {model.edge_weight!r}, which read degrees, and these count later edges too"
        raise InputError(problem, "leave `before` out of [sampling], or take another model")
    if START in run.inputs:
        take_weights(model, run.inputs[START], run.inputs)
    return send_model(model, run.features.device)


def _open_batching(run: Run) -> Batching:
    queue_bytes, most_queue_bytes = queue_bounds(run.execution.queue)
    made: Any = Batching
    if run.edges is not None:
        made = partial(LinkBatching, edges=run.edges, exclude_targets=not run.whole_batches)
    return made(
        topology=run.graph.topology,
        labels=run.graph.labels,
        plan=run.plan,
        edge_weight=run.model.edge_weight,
        transpose=run.model.transpose,
        queue_bytes=queue_bytes,
        most_queue_bytes=most_queue_bytes,
        ahead=batches_ahead(run.execution.queue),
        dtype=kept_dtype(run.semantic.train.dtype),
        edge_rows=run.edge_rows,
        device=run.features.device,
    )


def require_range(dtype: str, features: Artifact | None) -> None:
    """Raises InputError if features of float64 have a value that the float32 of a model cannot hold."""
    beyond = features.summary["numbers"].get("beyond_float32") if features is not None and dtype != "float64" else None
    if beyond:
        problem = f"features {beyond}, which float32 cannot hold, and dtype = '{dtype}' computes in it"
        raise InputError(problem, 'scale the features, or set dtype = "float64" in [[train]]')
