"""The links of a graph: edges that a model learns to predict, and their split."""

from __future__ import annotations

from dataclasses import dataclass

from graphmill.kernels.types import Array

RELATIONS = ("reverse_of", "link_relations")
"""Numbers of a graph artifact with links: the reverse of each relation, and the relations whose edges are predicted."""


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
    """

    source: Array
    target: Array
    relation: Array | None
    split: Array
    reverse_of: tuple[int, ...]
    predicted: tuple[int, ...] = (0,)
