"""A sampler whose seeds are edges, which plans and sources of batches take as they take one of nodes.

Around a sampler that draws, and around one that reads stored batches, it gives the same bytes: batches are stored for the nodes of
`EdgeSeeds.batch`, and edges are taken out when they are read. No node leaves a block with an edge, so neither do rows that were packed.

Of edges with times a batch's edge is taken out where both its ends are seen as of its own time: an earlier copy or reverse. Below an edge
of a later time it is the past.
"""

from typing import Any

import numpy as np

from graphmill.kernels.blocks.transpose import transpose as with_transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.exclusion import exclude
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.sampling.walk import WalkSampler
from graphmill.kernels.types import BatchKey, Block


class LinkSampler:
    """Samples the blocks under the ends of edges and of their negatives, without the edges themselves.

    Args:
        reverse_of: relation of the reverse of each relation's edges, see `graphmill.kernels.links.exclusion.exclude`.
        exclude_targets: whether the edges themselves are taken out.

    Raises:
        InputError: the sampler walks: a walk that passes an edge cannot be told from one that does not.
    """

    def __init__(
        self, sampler: AnySampler, edges: EdgeSeeds, reverse_of: tuple[int, ...] = (0,), exclude_targets: bool = True
    ):
        if isinstance(sampler, WalkSampler):
            raise InputError(
                "random walks may pass the edges that are predicted", "draw neighbours: method = 'uniform'"
            )
        self.sampler, self.edges, self.reverse_of, self.exclude_targets = sampler, edges, reverse_of, exclude_targets

    def sample(self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden") -> tuple[Block, ...]:
        """Samples the blocks of a batch of edges, by their numbers i64[p]; the last destinations are the nodes of `EdgeSeeds.batch`."""
        links = self.edges.batch(batch, np.asarray(seeds))
        blocks = self.sampler.sample(batch, links.nodes, transpose="none", **links.when)
        if self.exclude_targets:
            blocks = exclude(blocks, links.pairs, links.relation, self.reverse_of)
        first = {"none": len(blocks), "hidden": 1, "all": 0}[transpose]
        return tuple(with_transpose(block) if layer >= first else block for layer, block in enumerate(blocks))
