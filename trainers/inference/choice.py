"""Chooses between exact and sampled evaluation for `eval = "auto"`: the one that a training waits for less.

Compared are the evaluations of ten epochs with the final scores, by the rates of a reference machine of two cores: of a
sampled one the first batch, times the batches; of an exact one the rows and edges of each layer, of the nodes that the scored ones reach.
Evaluations that compute few rows and edges are exact in any case. Nothing is timed, so that the choice follows from the recipe, the
graph and the memory of the machine: what is measured differs from run to run, and so would scores. The terms are those of `graphmill plan`
(trainers/recipe/costs/forecast.py), which has this machine's own rates. A training keeps its choice: its checkpoint names it.

All nodes with their edges bound an exact evaluation; if it takes less even so, the graph is not walked. The walk ends when the seconds are
known to be too many. A user's module over whole blocks computes whole neighbourhoods, one batch after the other,
and so more than is counted. Memory: N bytes, as for exact inference of some nodes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.kernels.types import Array
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.needed import exact_levels
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.costs.forecast import summed_columns
from graphmill.trainers.recipe.costs.step import layer_widths

ROW, EDGE, DRAW, BYTE = 2e-9, 2e-10, 2e-8, 2e-10
"""Seconds of an input column of a row that is mapped, of a column of an edge that is summed, of a drawn edge, and of a gathered byte."""
BATCH = 2e-3
"""Seconds of a batch apart from its rows and edges."""
DISK, PAGES = 1e9, 2e8
"""Bytes of a disk per second, in order and of scattered pages."""
EPOCHS = 10
"""Epochs whose evaluations count. That of the table does not: a training that is made longer later evaluates as it began."""


@dataclass(frozen=True, kw_only=True)
class ReferenceCosts:
    """The costs of evaluations of one recipe on the reference machine.

    Attributes:
        width, row_bytes: columns and bytes of a row of the features.
        missing: share of the features that memory cannot hold.
    """

    train: TrainConfig
    width: int
    row_bytes: int
    num_classes: int
    missing: float

    @property
    def evaluations(self) -> int:
        """Number of evaluations after `EPOCHS` epochs; the last epoch is always evaluated."""
        every = self.train.eval_every
        return max(1, -(-EPOCHS // every)) if every else 1

    def exact(self, levels: Iterable[tuple[int, int]], num_nodes: int) -> Iterator[float]:
        """Yields the seconds of an exact evaluation so far, from the last layer down; the last number is that of all layers.

        Args:
            levels: (nodes, their edges) that each layer computes, from the last one down.
        """
        widths, seconds, nodes, edges = self._widths, 0.0, 0, 0
        for layer, (nodes, edges) in zip(reversed(range(len(widths))), levels, strict=False):
            if layer + 1 < len(widths):
                seconds += ROW * widths[layer + 1][0] * nodes  # which the layer above reads
            seconds += EDGE * self._summed(layer) * edges
            yield seconds
        inputs = min(num_nodes, nodes + edges)
        mapped = ROW * self._first_columns * inputs
        yield seconds + max(mapped, inputs * self.row_bytes / DISK * (self.missing > 0))

    def batch(self, rows: Sequence[int], edges: Sequence[int]) -> float:
        """Returns the seconds of a sampled batch, whose rows come at random, by the input rows of each layer and the seeds."""
        read = self.missing * rows[0] * (PAGE_BYTES + self.row_bytes) / PAGES
        seconds = BATCH + DRAW * sum(edges) + BYTE * rows[0] * self.row_bytes
        seconds += ROW * self.width * rows[0] * self.train.projects
        for layer, (wide, _) in enumerate(self._widths):
            mapped = rows[layer] if self.train.model == "gat" else rows[layer + 1]
            seconds += ROW * wide * mapped + EDGE * self._summed(layer) * edges[layer]
        return max(seconds, read)

    @property
    def _widths(self) -> list[tuple[int, int]]:
        return layer_widths(self.train, self.width, self.num_classes)

    @property
    def _first_columns(self) -> int:
        """Input columns of a node's row that are mapped before the second layer: by a projection and by the first layer."""
        return self.width * self.train.projects + self._widths[0][0]

    def _summed(self, layer: int) -> int:
        return summed_columns(self.train, *self._widths[layer])


def reference_costs(train: TrainConfig, sizes: Sizes, num_classes: int, memory_bytes: int) -> ReferenceCosts:
    """Returns the costs of a recipe.

    Args:
        memory_bytes: memory of the machine, or its limit; half of it may hold features.
    """
    missing = max(0.0, 1 - memory_bytes / 2 / max(1, sizes.feature_bytes))
    return ReferenceCosts(
        train=train, width=sizes.width, row_bytes=sizes.row_bytes, num_classes=max(2, num_classes), missing=missing
    )


FEW = 4_000_000
"""Edges and rows that are computed in a moment: up to here an evaluation is exact."""
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
    """Returns the splits of a graph on which the trained model is scored."""
    return train.scored_splits(len(graph.train_ids), len(graph.valid_ids), len(graph.test_ids))
