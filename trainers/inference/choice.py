"""Chooses between exact and sampled evaluation for `eval = "auto"`: the one that a training waits for less.

Compared are the evaluations of ten epochs with the final scores, by the rates of a reference machine (trainers/recipe/costs/evaluation.py):
of a sampled one the first batch, times the batches; of an exact one the rows and edges of each layer, of the nodes that the scored ones
reach. Evaluations that compute few rows and edges are exact in any case. Nothing is timed, so that the choice follows from the recipe, the
graph and the memory of the machine. A training keeps its choice: its checkpoint names it.

All nodes with their edges bound an exact evaluation; if it takes less even so, the graph is not walked. The walk ends when the seconds are
known to be too many. A user's module over whole blocks computes whole neighbourhoods, one batch after
the other, and so more than is counted. Memory: N bytes, as for exact inference of some nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.kernels.types import Array
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.needed import exact_levels
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.costs.evaluation import EPOCHS, ReferenceCosts, reference_costs

FEW = 4_000_000
"""Edges and rows that are computed in a moment: up to here an evaluation is exact."""
FEW_NODES = 1 << 17
"""Training nodes that are scored in any case: it takes a moment."""
Way = Literal["exact", "sampled"]


@dataclass(frozen=True, kw_only=True)
class EvaluationChoice:
    """The way in which a training is evaluated.

    Attributes:
        exact, sampled: seconds of both on the reference machine; None if an evaluation computes few rows and edges. Of an exact evaluation
            that takes more they are those of the layers that showed it, and of one whose bound takes less those of the bound.
        began: whether a checkpoint named the way.
    """

    way: Way
    exact: float | None = None
    sampled: float | None = None
    began: bool = False

    @property
    def numbers(self) -> dict[str, Any]:
        """The choice, for the summary."""
        each = {"exact_evaluation_seconds": self.exact, "sampled_evaluation_seconds": self.sampled}
        return {"evaluation": self.way} | {name: round(value, 3) for name, value in each.items() if value is not None}

    @property
    def sentence(self) -> str:
        """The choice with its reason, in words."""
        how = f'eval = "auto" evaluates by {"sampled" if self.way == "sampled" else "all"} neighbours'
        if self.began:
            return f"{how}, as this training began"
        if self.exact is None or self.sampled is None:
            return f"{how}: at most {FEW:,} edges and rows"
        bound = "at least" if self.way == "sampled" else "at most"
        each = f"{bound} {self.exact:.3g} s by all, about {self.sampled:.3g} s by sampled ones"
        return f"{how}: {each}, for {EPOCHS} epochs and the final scores on a machine of two cores"


def choose_evaluation(
    semantic: ModelConfig, graph: Graph, drawing: Drawing | None, sizes: Sizes
) -> EvaluationChoice | None:
    """Returns the choice for `eval = "auto"`; None if there is nothing to choose.

    Args:
        drawing: the way in which mini-batches draw neighbours; None if nothing is sampled, and evaluation is exact.
        sizes: sizes of the features.
    """
    train, sampling = semantic.train, semantic.sampling
    # Links are scored by the rows of all nodes, which an exact evaluation computes.
    if train.eval != "auto" or drawing is None or sampling is None or graph.links is not None:
        return None
    topology, workspace = graph.topology, parse_size(train.eval_workspace)
    bounds = Bounds(workspace_bytes=workspace, threads=train.num_threads, drawing=drawing)
    sampler, ends = bounds.whole(topology), bounds.ends(topology)

    def levels(node_ids: Array) -> Iterator[tuple[int, int]]:
        return exact_levels(sampler, ends, node_ids, train.layers, workspace // 2)

    valid, *final = (np.array(getattr(graph, f"{split}_ids")) for split in ("valid", *scored_splits(train, graph)))
    scored = np.concatenate(final)
    if _is_few(levels(valid if len(valid) else scored)):
        return EvaluationChoice(way="exact")
    costs = reference_costs(train, sizes, graph.num_classes, memory_bytes())
    batches = [-(-len(nodes) // sampling.batch_size) for nodes in (valid, *final)]
    each = _batch_seconds(costs, semantic, graph, drawing, valid if len(valid) else scored)
    sampled, times = each * (costs.evaluations * batches[0] + sum(batches[1:])), costs.evaluations * (len(valid) > 0)
    *_, most = costs.exact([(topology.num_nodes, int(ends[-1]))] * train.layers, topology.num_nodes)
    if (times + 1) * most <= sampled:
        return EvaluationChoice(way="exact", exact=(times + 1) * most, sampled=sampled)
    exact = 0.0
    for nodes, count in ((valid, times), (scored, 1)):
        before = exact
        for seconds in costs.exact(levels(nodes), topology.num_nodes) if len(nodes) else ():
            exact = before + count * seconds
            if exact > sampled:
                return EvaluationChoice(way="sampled", exact=exact, sampled=sampled)
    return EvaluationChoice(way="exact", exact=exact, sampled=sampled)


def _is_few(levels: Iterator[tuple[int, int]]) -> bool:
    """Returns whether the layers of an exact evaluation compute few rows and edges."""
    cost = 0
    return all((cost := cost + nodes + edges) <= FEW for nodes, edges in levels)


def _batch_seconds(
    costs: ReferenceCosts, semantic: ModelConfig, graph: Graph, drawing: Drawing, node_ids: Array
) -> float:
    """Returns the seconds of the first batch of a sampled evaluation of some nodes."""
    sampling, seed = semantic.sampling, semantic.sampling_seed
    assert sampling is not None
    item = next(evaluation_plan(node_ids, batch_size=sampling.batch_size, seed=seed).batches(0))
    blocks = drawing.sampler(graph.topology, seed=seed).sample(item.key, item.seeds, transpose="none")
    rows = [*(block.num_src for block in blocks), blocks[-1].num_dst]
    return costs.batch(rows, [len(block.indices) for block in blocks])


def scored_splits(train: TrainConfig, graph: Graph) -> tuple[str, ...]:
    """Returns the splits on which the trained model is scored: validation, test, and training if its nodes are few or asked for.

    Training nodes are most of the labelled ones as a rule, and their score decides nothing, but for a graph without validation nodes.
    """
    others = len(graph.valid_ids) + len(graph.test_ids)
    few = len(graph.train_ids) <= max(others, FEW_NODES) or not len(graph.valid_ids)
    return ("train", "valid", "test") if few or train.score_train else ("valid", "test")
