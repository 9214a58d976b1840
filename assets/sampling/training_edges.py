"""The edges that a training of links learns from, as the seeds of its batches, and the negatives that `[sampling]` asks for.

Candidates of a relation's end are the nodes of the types that its edges have there; all nodes if nodes have no types. Known edges that are
left out of the negatives are those of training: whether a pair is held out is not known while a model is trained.
"""

from collections.abc import Sequence

import numpy as np

from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.tasks.links import Links, Ranges, end_ranges
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.negatives import Candidates, DrawnNegatives, Side, degree_candidates, uniform_candidates
from graphmill.kernels.links.splits import TRAIN
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import Array, Topology


def training_edges(links: Links, topology: Topology, sampling: Neighbours, seed: int) -> EdgeSeeds:
    """Returns the edges of the training split with the rule of their negatives.

    Args:
        topology: the graph without the edges that are held out.

    Raises:
        InputError: no candidate has an edge, and negatives are drawn by degree.
    """
    own = np.flatnonzero(links.split == TRAIN)
    source, target = (np.array(ends[own]) for ends in (links.source, links.target))
    relation = None if links.relation is None else np.array(links.relation[own])
    triples = Triples(num_nodes=topology.num_nodes, reverse_of=links.reverse_of)
    degrees: dict[Side, Array] = {"source": topology.out_degree, "target": topology.in_degree}
    candidates: dict[Side, Sequence[Candidates]] = {
        side: [
            degree_candidates(low, degrees[side][low:high])
            if sampling.negatives == "degree"
            else uniform_candidates(low, high)
            for low, high in each
        ]
        for side, each in candidate_ranges(links, topology).items()
    }
    negatives = DrawnNegatives(
        seed=seed,
        per_positive=sampling.per_positive,
        candidates=candidates,
        sides=("target", "source"),
        in_batch=sampling.negatives == "in_batch",
        known=None if sampling.known_negatives else KnownEdges(triples, source, target, relation),
    )
    return EdgeSeeds(source=source, target=target, relation=relation, negatives=negatives)


def candidate_ranges(links: Links, topology: Topology) -> Ranges:
    """Returns the ranges of the nodes that may be an end of an edge, by side and relation."""
    return end_ranges(links, topology.num_nodes, topology.node_type_ptr)
