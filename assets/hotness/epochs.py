"""The epochs that the hotness stage samples: presampled rounds on a stream of their own, and training epochs to evaluate on.

`graphmill.kernels.sampling.epoch_plan.EpochPlan` shuffles by the stream as well, so a presampled epoch shares neither its batches'
seeds nor any draw with a training epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check, Progress
from graphmill.assets.graph.read import Graph
from graphmill.assets.hotness.config import HotnessConfig
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sampling.sequential import SequentialDraws
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.presample import Tally, count_batches
from graphmill.kernels.hotness.ranking import similarity
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array, Stream


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Epochs of one stream.

    Attributes:
        counter: counts of the nodes, over all epochs.
        tally: numbers of batches, inputs and edges, counted apart.
        similarities: similarity of each epoch to the one before it (FGNN, Table 2).
    """

    counter: VisitCounter
    tally: Tally
    num_epochs: int
    similarities: tuple[float, ...]

    @property
    def visits(self) -> Array:
        """u32[N], number of batches that ask for each node."""
        return self.counter.visits

    def numbers(self, name: str) -> dict[str, Any]:
        """Returns summary numbers, their names starting with `name`."""
        tally, num_nodes = self.tally, max(1, len(self.visits))
        found: dict[str, Any] = {
            "epochs": self.num_epochs,
            "batches": tally.num_batches,
            "inputs": tally.num_inputs,
            "edges": tally.num_edges,
            "inputs_per_batch": tally.num_inputs / tally.num_batches,
            "touched_ratio": tally.num_inputs / tally.num_batches / num_nodes,
            "visited_nodes": int(np.count_nonzero(self.visits)),
        }
        if self.similarities:
            found["similarity"] = float(np.mean(self.similarities))
        return {f"{name}_{key}": value for key, value in found.items()}

    def checks(self, graph: Graph) -> list[Check]:
        """Tests the counts against numbers that are known without them."""
        train_ids, total = graph.trained_nodes, int(self.visits.sum(dtype=np.uint64))
        fewest, rounds, inputs = int(self.visits[train_ids].min()), self.num_epochs, self.tally.num_inputs
        found = [
            Check(
                name="visits add up to the inputs",
                passed=total == inputs,
                detail=f"{total:,} visits counted by node, {inputs:,} inputs of {self.tally.num_batches:,} trial batches counted by batch",
                numbers={"visits": total, "inputs": inputs},
            ),
            Check(
                name="every training node is visited in every round",
                passed=fewest >= rounds,
                detail=f"each of {len(train_ids):,} training nodes has at least {fewest:,} visits in {rounds:,} round{'s' * (rounds > 1)}",
                numbers={"fewest visits of a training node": fewest, "rounds": rounds},
            ),
        ]
        if self.counter.layers != "none":
            found.append(self._seeds_check(graph, train_ids))
        return found

    def _seeds_check(self, graph: Graph, train_ids: Array) -> Check:
        """Counts the seeds; an end of a link is one in each batch that has a link of it, or is compared with it."""
        top, rounds = self.counter.layer_visits[-1], self.num_epochs
        seeds, expected = int(top.sum(dtype=np.uint64)), len(train_ids) * rounds
        each = top[train_ids]
        once = bool((each == rounds).all()) and seeds == expected
        nodes = "training nodes" if graph.links is None else "ends of training links"
        return Check(
            name="every training node is a seed once a round",
            passed=once if graph.links is None else bool((each >= rounds).all()),
            detail=f"{seeds:,} seeds counted, {expected:,} are {len(train_ids):,} {nodes} in {rounds:,} "
            f"round{'s' * (rounds > 1)}",
            numbers={"seeds": seeds, "training nodes times rounds": expected},
        )


class Epochs:
    """Samples epochs of a graph and counts their nodes.

    Args:
        graph: the graph; its training nodes or links are the seeds.
        drawing: the way neighbours are drawn, None if nothing is sampled.
        draws: passes that draw the batches of an epoch together; None if samplers read the topology themselves.

    Raises:
        InputError: epochs are wanted, and the graph lacks training nodes or the sampling is not sound.
    """

    def __init__(
        self,
        graph: Graph,
        config: HotnessConfig,
        drawing: Drawing | None,
        threads: int,
        progress: Progress,
        allocate: Allocate,
        draws: SequentialDraws | None = None,
    ):
        self._draws, self._edges = draws, None
        self.graph, self.config, self.progress, self.allocate = graph, config, progress, allocate
        self._samplers: Sequence[AnySampler] = []
        if drawing is None:
            return
        if len(graph.seeds[0]) == 0:
            raise InputError("the graph has no training nodes to sample from", "give its source a training split")
        if draws is None:
            self._samplers = [drawing.sampler(graph.topology, seed=config.seed) for _ in range(threads)]
        else:
            self._samplers = draws.samplers()
        if graph.links is not None:
            assert config.sampling is not None
            edges = training_edges(graph.links, graph.topology, config.sampling, config.seed, graph.relations)
            # An edge that is left out of a block takes no node with it.
            self._samplers = [LinkSampler(each, edges, exclude_targets=False) for each in self._samplers]
            self._edges = edges

    def presample(self) -> Counted:
        """Counts the rounds, with layers if the configuration asks for them."""
        return self._count(
            Stream.PRESAMPLE, self.config.hotness.rounds, "presample", self.config.hotness.counted_layers
        )

    def evaluate(self) -> Counted:
        """Counts the first training epochs."""
        return self._count(Stream.TRAIN, self.config.hotness.evaluate_epochs, "sample training epochs", "none")

    def _count(self, stream: Stream, num_epochs: int, label: str, layers: Any) -> Counted:
        sampling = self.config.sampling
        assert sampling is not None, "epochs are sampled only where [sampling] stands"
        plan = EpochPlan(np.array(self.graph.seeds[0]), sampling.batch_size, seed=self.config.seed, stream=stream)
        counter = VisitCounter(self.graph.topology.num_nodes, len(sampling.fanouts), layers)
        tally, similarities, last = Tally(), [], None
        self.progress.start(label, num_epochs * plan.num_batches, "batches")
        for epoch in range(num_epochs):
            before = counter.visits.copy() if num_epochs > 1 else None
            if self._draws is not None:
                self._draws.draw([(item.key, self._nodes(item)) for item in plan.batches(epoch)], self.progress)
            tally += count_batches(self._samplers, plan.batches(epoch), counter, self.progress.advance)
            if before is not None:
                visits = np.subtract(counter.visits, before, out=before)
                if last is not None:
                    similarities.append(similarity(last, visits, allocate=self.allocate))
                last = visits
        self.progress.done()
        return Counted(counter=counter, tally=tally, num_epochs=num_epochs, similarities=tuple(similarities))

    def _nodes(self, item: PlannedBatch) -> Array:
        """Returns ids[b], the nodes whose neighbours a batch draws first."""
        return item.seeds if self._edges is None else self._edges.batch(item.key, item.seeds).nodes
