"""The edges that a training of links learns from, as the seeds of its batches, and the negatives that `[sampling]` asks for.

Candidates of a relation's end are the nodes of the types that its edges have there; all nodes if nodes have no types. Known edges that are
left out of the negatives are those of training: whether a pair is held out is not known while a model is trained.

If neighbours are drawn as of the times of seeds, an edge and its negatives are seen as of the edge's time.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.tasks.links import Links, Ranges, end_ranges
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.negatives import Candidates, DrawnNegatives, Side, degree_candidates, uniform_candidates
from graphmill.kernels.links.splits import TRAIN
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import Array, Topology


def training_edges(
    links: Links, topology: Topology, sampling: Neighbours, seed: int, names: Sequence[str] = ()
) -> EdgeSeeds:
    """Returns the edges of the training split with the rule of their negatives, or with their labels.

    Args:
        topology: the graph without the edges that are held out.

    Raises:
        InputError: no candidate has an edge, and negatives are drawn by degree; or an edge has no negative.
    """
    own = np.flatnonzero(links.split == TRAIN)
    source, target = (np.array(ends[own]) for ends in (links.source, links.target))
    relation = None if links.relation is None else np.array(links.relation[own])
    times = None if links.times is None or sampling.before is None else np.array(links.times[own])
    seeds = partial(EdgeSeeds, source=source, target=target, relation=relation, times=times)
    if links.labels is not None:
        return seeds(labels=np.array(links.labels[own]))
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
    edges = seeds(negatives=negatives)
    for side in negatives.sides[: sampling.per_positive]:
        _require_negatives(edges, negatives, topology, side, names)
    return edges


def _require_negatives(
    edges: EdgeSeeds, negatives: DrawnNegatives, topology: Topology, side: Side, names: Sequence[str]
) -> None:
    """Refuses edges of which every pair with another end is left out of the negatives.

    Args:
        side: the end that candidates stand for.

    Raises:
        InputError: there is such an edge; the message has its relation, and the node that stays.
    """
    stays: Side = "source" if side == "target" else "target"
    for number in np.unique(0 if edges.relation is None else edges.relation).tolist():
        of = f"relation {names[number]!r}" if names else "the edges"
        if negatives.candidates[side][number].count == 1:
            remedy = "leave the relation out of `relations` in [task]" if names else "give a graph with more nodes"
            raise InputError(f"{of}: only one node can be a {side}, so no pair is without a link", remedy)
        if len(full := _full_ends(edges, negatives, topology, side, number)):
            problem = f"{of}: every {side} is linked with the {stays} {full[0]}, so it has no pair without a link"
            raise InputError(
                problem, "set known_negatives = true in [sampling]: links to train on may be negatives then"
            )


def _full_ends(edges: EdgeSeeds, negatives: DrawnNegatives, topology: Topology, side: Side, number: int) -> Array:
    """Returns the ends that stay, of a relation's edges, whose candidates are all known; ascending ids."""
    if negatives.known is None:
        return np.empty(0, np.int64)
    kept, count = edges.source if side == "target" else edges.target, negatives.candidates[side][number].count
    ends = np.unique(kept if edges.relation is None else kept[edges.relation == number])
    # Hardly any node has as many edges as there are candidates, which its degree tells.
    ends = ends[np.maximum(topology.in_degree[ends], topology.out_degree[ends]) >= count]
    if not len(ends):
        return ends
    relation = None if edges.relation is None else np.full(len(ends), number)
    indptr, _ = negatives.known.others(ends, relation, side=side)
    return ends[np.diff(indptr) >= count]


def candidate_ranges(links: Links, topology: Topology) -> Ranges:
    """Returns the ranges of the nodes that may be an end of an edge, by side and relation."""
    return end_ranges(links, topology.num_nodes, topology.node_type_ptr)
