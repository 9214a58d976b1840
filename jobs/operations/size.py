"""How big the work of a pipeline is: whether its steps get processes of their own, and which steps take a slot of the pool `memory`.

Everything is judged by the pipeline file and the sizes of the files that it names, without opening one, because Dagster asks whenever it
loads the definitions. The bytes of samples and packed chunks are an upper bound.
"""

from itertools import accumulate
from math import ceil
from operator import mul

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.fanouts import most_drawn
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
    num_bytes = raw_bytes(pipeline)
    return num_bytes >= BIG_FILE_BYTES or built_bytes(pipeline, num_bytes) >= BIG_BUILD_BYTES


def takes_memory(pipeline: Pipeline, stage: str) -> bool:
    """Tells whether a stage's step takes a slot of the pool `memory`: big stages run one at a time, so that two do not share the memory."""
    return stage not in LIGHT and is_big(pipeline)


def raw_bytes(pipeline: Pipeline) -> int:
    """Returns the bytes of all files that a pipeline reads from outside: those of a folder or a pattern added up."""
    tables = pipeline.tables.get("features")
    named = [] if tables is None else [tables, *getattr(tables, "named", {}).values(), getattr(tables, "main", None)]
    return bytes_named(pipeline.graph, *named)


def built_bytes(pipeline: Pipeline, num_raw_bytes: int) -> int:
    """Returns an upper bound of the bytes of samples and packed chunks, 0 if the pipeline stores none.

    A batch of b seeds has at most b (1 + f1 + f1 f2 + ...) inputs and no more than the graph has nodes. Each takes 8 bytes per input and
    edge in the samples, and a row of features in a packed chunk.

    Args:
        num_raw_bytes: number of bytes of its files.
    """
    samples, sampling = pipeline.table("samples"), pipeline.sampling
    if samples is None or sampling is None:
        return 0
    num_nodes = getattr(pipeline.graph, "nodes", None) or num_raw_bytes // LEAST_EDGE_BYTES
    if not isinstance(num_nodes, int) or not num_nodes:
        return 0
    drawn = map(most_drawn, sampling.fanouts)
    inputs = 1 + sum(accumulate((fanout if fanout > 0 else num_nodes for fanout in drawn), mul))
    batch = min(num_nodes, sampling.batch_size)
    per_epoch = ceil(num_nodes / batch) * min(num_nodes, batch * inputs)
    epochs = (samples.epochs or sampling.reuse or 1) + samples.evaluate
    width = getattr(pipeline.graph, "features", 0)
    row_bytes = 4 * width if isinstance(width, int) and pipeline.table("packed") is not None else 0
    return epochs * per_epoch * (8 + row_bytes)
