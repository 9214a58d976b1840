"""Edges as numbers: (source, relation, target) in 64 bits, their reverses, and sets of known edges.

    number = (relation * N + source) * N + target

Numbers ascend by (relation, source, target), so the targets of a source by one relation are a range of the sorted numbers, and an edge is
found by binary search. The number of the reverse has the other relation and the ends exchanged. An edge and its reverse are one link: the
smaller of their numbers names it.

Cost: 8 bytes per known edge, 16 if sources of targets are asked for, too; a search of log2(E) steps per question.
Known limit: relations * N^2 must be at most 2^64, which is 4.2 billion nodes with one relation, 268 million with 256.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

NO_REVERSE = -1


@dataclass(frozen=True, kw_only=True)
class Triples:
    """The numbers of a graph's edges.

    Attributes:
        reverse_of: the relation of the reverse of each relation's edges: itself if the relation holds both directions, -1 if the
            relation has no reverse. One entry for a graph whose edges have no relations.

    Raises:
        InputError: there are more triples than numbers, or a relation's reverse has another reverse.
    """

    num_nodes: int
    reverse_of: tuple[int, ...] = (0,)

    def __post_init__(self):
        if len(self.reverse_of) * self.num_nodes**2 > 2**64:
            problem = f"{len(self.reverse_of)} relations among {self.num_nodes} nodes are more than 2^64 possible edges"
            raise InputError(problem, "predict links of a smaller graph, or store fewer relations")
        for relation, other in enumerate(self.reverse_of):
            paired = 0 <= other < len(self.reverse_of) and self.reverse_of[other] == relation
            if other != NO_REVERSE and not paired:
                problem = f"relation {relation} has the reverse {other}, whose reverse is not relation {relation}"
                raise InputError(problem, "name relations in pairs, a relation itself, or -1 for none")

    def numbers(self, source: Any, target: Any, relation: Any = None) -> Array:
        """Returns u64[n]: the numbers of edges with these ends, ids[n], and relations u8[n]; None for relation 0."""
        n = np.uint64(self.num_nodes)
        ends = np.asarray(source).astype(np.uint64) * n + np.asarray(target).astype(np.uint64)
        of_relation = np.uint64(self.num_nodes**2 % 2**64)
        return ends if relation is None else np.asarray(relation).astype(np.uint64) * of_relation + ends

    def parts(self, numbers: Array) -> tuple[Array, Array, Array]:
        """Returns (source i64[n], target i64[n], relation i64[n]) of numbers u64[n]."""
        n = np.uint64(max(1, self.num_nodes))
        rest, target = np.divmod(numbers, n)
        relation, source = np.divmod(rest, n)
        return source.astype(np.int64), target.astype(np.int64), relation.astype(np.int64)

    def reverses(self, source: Any, target: Any, relation: Any = None) -> tuple[Array, Array]:
        """Returns the numbers of the reverses of edges, u64[n], and bool[n], whether their relation has a reverse."""
        table = np.array(self.reverse_of, np.int64)
        relation = np.zeros(len(source), np.int64) if relation is None else np.asarray(relation)
        other = table[relation]
        return self.numbers(target, source, np.maximum(other, 0)), other != NO_REVERSE

    def links(self, source: Any, target: Any, relation: Any = None) -> Array:
        """Returns u64[n]: the number of each edge or of its reverse, whichever is smaller; equal for the two."""
        own = self.numbers(source, target, relation)
        reverse, has_reverse = self.reverses(source, target, relation)
        return np.where(has_reverse, np.minimum(own, reverse), own)


def contains(ascending: Array, wanted: Array) -> Array:
    """Returns bool[n], whether numbers u64[n] are among ascending ones u64[k]."""
    if not len(ascending):
        return np.zeros(len(wanted), bool)
    return ascending[np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)] == wanted


class KnownEdges:
    """A set of edges, with the reverses of those whose relation has a reverse.

    Args:
        source, target: ids[n] global, in any order; repeats count once.
        relation: u8[n], or None if edges have no relations.

    Attributes:
        ascending: u64[E], the numbers of the edges.
    """

    def __init__(self, triples: Triples, source: Any, target: Any, relation: Any = None):
        self.triples = triples
        reverse, has_reverse = triples.reverses(source, target, relation)
        self.ascending = np.unique(np.concatenate([triples.numbers(source, target, relation), reverse[has_reverse]]))

    @cached_property
    def _by_target(self) -> Array:
        """u64[E], the numbers of the edges with their ends exchanged, ascending."""
        source, target, relation = self.triples.parts(self.ascending)
        return np.sort(self.triples.numbers(target, source, relation))

    def contains(self, source: Any, target: Any, relation: Any = None) -> Array:
        """Returns bool[n], whether edges with these ends, ids[n], and relations u8[n] are in the set."""
        return contains(self.ascending, self.triples.numbers(source, target, relation))

    def others(self, ends: Any, relation: Any = None, *, side: str) -> tuple[Array, Array]:
        """Returns the known other ends of nodes.

        Args:
            ends: ids[n]: sources if `side` is "target", else targets.
            relation: u8[n], the relation of each, or None.
            side: "target" or "source": the end that is asked for.

        Returns:
            (indptr i64[n+1], ids i64[k]): those of node i are ids[indptr[i]:indptr[i+1]], ascending.
        """
        numbers = self.ascending if side == "target" else self._by_target
        first = self.triples.numbers(ends, np.zeros(len(ends), np.int64), relation)
        low = np.searchsorted(numbers, first)
        last = first + np.uint64(max(1, self.triples.num_nodes) - 1)
        counts = np.searchsorted(numbers, last, "right") - low
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places = np.arange(indptr[-1]) + np.repeat(low - indptr[:-1], counts)
        return indptr, self.triples.parts(numbers[places])[1]
