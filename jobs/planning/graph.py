"""The graph from which a plan draws batches: the built one, or one that is drawn to stand in for it.

A graph that is not built yet is known by its source's survey: numbers of nodes, edges and training nodes. Another one with as many edges
per node stands in for it, of at most `MOST_EDGES` edges: of a generator the one that it draws itself, with fewer nodes and edges if need
be; of files an R-MAT graph, whose skewed degrees give batches with hubs, as most graphs have. A graph without hubs that lies in files reads
up to 3 times the rows that its stand-in does. Budgets in bytes are then counted as shares of the features.

Of a built graph `evaluation_lines` says how trainings with `eval = "auto"` are evaluated, for `graphmill inspect`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from graphmill.assets.budgets.config import AUTO
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import Graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import KnownSizes
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.sources.generated.generators import CitationConfig, GeneratedConfig, RmatConfig, SbmConfig
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.assets.tasks.links import Links
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import Csc, build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.types import Stream, Topology, id_dtype
from graphmill.trainers.recipe.costs.known import GraphAtHand, graph_at_hand


def evaluation_lines(pipeline: Pipeline, home: Path) -> list[str]:
    """Returns a line for each way and reason, with the names of the trainings; of several splits the first one counts."""
    from graphmill.trainers.inference.choice import choose_evaluation

    one, known, found = pipeline.by_split[0], KnownSizes(Store(home)), list[tuple[str, str]]()
    for step in training_steps(one, preprocessing_steps(one, home), home):
        semantic = step.configs[0]
        if semantic.train.eval != "auto" or semantic.sampling is None:
            continue
        sources = {role: known.artifacts(source)[0] for role, source in step.sources.items()}
        built = {role: artifact for role, artifact in sources.items() if artifact is not None}
        if "graph" in built:
            at_hand = built_graph(built, semantic.sampling)
            chosen = choose_evaluation(semantic, at_hand.graph, at_hand.drawing, known.sizes(step))
            found += [] if chosen is None else [(step.name, chosen.sentence)]
    return list(named_sentences(found))


def named_sentences(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields each sentence once, behind the names of all trainings that it is about."""
    names: dict[str, list[str]] = {}
    for name, sentence in found:
        names.setdefault(sentence, []).append(name)
    for sentence, each in names.items():
        yield f"{', '.join(each)}: {sentence}"


MOST_EDGES = 8_000_000
"""Edges of a graph that stands in for a larger one."""


def built_graph(artifacts: dict[str, Artifact], sampling: SamplingConfig | None) -> GraphAtHand:
    """Returns the graph of an artifact, with the way in which neighbours are drawn.

    Args:
        artifacts: role -> artifact; the graph is among them, and tables of weighted sampling where they exist.
        sampling: the table [sampling]; None if nothing is sampled.
    """
    tables = sampling is not None and "sampling_tables" in sampling.inputs and "sampling_tables" not in artifacts
    drawing = None if sampling is None else uniform(sampling) if tables else open_drawing(sampling, artifacts)
    return graph_at_hand(artifacts, drawing)


def uniform(sampling: SamplingConfig) -> Drawing:
    """Returns the drawing of equally likely neighbours, in the place of one whose tables or relations do not exist yet."""
    numbers = tuple(max(each.values()) if isinstance(each, dict) else each for each in sampling.fanouts)
    plain = SamplingConfig(fanouts=numbers, batch_size=sampling.batch_size)
    return Drawing(neighbours=plain)


