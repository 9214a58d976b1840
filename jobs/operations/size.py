"""How big the work of a pipeline is: whether its steps get processes of their own, and which steps take a slot of the pool `memory`.

Everything is judged by the pipeline file and the sizes of the files that it names, without opening one, because Dagster asks whenever it
loads the definitions. The bytes of samples and packed chunks are an upper bound.
"""

from math import ceil

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.storage.names.patterns import bytes_named

BIG_EDGES = 20_000_000
BIG_FILE_BYTES = 256 << 20
BIG_BUILD_BYTES = 2 << 30
LEAST_EDGE_BYTES = 16
"""Bytes of an edge in a file of arrays; a file of n bytes has at most n / 16 nodes that matter."""
LIGHT = ("budgets",)
"""Stages whose work takes little memory on every graph."""


def is_big(pipeline: Pipeline) -> bool:
    """Tells whether each step should have a process of its own: graph, files, samples or packed chunks are large."""
    edges = getattr(pipeline.graph, "edges", 0)
    if isinstance(edges, int) and edges >= BIG_EDGES:
        return True
    return raw_bytes(pipeline) >= BIG_FILE_BYTES or built_bytes(pipeline) >= BIG_BUILD_BYTES


def takes_memory(pipeline: Pipeline, stage: str) -> bool:
    """Tells whether a stage's step takes a slot of the pool `memory`: big stages run one at a time, so that two do not share the memory."""
    return stage not in LIGHT and is_big(pipeline)


def raw_bytes(pipeline: Pipeline) -> int:
    """Returns the bytes of all files that a pipeline reads from outside: those of a folder or a pattern added up."""
    tables = pipeline.tables.get("features")
    named = [] if tables is None else [tables, *getattr(tables, "named", {}).values(), getattr(tables, "main", None)]
    return bytes_named(pipeline.graph, *named)


def file_sizes(pipeline: Pipeline) -> Sizes:
    """Returns the most that the pipeline file alone tells of a graph: that of a generator, or as much as its files have bytes for."""
    graph, most = pipeline.graph, raw_bytes(pipeline) // LEAST_EDGE_BYTES
    found = {name: getattr(graph, name, 0) for name in ("nodes", "edges", "features")}
    nodes, edges, width = (each if isinstance(each, int) else 0 for each in found.values())
    return Sizes(
        num_nodes=nodes or most,
        num_edges=edges * (1 + bool(getattr(graph, "undirected", False))) or most,
        num_train=max(1, int(nodes * getattr(graph, "train_ratio", 1.0))) if nodes else most,
        width=width,
        row_bytes=4 * width,
    )


def built_bytes(pipeline: Pipeline) -> int:
    """Returns an upper bound of the bytes of samples and packed chunks, 0 if the pipeline stores none; every node counts as a seed."""
    samples, sampling, sizes = pipeline.table("samples"), pipeline.sampling, file_sizes(pipeline)
    if samples is None or sampling is None or not sizes.num_nodes:
        return 0
    batch = min(sizes.num_nodes, sampling.batch_size)
    bound = batch_bound(sampling, batch, sizes)
    packed = bound.inputs * sizes.row_bytes * (pipeline.table("packed") is not None)
    epochs = (samples.epochs or sampling.reuse or 1) + samples.evaluate
    return epochs * ceil(sizes.num_nodes / batch) * (bound.record_bytes + packed)
