"""Batches of edges: their labels are the places of pairs among the nodes that the model computes.

Everything else is as for nodes, with a sampler whose seeds are edges (kernels/links/link_sampler.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import Batching, MiniBatch


@dataclass(frozen=True, kw_only=True)
class LinkBatching(Batching):
    """The data of a run on edges; the seeds of its plan are their numbers.

    Attributes:
        edges: the edges and the rule of their negatives, the same that the samplers have.
        exclude_targets: whether a batch leaves out the edges that it predicts.
    """

    edges: EdgeSeeds
    exclude_targets: bool = True

    def labels_of(self, item: PlannedBatch) -> Array:
        """Returns i32[p, 1 + k, 3]: the places of source and target and the relation of each edge, and of its k negatives after it."""
        return self.edges.batch(item.key, item.seeds).scored

    def ends_of(self, batch: MiniBatch) -> int:
        """Returns the number of ends of the edges that a batch leaves out, which are its first seeds."""
        return int(batch.labels[:, 0, :2].max()) + 1 if self.exclude_targets and len(batch.labels) else 0