def stand_in(
    sizes: Sizes, seed: int, sampling: SamplingConfig | None, source: GraphConfig | None = None
) -> GraphAtHand:
    """Returns a drawn graph in the place of one that is not built.

    Args:
        source: the table [graph]; None if it is not known.

    Raises:
        InputError: the survey knows of no training nodes.
    """
    if not sizes.num_nodes or not sizes.num_train:
        problem = "the source does not say how many nodes or links train, before the graph is built"
        raise InputError(problem, "build the graph first: graphmill build PIPELINE")
    scaled = scaled_sizes(sizes)
    num_nodes, dtype = scaled.num_nodes, id_dtype(scaled.num_nodes)
    csc = _drawn(source, num_nodes) if is_drawn(source) else _like_most(num_nodes, scaled.num_edges, seed)
    topology = Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)
    order = permutation(key(seed, Stream.SPLITS), num_nodes).astype(dtype)
    links = None if source is None or source.links is None else _links(topology, scaled, seed)
    ends = np.cumsum([scaled.num_train, scaled.num_valid, scaled.num_test]) * (links is None)
    train_ids, valid_ids, test_ids = (np.sort(each) for each in np.split(order, ends)[:3])
    classes = max(2, sizes.num_classes)
    graph = Graph(
        topology=topology,
        labels=np.zeros(num_nodes, np.int32),
        train_ids=train_ids,
        valid_ids=valid_ids,
        test_ids=test_ids,
        num_classes=classes,
        class_names=tuple(map(str, range(classes))),
        links=links,
    )
    return GraphAtHand(graph=graph, drawing=None if sampling is None else uniform(sampling))


def _links(topology: Topology, sizes: Sizes, seed: int) -> Links:
    """Returns edges of a drawn graph as links, split in the shares of the training, validation and test links."""
    target = np.repeat(np.arange(topology.num_nodes, dtype=topology.indices.dtype), np.diff(topology.indptr))
    counts = np.array([sizes.num_train, sizes.num_valid, sizes.num_test], np.int64)
    chosen = permutation(key(seed, Stream.SPLITS, 1), len(target))[: counts.sum()]
    chosen = chosen[topology.indices[chosen] != target[chosen]]
    split = np.searchsorted(np.cumsum(counts / counts.sum()), (np.arange(len(chosen)) + 0.5) / max(1, len(chosen)))
    ends = topology.indices[chosen], target[chosen]
    order = np.lexsort(ends[::-1])
    return Links(
        source=ends[0][order],
        target=ends[1][order],
        relation=None,
        split=split[order].astype(np.uint8),
        reverse_of=(0,),
    )


def is_drawn(source: GraphConfig | None) -> TypeGuard[GeneratedConfig]:
    """Returns whether a source draws a graph of any size, so that a smaller one of it can stand in for the whole."""
    return isinstance(source, SbmConfig | RmatConfig | CitationConfig)


def _drawn(source: GeneratedConfig, num_nodes: int) -> Csc:
    """Returns the graph of a generator, with as many edges per node and fewer nodes."""
    edges = max(1, round(source.edges * num_nodes / source.nodes))
    smaller = replace(source, nodes=num_nodes, edges=edges, classes=min(source.classes, num_nodes))
    src, dst = smaller.draw_edges(usable_cores(), 0, edges)
    how: dict[str, Any] = {
        "undirected": source.undirected,
        "duplicates": source.duplicates,
        "self_loops": source.self_loops,
    }
    return build_csc(src, dst, num_nodes, **how)


def _like_most(num_nodes: int, num_edges: int, seed: int) -> Csc:
    """Returns an R-MAT graph in the place of one of which only the numbers of nodes and edges are known."""
    src, dst = rmat_edges(num_nodes, num_edges, seed)
    return build_csc(src, dst, num_nodes, undirected=False, duplicates="keep", self_loops="keep")


def scaled_sizes(sizes: Sizes) -> Sizes:
    """Returns the sizes of the graph that stands in for one of other sizes; smaller ones, if that one is large."""
    scale = min(1.0, MOST_EDGES / max(1, sizes.num_edges))
    if scale == 1.0:
        return sizes
    names = ("num_nodes", "num_edges", "num_train", "num_valid", "num_test", "num_rows", "num_edge_rows")
    found = replace(sizes, **{name: ceil(scale * getattr(sizes, name)) for name in names})
    return replace(found, configs={role: _scaled(role, config, sizes) for role, config in sizes.configs.items()})


def _scaled(role: str, config: Any, sizes: Sizes) -> Any:
    """Returns the config of a step; budgets in bytes become shares of the features."""
    if role != "budgets" or not sizes.feature_bytes:
        return config
    shares = {}
    for level in ("device", "host"):
        size = getattr(config.memory, level)
        if size != AUTO:
            share = min(1.0, parse_size(size, sizes.feature_bytes) / sizes.feature_bytes)
            shares[level] = f"{100 * share:.6f}%" if share else 0
    return replace(config, memory=replace(config.memory, **shares))
