"""The sizes of a table's largest mini-batch, before one is drawn or read."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from graphmill.assets.building.needs import Sizes
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.sampling.config import SamplingConfig

BLOCK_BYTES = 28
"""Bytes of a block per destination, without a transpose: two bounds, and room for weights."""


class BatchSizes(NamedTuple):
    """The largest batch of an epoch.

    Attributes:
        count: number of batches of an epoch.
        rows: rows of each layer: rows[0] are the inputs, rows[l + 1] the outputs of layer l, the last ones the seeds.
        edges: number of edges that each layer aggregates over.
        exact: whether the inputs and edges were counted when samples were stored.
    """

    count: int
    rows: tuple[int, ...]
    edges: tuple[int, ...]
    exact: bool = False

    @property
    def inputs(self) -> int:
        """Number of input rows."""
        return self.rows[0]

    def block_bytes(self, id_bytes: int, transposed: int) -> int:
        """Returns the bytes of the arrays of its blocks.

        Args:
            id_bytes: bytes of a node id.
            transposed: number of the layers, from the top, whose blocks have a transpose.
        """
        found = 0
        for layer, edges in enumerate(self.edges):
            sources, targets = self.rows[layer], self.rows[layer + 1]
            found += 4 * edges + 8 * targets + id_bytes * sources
            if layer >= len(self.edges) - transposed:
                found += 8 * edges + 8 * sources
        return found


def batch_sizes(sampling: SamplingConfig, sizes: Sizes) -> BatchSizes:
    """Returns the sizes of the largest batch: of stored samples, or the most that fan-outs can draw.

    Args:
        sampling: the table [sampling].
        sizes: sizes of the graph; stored samples of the same batches are among its artifacts, if the training reads them.
    """
    count = max(1, ceil(sizes.num_train / sampling.batch_size))
    seeds = ceil(sizes.num_train / count)
    artifact = sizes.artifacts.get("samples")
    if artifact is None:
        bound = batch_bound(sampling, seeds, sizes, sampling.largest_fanouts)
        return BatchSizes(count=count, rows=bound.rows, edges=bound.edges)
    if artifact.config.get("plan") == "parts":  # parts may have unequal numbers of seeds
        count, seeds = artifact.summary["numbers"]["num_batches"], min(sampling.batch_size, sizes.num_train)
    # The largest of each kind, which may be those of different batches; behind those of training stand those of evaluations.
    trained = artifact.config["epochs"] * count
    edges = [int(each) for each in artifact.array("num_edges")[:trained].max(axis=0)]
    return BatchSizes(
        count=count,
        rows=_rows(seeds, edges, int(artifact.array("num_inputs")[:trained].max())),
        edges=tuple(edges),
        exact=True,
    )


def whole_batch(layers: int, sizes: Sizes) -> BatchSizes:
    """Returns the one batch of a full-graph training: all nodes and edges, in every layer."""
    rows, edges = (sizes.num_nodes,) * (layers + 1), (sizes.num_edges,) * layers
    return BatchSizes(count=1, rows=rows, edges=edges, exact=sizes.exact)


def _rows(seeds: int, edges: list[int], inputs: int) -> tuple[int, ...]:
    """Returns the rows of each layer: every edge brings another node, up to the inputs."""
    rows = [seeds]
    for each in reversed(edges):
        rows.insert(0, min(inputs, rows[0] + each))
    rows[0] = inputs
    return tuple(rows)
