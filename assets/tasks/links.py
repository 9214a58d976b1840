"""The links of a graph: edges that a model learns to predict, their split, and what they are ranked among."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from graphmill.assets.tasks.labels import LINKS, OF_LABEL, STORED, Kind
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.types import Array

RELATIONS = ("reverse_of", "link_relations")
"""Numbers of a graph artifact with links: the reverse of each relation, and the relations whose edges are predicted."""
Ranges = dict[Side, Sequence[tuple[int, int]]]
"""Side -> (first node, last node + 1) of the candidates of each relation; one entry if edges have no relations."""


@dataclass(frozen=True, kw_only=True)
class LinkCandidates:
    """Nodes and pairs that links are ranked among, in addition to all nodes.

    Attributes:
        starts, ends: side -> i64[E + 1] and ids[n]: the candidates of link i are `ends[side][starts[side][i] : starts[side][i + 1]]`, and
            its own end is not among them. A side is missing if no link has candidates for it.
        pairs: ids[m, 2], pairs that all links of a part are compared with; None if there are none.
        part: u8[m], the part of each pair.
    """

    starts: Mapping[Side, Array] = field(default_factory=dict)
    ends: Mapping[Side, Array] = field(default_factory=dict)
    pairs: Array | None = None
    part: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Links:
    """The links of a graph. An edge, its copies and its reverse are one link and are stored once.

    Attributes:
        source, target: ids[E] global, ascending by (relation, source, target). A link that the source has in both directions is stored
            from its smaller to its larger id.
        relation: u8[E], numbers of the graph's relations; None if edges have no relations.
        split: u8[E]: 0 train, 1 valid, 2 test (kernels/links/splits.py).
        reverse_of: the relation of the reverse of each relation of the graph: itself if edges go both ways, -1 for none; (0,) or (-1,)
            if edges have no relations (kernels/links/triples.py).
        predicted: numbers of the relations whose edges are predicted; (0,) if edges have no relations.
        candidates: what links are ranked among in addition to all nodes; None if nothing was given.
        uniform: number of candidates that are drawn for each end of a link, in addition to all nodes; 0 for none.
        labels: i32[E], the class of each, or f32[E, T], its numbers; None if whether there is a link is learnt. With labels each
            edge of the source is stored, copies and reverses, too, those of one link in one part.
        times: f64[E], the time as of which the ends of each are seen: the first time of its edge, its copies and reverses, with labels the
            edge's own; None unless [sampling] asks for times.
    """

    source: Array
    target: Array
    relation: Array | None
    split: Array
    reverse_of: tuple[int, ...]
    predicted: tuple[int, ...] = (0,)
    candidates: LinkCandidates | None = None
    uniform: int = 0
    labels: Array | None = None
    times: Array | None = None

    @property
    def kind(self) -> Kind:
        """The kind of task, by the labels."""
        if self.labels is None:
            return LINKS
        return next(kind for kind, of in OF_LABEL.items() if STORED[of][0] == self.labels.dtype)


def end_ranges(links: Links, num_nodes: int, node_type_ptr: Array | None) -> Ranges:
    """Returns the ranges of the nodes that may be an end of an edge, by side and relation.

    Args:
        node_type_ptr: i64[T + 1], ranges of ids of the node types; None if nodes have no types.
    """
    starts = np.array([0, num_nodes] if node_type_ptr is None else node_type_ptr)
    found: dict[Side, list[tuple[int, int]]] = {"source": [], "target": []}
    sides: tuple[tuple[Side, Array], ...] = ("source", links.source), ("target", links.target)
    for number in range(len(links.reverse_of)):
        of_relation = slice(None) if links.relation is None else np.flatnonzero(links.relation == number)
        for side, all_ends in sides:
            ends = all_ends[of_relation]
            types = [
                (low, high) for low, high in pairwise(starts.tolist()) if np.any((ends >= low) & (ends < high))
            ] or [(0, num_nodes)]
            found[side].append((types[0][0], types[-1][1]))
    return {**found}
