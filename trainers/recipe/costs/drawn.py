"""A bound on batches that follows from some drawn ones, where the graph exists: fan-outs alone allow up to twice what a batch has.

Batches of one plan are seeds in random order, so their sizes differ little. The bound is the largest of a few drawn ones and a margin,
which grows as batches have fewer seeds. Cost: the time of drawing `DRAWN` batches, once per graph and way of sampling, and a sampler's
memory; so a graph that does not fit in memory, whose pages would be read at random, keeps the bound of its fan-outs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import open_graph
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.trainers.recipe.costs.batch import BatchSizes, draw_batches

DRAWN, SECONDS = 4, 1.0
"""Batches that are drawn, and seconds after which no further one is."""
SHARE, SPREAD = 0.05, 1.5
"""Margin over the largest drawn batch: this share, and this one over the root of its seeds."""

_FOUND: dict[str, BatchSizes | None] = {}
"""Graph and way of sampling -> the largest drawn batch, of this process."""


def drawn_bound(sampling: SamplingConfig, sizes: Sizes, bound: BatchSizes) -> BatchSizes:
    """Returns the lesser of a bound and that of drawn batches, layer by layer; the bound if none can be drawn.

    Args:
        sampling: the table [sampling].
        sizes: sizes of the graph; batches are drawn if it is among its artifacts.
        bound: the most that the fan-outs can draw.
    """
    graph = sizes.artifacts.get("graph")
    if not isinstance(graph, Artifact) or not fits_memory(sizes.topology_bytes):
        return bound
    if not sizes.num_train or is_reference(sampling.method):
        return bound
    tables = sizes.artifacts.get("sampling_tables")
    if "sampling_tables" in sampling.inputs and tables is None:
        return bound
    key = f"{graph.path} {tables and tables.path} {sampling!r}"
    if key not in _FOUND:
        _FOUND[key] = _largest(dict(sizes.artifacts), sampling)
    if (found := _FOUND[key]) is None:
        return bound
    margin = 1 + SHARE + SPREAD / sqrt(found.rows[-1])
    rows, edges = ([int(margin * each) for each in sizes] for sizes in (found.rows, found.edges))
    return bound._replace(
        rows=tuple(map(min, bound.rows, [*rows[:-1], bound.rows[-1]])), edges=tuple(map(min, bound.edges, edges))
    )


def _largest(artifacts: Mapping[str, Artifact], sampling: SamplingConfig) -> BatchSizes | None:
    """Returns the largest of some batches of a training's first epoch; None if it has no seeds."""
    opened = open_graph(artifacts["graph"])
    plan = EpochPlan(np.array(opened.train_ids), sampling.batch_size, seed=0)
    drawing = open_drawing(sampling, artifacts)
    if drawing is None or not plan.num_batches:
        return None
    sampler = drawing.with_fanouts(sampling.largest_fanouts).sampler(opened.topology, seed=0)
    drawn = draw_batches(plan, sampler, "none", DRAWN, most_seconds=SECONDS)
    return drawn.largest if drawn.blocks else None
