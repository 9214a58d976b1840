"""The edges that a training of links learns from, as the seeds of its batches, and the negatives that `[sampling]` asks for.

Candidates of a relation's end are the nodes of the types that its edges have there; all nodes if nodes have no types. Known edges that are
left out of the negatives are those of training: whether a pair is held out is not known while a model is trained.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.tasks.links import Links
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.negatives import Candidates, DrawnNegatives, Side, degree_candidates, uniform_candidates
from graphmill.kernels.links.splits import TRAIN
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import Array, Topology

Ranges = dict[Side, Sequence[tuple[int, int]]]
"""Side -> (first node, last node + 1) of the candidates of each relation; one entry if edges have no relations."""


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
    starts = np.array([0, topology.num_nodes] if topology.node_type_ptr is None else topology.node_type_ptr)
    found: dict[Side, list[tuple[int, int]]] = {"source": [], "target": []}
    sides: tuple[tuple[Side, Array], ...] = ("source", links.source), ("target", links.target)
    for number in range(len(links.reverse_of)):
        of_relation = slice(None) if links.relation is None else np.flatnonzero(links.relation == number)
        for side, all_ends in sides:
            ends = all_ends[of_relation]
            types = [
                (low, high) for low, high in pairwise(starts.tolist()) if np.any((ends >= low) & (ends < high))
            ] or [(0, topology.num_nodes)]
            found[side].append((types[0][0], types[-1][1]))
    return {**found}
