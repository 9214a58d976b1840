"""Edges as seeds of mini-batches: the nodes that a batch of edges needs, and the rows that its loss reads.

A plan of edges is a plan of seeds (kernels/sampling/epoch_plan.py) whose ids are the numbers 0 to n - 1 of the edges that are trained on,
so order, resume, reuse and parts are those of nodes; an edge belongs to the part of its target. A sampler takes nodes: the distinct ends of
the batch's edges, and of its negatives after them, in the order of their first appearance. The loss takes pairs of places among these.

Ends of positives come first, so both ends of an edge that is predicted are among the first `num_ends` nodes of every block
(kernels/links/exclusion.py).

Cost: one sort of the batch's ids, and the draws of its negatives: 0.7 ms for 1,024 edges with one negative each, beside the 4 ms of
sampling their neighbours with fan-outs 10 and 10; 2 ms if known edges are left out. The sampler and the loss both ask for a batch, so each
thread keeps the last one it made.

Edges whose labels are learnt have no negatives. Their labels go with their places, in 32 bits each.

Edges with times are seen as of them (kernels/temporal/sampler.py): both ends of an edge, and of its negatives, are seeds as of the edge's
time. So a seed is a pair of a node and a time, and a node that is an end at two times is two of the nodes.
"""

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import DrawnNegatives
from graphmill.kernels.types import Array, BatchKey

MOST_THREADS = 64
"""Most threads whose last batches are kept."""


class LinkBatch(NamedTuple):
    """The nodes and pairs of a batch of p edges."""

    # ids[b] global, distinct, or distinct with their times: the seeds of the sampler.
    nodes: Array
    # Number of nodes that are ends of the batch's edges; they come first.
    num_ends: int
    # Places of source and target among the nodes, i32[p, 2].
    pairs: Array
    # u8[p], or None if edges have no relations.
    relation: Array | None
    # Places of source and target of the pairs that each edge is compared with, i32[p, k, 2]; k may be 0.
    negatives: Array
    # The labels of the edges, their 32 bits as i32[p, T]; None if edges have no labels.
    labels: Array | None = None
    # f64[b], the time as of which each node is seen; None if edges have no times.
    times: Array | None = None

    @property
    def when(self) -> dict[str, Array]:
        """The times of the nodes as a keyword of a sampler's `sample`; empty without times."""
        return {} if self.times is None else {"times": self.times}

    @property
    def scored(self) -> Array:
        """i32[p, 1 + k, 3]: place of the source, of the target, and relation, of each edge and of its negatives after it.

        With labels i32[p, 1, 3 + T]: the bits of the edge's labels behind them.
        """
        places = np.concatenate([self.pairs[:, None], self.negatives], axis=1)
        relation = np.zeros(len(places), np.int32) if self.relation is None else self.relation.astype(np.int32)
        found = [places, np.broadcast_to(relation[:, None, None], (*places.shape[:2], 1))]
        return np.concatenate([*found, *([] if self.labels is None else [self.labels[:, None]])], axis=2)


def distinct_reference(ids: Array) -> tuple[Array, Array]:
    """Returns the same as `distinct` (the rule in plain Python)."""
    place: dict[int, int] = {}
    places = [place.setdefault(int(each), len(place)) for each in ids]
    return np.array([*place], ids.dtype), np.array(places, np.int32)


def distinct(ids: Array) -> tuple[Array, Array]:
    """Returns the distinct ids in the order of their first appearance, and i32[n], the place of each of `ids` ids[n] among them."""
    ascending, first, rank = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return ascending[order], place[rank.reshape(-1)]


def distinct_as_of(ids: Array, times: Array) -> tuple[Array, Array, Array]:
    """Returns the distinct pairs of a node and a time in the order of their first appearance.

    Args:
        ids: ids[n]; times: f64[n].

    Returns:
        (ids[k], f64[k], i32[n]): nodes and times of the pairs, and the place of each of the n among them.
    """
    nodes, node = np.unique(ids, return_inverse=True)
    moments, moment = np.unique(times, return_inverse=True)
    pairs, places = distinct(moment.reshape(-1) * max(1, len(nodes)) + node.reshape(-1))
    moment, node = np.divmod(pairs, max(1, len(nodes)))
    return nodes[node], moments[moment], places


@dataclass(frozen=True, kw_only=True)
class EdgeSeeds:
    """The edges that batches are made of."""

    # ids[n] global.
    source: Array
    target: Array
    # u8[n], or None if edges have no relations.
    relation: Array | None = None
    # The rule that draws the pairs that edges are compared with; None for none.
    negatives: DrawnNegatives | None = None
    # i32[n] or f32[n, T], what is learnt of each edge; None if whether it is one is learnt.
    labels: Array | None = None
    # f64[n], the time as of which both ends of each edge, and of its negatives, are seen; None without times.
    times: Array | None = None
    # Thread -> key, edges and batch that it made last.
    _last: dict[int, tuple[BatchKey, Array, LinkBatch]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self):
        source, target = as_ids(self.source, "source"), as_ids(self.target, "target")
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "target", target)
        others = [each for each in (self.relation, self.labels, self.times) if each is not None]
        if len(lengths := {*map(len, (source, target, *others))}) > 1:
            problem = f"edges of {sorted(lengths)} sources, targets, relations, labels and times"
            raise InputError(problem, "give one of each per edge")

    def batch(self, batch: BatchKey, edges: Array) -> LinkBatch:
        """Returns the nodes and pairs of a batch of edges i64[p], numbers in 0..n-1; its arrays are not to be changed."""
        thread = threading.get_ident()
        last = self._last.get(thread)
        if last is None or last[0] != batch or not np.array_equal(last[1], edges):
            if len(self._last) >= MOST_THREADS:  # those of threads that have ended, too
                self._last.clear()
            last = self._last[thread] = batch, np.array(edges), self._made(batch, edges)
        return last[2]

    def _made(self, batch: BatchKey, edges: Array) -> LinkBatch:
        source, target = self.source[edges], self.target[edges]
        relation = None if self.relation is None else self.relation[edges]
        ends = np.stack([source, target], axis=1)
        if self.negatives is None:
            drawn: Any = np.empty((len(edges), 0, 2), ends.dtype)
        else:
            drawn = np.stack(self.negatives.draw(batch, edges, source, target, relation), axis=2)
        flat = np.concatenate([ends.reshape(-1), drawn.reshape(-1).astype(ends.dtype)])
        if self.times is None:
            (nodes, places), times = distinct(flat), None
        else:
            own = self.times[edges]
            each = [np.repeat(own, 2), np.repeat(own, 2 * drawn.shape[1])]
            nodes, times, places = distinct_as_of(flat, np.concatenate(each))
        pairs = places[: ends.size].reshape(ends.shape)
        return LinkBatch(
            nodes=nodes,
            num_ends=int(pairs.max(initial=-1)) + 1,
            pairs=pairs,
            relation=relation,
            negatives=places[ends.size :].reshape(drawn.shape),
            labels=None if self.labels is None else self.labels[edges].view(np.int32).reshape(len(edges), -1),
            times=times,
        )
