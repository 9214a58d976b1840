"""Chooses between exact and sampled evaluation for `eval = "auto"`: exact if it costs no more than training for an epoch.

A cost is a number of edges and of computed rows, layer by layer: of an exact evaluation those of the nodes that the scored ones reach, of
an epoch those of its first batch times the number of batches. Nothing is timed, so that the choice follows from the graph and the recipe.
The walk ends when the cost is known to be too high. A user's module over whole blocks computes whole neighbourhoods, one batch after the
other, and so more than is counted. Memory: N bytes, as for exact inference of some nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Array
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.needed import exact_cost
from graphmill.trainers.recipe.config import ModelConfig

FEW = 4_000_000
"""Edges and rows that are computed in a moment: up to here an evaluation is exact however short an epoch is."""


@dataclass(frozen=True, kw_only=True)
class EvaluationChoice:
    """The way in which a training is evaluated.

    Attributes:
        way: the way.
        exact: cost of an exact evaluation; if it is above the limit, of the layers that showed it.
        epoch: cost of an epoch.
    """

    way: Literal["exact", "sampled"]
    exact: int
    epoch: int

    @property
    def numbers(self) -> dict[str, Any]:
        """The choice, for the summary."""
        return {"evaluation": self.way, "exact_evaluation_cost": self.exact, "epoch_cost": self.epoch}

    @property
    def sentence(self) -> str:
        """The choice, in words."""
        there = f"all neighbours are {self.exact:,} edges and rows or more, an epoch has {self.epoch:,}"
        return (
            f'eval = "auto" evaluates by {"sampled neighbours" if self.way == "sampled" else "all neighbours"}: {there}'
        )


def choose_evaluation(semantic: ModelConfig, graph: Graph, drawing: Drawing | None) -> EvaluationChoice | None:
    """Returns the choice for `eval = "auto"`; None if there is nothing to choose.

    Args:
        graph: the graph. The cost is that of its validation nodes, or without any of all nodes of its splits.
        drawing: the way in which mini-batches draw neighbours; None if nothing is sampled, and evaluation is exact.
    """
    train, sampling = semantic.train, semantic.sampling
    if train.eval != "auto" or drawing is None or sampling is None:
        return None
    topology, seed = graph.topology, semantic.sampling_seed
    plan = EpochPlan(np.array(graph.train_ids), sampling.batch_size, seed=seed)
    item = next(plan.batches(0))
    blocks = drawing.sampler(topology, seed=seed).sample(item.key, item.seeds, transpose="none")
    epoch = plan.num_batches * sum(block.num_dst + len(block.indices) for block in blocks)
    workspace, limit = parse_size(train.eval_workspace), max(FEW, epoch)
    bounds = Bounds(workspace_bytes=workspace, threads=train.num_threads, drawing=drawing)
    sampler, ends = bounds.whole(topology), bounds.ends(topology)
    exact = exact_cost(sampler, ends, scored_nodes(graph), train.layers, workspace // 2, limit)
    return EvaluationChoice(way="exact" if exact <= limit else "sampled", exact=exact, epoch=epoch)


def scored_nodes(graph: Graph) -> Array:
    """Returns ids[n], the nodes that are scored after an epoch; without validation nodes those that are scored at the end."""
    return np.array(graph.valid_ids) if len(graph.valid_ids) else np.concatenate(graph.splits)
